"""Conditionally shifted neurons in any network: `graft` turns your own network into a learner.

Hooks (hooks.py) turn named activation modules sigma into eq. 1, h = sigma(a) + sigma(beta), and a named output layer
into a + beta. Outside of the learner, the network behaves as before.
"""

from __future__ import annotations

import copy
import fnmatch
from collections.abc import Sequence
from dataclasses import fields
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd

from csn import registry
from csn.core.base_learner import BaseLearner, BaseOutput, Shifts
from csn.core.model import CSN, CSNOptions
from csn.core.neurons import ShiftRule
from csn.core.parts import Parts
from csn.learner import InputSpec
from csn.networks.hooks import (
    HALVES,
    ActivationHook,
    Call,
    KeyHook,
    NormHook,
    OutputHook,
    Owner,
    ReachedKey,
    activation_of,
    calling,
    is_elementwise,
)
from csn.networks.tracing import split, with_modules


class Grafted(BaseLearner):
    """A user's own network with conditionally shifted neurons.

    Args:
        network: The network.
        layers: Names of the shifted modules, in the order in which they run. The last one gives logits (examples, way).
            The others are elementwise activations.
        way: The largest number of classes.
        lower: A network that runs before `network`, once for support and queries.
        input_spec: The expected input, or None if the input is not checked.
        shift_rule: How shifts are added (`csn.core.neurons`).
        frozen_statistics: Whether batch norms stay in evaluation mode.
    """

    def __init__(
        self,
        network: nn.Module,
        layers: Sequence[str],
        way: int,
        *,
        lower: nn.Module | None = None,
        input_spec: InputSpec | None = None,
        shift_rule: ShiftRule = "squashed",
        frozen_statistics: bool = False,
    ) -> None:
        super().__init__()
        self.network, self.lower, self.way, self.shift_rule = network, lower, way, shift_rule
        self.input_spec, self.frozen_statistics = input_spec, frozen_statistics
        self._owner = Owner()
        modules = dict(network.named_modules())
        self.layers = tuple(layers)
        self.activations = tuple(activation_of(name, modules[name]) for name in layers[:-1])
        last = any(map(_is_channels_last, network.parameters()))
        for index, (name, sigma) in enumerate(zip(layers, self.activations, strict=False)):
            hook = ActivationHook(self._owner, self.layers, index, sigma, shift_rule, last=last)
            modules[name].register_forward_pre_hook(hook.before)
            modules[name].register_forward_hook(hook.after)
        modules[layers[-1]].register_forward_hook(OutputHook(self._owner, self.layers, way).after)
        for name, module in modules.items():
            if isinstance(module, _BatchNorm):
                module.register_forward_pre_hook(NormHook(self._owner, name).before)
        self.training = network.training  # modules of the network keep their mode
        self._freeze_statistics()

    def train(self, mode: bool = True) -> Grafted:
        """Set training mode, except for batch norms with frozen statistics."""
        super().train(mode)
        self._freeze_statistics()
        return self

    def _freeze_statistics(self) -> None:
        if self.frozen_statistics:
            for module in self.modules():
                if isinstance(module, _BatchNorm):
                    module.eval()

    def check_input(self, x: Tensor) -> None:
        """Raise ValueError unless examples have the expected shape, if one was given."""
        if self.input_spec is not None and tuple(x.shape[1:]) != self.input_spec.shape:
            raise ValueError(
                f"this network was grafted for inputs of shape {self.input_spec.shape}, got {tuple(x.shape[1:])}: "
                f"resize them, or graft with reads={tuple(x.shape[1:])}"
            )

    def stem(self, x: Tensor) -> Tensor:
        """Run the lower network, or return the examples themselves."""
        x = self._fitting(x)
        return x if self.lower is None else self.lower(x)

    def stem_parts(self) -> tuple[nn.Module, ...]:
        """Return the lower network, if there is one."""
        return () if self.lower is None else (self.lower,)

    def head(self, features: Tensor, shifts: Shifts | None = None) -> BaseOutput:
        """Eq. 1 in every named layer."""
        call = Call(self._owner, features.shape[0], shifts)  # len() would fix it in an exported graph
        with calling(call):
            self.network(features)
        if call.logits is None:
            missing = self.layers[len(call.preactivations)]
            raise ValueError(
                f"layer {missing!r} did not run in a pass through the network: name layers that every pass goes through"
            )
        logits = call.logits.float() if call.logits.dtype in HALVES else call.logits
        return BaseOutput(logits, tuple(call.preactivations))

    def layer_output(self, name: str, x: Tensor) -> Any:
        """Return the output of a layer, without shifts. The layers above it do not run."""
        call = Call(self._owner, x.shape[0], key=name)
        with calling(call):
            try:
                self.network(self.stem(x))
            except ReachedKey:
                return call.caught
        raise ValueError(f"the key layer {name!r} did not run in a pass through the network: name one that does")

    def _fitting(self, x: Tensor) -> Tensor:
        """Convert examples to the precision of the network. Integer inputs such as word ids stay unchanged."""
        parameter = next(self.parameters(), None)
        return x.to(parameter.dtype) if parameter is not None and x.is_floating_point() else x


