"""Changes to networks with torch.fx: functional activations become modules, and a network is split in two.

The traced network shares all parameters with the original, under the same names. The original is not changed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, fx, nn

from csn import registry
from csn.networks.cnn import check_images

# fmt: off
ACTIVATIONS = (
    "relu", "relu_", "relu6", "gelu", "silu", "elu", "selu", "celu", "leaky_relu", "sigmoid", "tanh", "softplus",
    "softsign", "mish", "hardswish", "hardsigmoid", "hardtanh", "logsigmoid", "tanhshrink",
)
# fmt: on
FUNCTIONS: dict[Callable[..., Any], str] = {
    getattr(module, name): name.rstrip("_")
    for module in (torch, F)
    for name in ACTIVATIONS
    if callable(getattr(module, name, None))
}
DROPOUTS = (F.dropout, F.dropout1d, F.dropout2d, F.dropout3d, F.alpha_dropout, F.feature_alpha_dropout)


class Functional(nn.Module):
    """A functional activation with its options, as a module."""

    def __init__(self, function: Callable[..., Any], options: dict[str, Any]) -> None:
        super().__init__()
        self.function = function
        self.options = {name: value for name, value in options.items() if name != "inplace"}

    def forward(self, a: Tensor) -> Tensor:
        """sigma(a)."""
        return self.function(a, **self.options)


def with_modules(network: nn.Module, names: Sequence[str]) -> nn.Module:
    """Return the network if it has modules with all these names.

    Otherwise return a traced copy in which functional activations are modules.
    """
    modules = [name for name, _ in network.named_modules()]
    missing = [name for name in names if name not in modules]
    if not missing:
        return network
    known = [name for name in modules if name]
    try:
        traced = _trace(network)
    except ValueError as error:
        raise ValueError(f"{registry.unknown('layer', missing[0], known)}. Functional activations: {error}") from error
    found = dict(_functional_activations(traced))
    if unknown := [name for name in missing if name not in found]:
        raise ValueError(registry.unknown("layer", unknown[0], [*known, *found]))
    for name, node in found.items():
        if name in missing:
            options = {option: value for option, value in node.kwargs.items() if option != "input"}
            function = F.relu if node.target in (torch.relu, torch.relu_, "relu", "relu_") else _function(node)
            traced.add_submodule(name, nn.ReLU() if function is F.relu else Functional(function, options))
            with traced.graph.inserting_before(node):
                a = node.args[0] if node.args else node.kwargs["input"]
                module = traced.graph.call_module(name, (a,))
            node.replace_all_uses_with(module)
            traced.graph.erase_node(node)
    traced.recompile()
    return traced


def split(network: nn.Module, name: str, above: Sequence[str]) -> tuple[nn.Module, nn.Module]:
    """Split a network after a layer into two networks, which share its parameters.

    Args:
        network: The network.
        name: The last layer of the lower network.
        above: Names of layers that must be in the upper network.
    """
    traced = network if isinstance(network, fx.GraphModule) else _trace(network, whole=_others(name, above))
    nodes = list(traced.graph.nodes)
    at = [index for index, node in enumerate(nodes) if node.op == "call_module" and _is_in(node, name)]
    if not at:
        raise ValueError(f"stem {name!r} does not run in a pass through the network: name a layer that does")
    cut = nodes[at[-1]]
    below = set(nodes[: at[-1]])
    if late := [node for node in nodes[: at[-1] + 1] if node.op == "call_module" and node.target in above]:
        raise ValueError(f"the shifted layer {late[0].target!r} is not above the stem {name!r}: name a lower stem")
    sources = {source for node in nodes[at[-1] + 1 :] for source in node.all_input_nodes}
    crossing = {source for source in sources if source in below and _is_data(source)}
    if crossing:
        raise ValueError(
            f"layers above {name!r} also use {', '.join(sorted(map(str, crossing)))} from below it (a shortcut?): "
            f"name a stem that everything passes through"
        )
    return _part(traced, nodes[: at[-1] + 1], cut, None), _part(traced, nodes[at[-1] + 1 :], None, cut)


def _others(name: str, above: Sequence[str]) -> Callable[[str], bool]:
    """Tell which modules need no tracing inside: the stem, and modules that contain neither it nor a shifted layer."""
    return lambda path: path == name or not any(layer.startswith(f"{path}.") for layer in (name, *above))


class _Tracer(fx.Tracer):
    """A tracer that treats chosen modules, and csn's check of images, as single operations.

    torch.fx traces without values, so it cannot trace through a check of a shape.
    """

    def __init__(self, whole: Callable[[str], bool]) -> None:
        super().__init__(autowrap_functions=(check_images,))
        self.whole = whole

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return self.whole(module_qualified_name) or super().is_leaf_module(m, module_qualified_name)


def _trace(network: nn.Module, whole: Callable[[str], bool] = lambda path: False) -> fx.GraphModule:
    """Trace a network. Raise ValueError with the reason if torch.fx cannot.

    Args:
        network: The network.
        whole: Tells by its path whether a module is kept as one operation.
    """
    try:
        traced = fx.GraphModule(network, _Tracer(whole).trace(network))
    except Exception as error:  # tracing runs the network, which may fail in any way
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
        raise ValueError(
            f"torch.fx cannot trace this network ({reason}): "
            f"make its activations modules (torch.nn.ReLU, ...) and name those; give the stem as a module"
        ) from error
    if fixed := [node for node in traced.graph.nodes if node.op == "call_function" and node.target in DROPOUTS]:
        raise ValueError(
            f"torch.fx would fix the functional dropout {str(fixed[0])!r} in training or in evaluation mode: use "
            f"torch.nn.Dropout"
        )
    return traced


def _functional_activations(traced: fx.GraphModule) -> list[tuple[str, fx.Node]]:
    """Return names and nodes in the order in which they run. A name is the enclosing module and the function."""
    taken = {name for name, _ in traced.named_modules()}
    found = []
    for node in traced.graph.nodes:
        function = _function_name(node)
        if function is None:
            continue
        stack = list(node.meta.get("nn_module_stack", {}).values())
        owner = stack[-1][0] if stack else ""
        base = f"{owner}.{function}" if owner else function
        name, count = base, 0
        while name in taken:
            count += 1
            name = f"{base}_{count}"
        taken.add(name)
        found.append((name, node))
    return found


def _function_name(node: fx.Node) -> str | None:
    """Return the name of an activation function, or None if the node is something else."""
    if node.op == "call_function":
        return FUNCTIONS.get(node.target)  # type: ignore[arg-type]
    if node.op == "call_method" and node.target in ACTIVATIONS:
        return str(node.target).rstrip("_")
    return None


def _function(node: fx.Node) -> Callable[..., Any]:
    if callable(node.target):
        return node.target
    name = str(node.target).rstrip("_")
    return getattr(torch, name) if hasattr(torch, name) else getattr(F, name)


def _is_in(node: fx.Node, name: str) -> bool:
    """Whether a module call calls this module or a part of it."""
    return str(node.target) == name or str(node.target).startswith(f"{name}.")


def _is_data(node: fx.Node) -> bool:
    """Whether a node depends on the examples, unlike a parameter."""
    return node.op != "get_attr"


def _part(traced: fx.GraphModule, nodes: list[fx.Node], end: fx.Node | None, start: fx.Node | None) -> fx.GraphModule:
    """Make a network of some nodes: those up to `end`, or those that start from the output of `start`."""
    graph = fx.Graph()
    copies: dict[fx.Node, fx.Node] = {}
    if start is not None:
        copies[start] = graph.placeholder("features")
    for node in traced.graph.nodes:
        if node in nodes or node.op == "get_attr":
            copies[node] = graph.node_copy(node, lambda source: copies[source])
    if end is not None:
        graph.output(copies[end])
    return fx.GraphModule(traced, graph)