class LayerKey(nn.Module):
    """A layer of the grafted network used as the key function. It shares all parameters with the base learner."""

    def __init__(self, base: Grafted, name: str) -> None:
        super().__init__()
        self.name = name
        self._base = (base,)  # a tuple hides the base from torch, which would count its parameters twice
        dict(base.network.named_modules())[name].register_forward_hook(KeyHook(base._owner, name).after)

    def forward(self, x: Tensor) -> Tensor:
        """(examples, *input) -> (examples, d)."""
        return self._base[0].layer_output(self.name, x)


class CheckedKey(nn.Module):
    """A user's own key function, with its output checked: (examples, *input) -> (examples, d)."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, x: Tensor) -> Tensor:
        """Return keys in single precision or higher."""
        keys = self.network(x)
        if not isinstance(keys, Tensor) or keys.ndim < 2 or keys.shape[0] != x.shape[0] or not keys.is_floating_point():
            got = f"{keys.dtype} {tuple(keys.shape)}" if isinstance(keys, Tensor) else type(keys).__name__
            raise ValueError(
                f"the key function must give real numbers (examples, d), {len(x)} rows for {len(x)} examples; got {got}"
            )
        keys = keys.flatten(1)
        return keys.float() if keys.dtype in HALVES else keys


def graft(
    network: nn.Module,
    *,
    layers: str | Sequence[str],
    way: int,
    key: nn.Module | str,
    reads: InputSpec | tuple[int, ...] | None = None,
    stem: nn.Module | str | None = None,
    frozen_statistics: bool = False,
    **options: Any,
) -> CSN:
    """Put conditionally shifted neurons into your own network.

    Args:
        network: (examples, *input) -> anything. Parameters that require no gradient are not trained.
        layers: Names of activation modules in the order in which they run, or patterns such as "layer4.*". The last
            name must be the output layer, which gives `way` numbers. If torch.fx can trace the network, functional
            activations have names too: the enclosing module and the function, such as "layer4.0.relu", then
            "layer4.0.relu_1".
        way: The largest number of classes.
        key: A key function, (examples, *input) -> (examples, d), or the name of a layer of the network.
        reads: The shape of one example. It is checked before every pass.
        stem: The layers below the first shifted one, which run once for support and queries. Give a module that runs
            before the network, or the name of the last of these layers if torch.fx can trace the network.
        frozen_statistics: Whether batch norms keep their running statistics.
        options: Options of the learner (`CSNOptions`), such as conditioning="gradient" or temperature=10.0.
    """
    chosen = _options(options)
    if not isinstance(way, int) or way < 2:
        raise ValueError(f"a learner needs a whole way >= 2, the number of its classes; got {way!r}")
    if not isinstance(key, str | nn.Module):
        raise ValueError(f"key is a module or the name of a layer, got {type(key).__name__}")
    names = [layers] if isinstance(layers, str) else list(layers)
    network = with_modules(network, [name for name in names if not _is_pattern(name)])
    names = _expanded(network, names)
    lower: nn.Module | None = None if isinstance(stem, str) else stem
    key_in_stem = isinstance(stem, str) and isinstance(key, str)
    if key_in_stem:
        raise ValueError("a key that is a layer needs the whole network: leave out stem, or give the key as a module")
    if isinstance(stem, str):
        lower, network = split(network, _known(network, stem), names)
    spec = InputSpec(tuple(reads)) if isinstance(reads, tuple) else reads
    base = Grafted(
        network,
        names,
        way,
        lower=lower,
        input_spec=spec,
        shift_rule=chosen.shift_rule,
        frozen_statistics=frozen_statistics,
    )
    of_key = CheckedKey(LayerKey(base, _known(network, key)) if isinstance(key, str) else key)
    return chosen.build(Parts(spec or InputSpec(()), way, base, of_key, None))


def check_separate(base: Grafted, x: Tensor) -> None:
    """Raise ValueError if examples of a batch influence each other in the network's present mode.

    Dropout is switched off for the test. Running statistics do not change.

    Args:
        base: The grafted network.
        x: (examples, *input), two or more examples.
    """
    trial = copy.deepcopy(base)
    for module in trial.modules():
        if isinstance(module, _DropoutNd):
            module.eval()
    with torch.no_grad():
        together = trial(x).logits
        alone = torch.cat([trial(x[i : i + 1]).logits for i in range(len(x))])
    apart = float((together - alone).abs().max())
    if apart > 1e-4 * (1 + float(together.abs().max())):
        raise ValueError(
            f"the network mixes the examples of a batch: the logits of an example change by {apart:.2g} if it comes "
            f"alone. Graft with frozen_statistics=True, use group norm, or mix below the first shifted layer only"
        )


def _options(options: dict[str, Any]) -> CSNOptions:
    known = [item.name for item in fields(CSNOptions)]
    if unknown := [name for name in options if name not in known]:
        raise ValueError(registry.unknown_option("graft", unknown[0], known))
    return CSNOptions(**options)


def _is_pattern(name: str) -> bool:
    return any(letter in name for letter in "*?[")


def _expanded(network: nn.Module, names: Sequence[str]) -> list[str]:
    """Replace patterns by the names of the activation modules that match."""
    modules = {name: module for name, module in network.named_modules() if name}
    found: list[str] = []
    for name in names:
        if not _is_pattern(name):
            found.append(_known(network, name))
            continue
        fitting = [other for other in modules if fnmatch.fnmatchcase(other, name) and _is_activation(modules[other])]
        if not fitting:
            raise ValueError(f"no activation module has a name like {name!r}: choose among {', '.join(modules)}")
        found += [other for other in fitting if other not in found]
    if len(found) != len(set(found)):
        twice = next(name for name in found if found.count(name) > 1)
        raise ValueError(f"layer {twice!r} is named twice: name each layer once")
    if not found:
        raise ValueError("layers must name at least the output layer")
    if is_elementwise(modules[found[-1]]):
        raise ValueError(
            f"the last of the layers must be the output layer, which gives a number for each class, got the "
            f"activation {found[-1]!r}: add the output layer's name"
        )
    return found


def _is_activation(module: nn.Module) -> bool:
    """Whether a module is elementwise and not the identity."""
    if next(module.children(), None) is not None or isinstance(module, nn.Identity | _DropoutNd | _BatchNorm):
        return False
    return is_elementwise(module)


def _known(network: nn.Module, name: str) -> str:
    """Return a module's name. Raise ValueError with the nearest name if there is no such module."""
    names = [known for known, _ in network.named_modules() if known]
    if name not in names:
        raise ValueError(registry.unknown("layer", name, names))
    return name


def _is_channels_last(weight: Tensor) -> bool:
    return weight.ndim == 4 and not weight.is_contiguous() and weight.is_contiguous(memory_format=torch.channels_last)
