"""CSN (figure 1): a base learner and a meta learner (key function f, memory function g, memory) in two phases.

Shapes: `b` tasks, `n` support examples, `m` queries, `C` ways, `d` key size.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from csn.core.base_learner import BaseLearner, OverStem, leaf, treats_examples_alone
from csn.core.conditioning import Conditioning, DirectFeedback, ErrorGradient, LayerInfo, write
from csn.core.initialisation import guard, quieten
from csn.core.memory import Attention, MemoryFunction, TaskMemory, log_scale
from csn.core.neurons import ShiftedLayers, ShiftRule, shifted_layers
from csn.core.parts import LearnerOptions, Parts, check_choices, check_sizes
from csn.core.passes import added, described_again
from csn.core.precision import in_single, is_mixed, single
from csn.episode import (
    Episode,
    Examples,
    check_examples,
    check_finite,
    check_same_tasks,
    check_support,
    check_way,
    support_way,
)
from csn.learner import Encoded, FewShotLearner, ordinary


class CSN(FewShotLearner[TaskMemory]):
    """A network that shifts its own activations by values that it reads from a memory of the task's examples.

    Args:
        base: The base learner, whose neurons are shifted.
        key_function: f, (examples, *input) -> (examples, d).
        memory_function: g of eq. 2.
        conditioning: The kind of conditioning information: `DirectFeedback` (eq. 7) or `ErrorGradient` (eqs. 5-6).
        temperature: None for raw cosines as in eq. 3, or the initial value of a learned scale on them.
        attention: "soft" (eq. 3), or "hard" (appendix A).
        guard: Start with a g whose shifts help (see `csn.core.initialisation.guard`).
        quiet: Start with a g that writes no shift where there is no error (see `csn.core.initialisation.quieten`).
        shifted: The layers that are shifted. The memory holds values for these layers only. Anything but "all" is an
            ablation.
        passes: How often the support is described. Each pass after the first describes the remaining error.
        shared_stem: Whether the key function reads the features of the base learner's stem instead of the input.
    """

    attends = True
    attention: Attention

    def __init__(
        self,
        base: BaseLearner,
        key_function: nn.Module,
        memory_function: MemoryFunction,
        conditioning: Conditioning,
        *,
        temperature: float | None = None,
        attention: Attention = "soft",
        guard: bool = True,
        quiet: bool = False,
        shifted: ShiftedLayers = "all",
        passes: int = 1,
        shared_stem: bool = False,
    ) -> None:
        super().__init__()
        expected = conditioning.size(base.way)
        if memory_function.size != expected:
            raise ValueError(
                f"{type(conditioning).__name__} gives each neuron {expected} numbers, g takes {memory_function.size}"
            )
        self.way, self.input_spec = base.way, base.input_spec
        self.base, self.key_function, self.memory_function = base, key_function, memory_function
        self.conditioning, self.attention = conditioning, attention
        self.shifted = shifted_layers(shifted, len(base.activations) + 1)
        if passes < 1:
            raise ValueError(f"passes must be 1 or more, got {passes}")
        self.passes, self.shared_stem = passes, shared_stem
        self.log_scale = log_scale(temperature)
        if guard and not memory_function.weights()[0][0].is_meta:  # meta weights will be loaded: nothing to initialise
            self.guard_initialisation()
        if quiet and not memory_function.weights()[0][0].is_meta:
            quieten(memory_function, conditioning)

    def describe(self, support: Examples, way: int | None = None) -> TaskMemory:
        """Run the description phase: write one memory row per support example."""
        way = support_way(support, way)
        check_examples(support, way, self.way)
        x = self._flat(support.x)
        keys, features = self._encoded(x, grad=self._end_to_end())
        return self._write(features, keys, support.y, way)

    def predict(self, x: Tensor, task: TaskMemory) -> Tensor:
        """Run the prediction phase: (b, m, *input) -> logits (b, m, way)."""
        check_finite(x)
        check_same_tasks(x, task.labels)
        keys, features = self.encode(self._flat(x))
        return self._predict(features, self._attend(keys, task), task)

    @property
    def embedding_network(self) -> nn.Module:
        """The key function, including the stem if it shares the stem."""
        return OverStem(self.base, self.key_function) if self.shared_stem else self.key_function

    def attend(self, x: Tensor, task: TaskMemory) -> Tensor:
        """Eq. 3: the weight of each memory row for each query. (b, m, *input) -> (b, m, n)."""
        check_same_tasks(x, task.labels)
        return self._attend(self.embedding_network(self._flat(x)), task)

    def episode_logits(self, episode: Episode) -> Tensor:
        """Run both phases. Layers that are not shifted process support and query in one call."""
        support, query = episode.support, episode.query
        check_support(support, episode.way, self.way)
        b, n = support.y.shape
        keys, features = self._encode_episode(self._flat(support.x), self._flat(query.x))
        of_support = [keys[: b * n].unflatten(0, (b, n)), features[0].unflatten(0, (b, n))]
        of_queries = [keys[b * n :].unflatten(0, (b, -1)), features[1].unflatten(0, (b, -1))]
        return self.answer(of_support, support.y, of_queries, episode.way)

    def _encode_episode(self, support: Tensor, queries: Tensor) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """Compute the keys of support and queries together, and the features of each.

        Usually one call of the stem serves both. If no gradient has to flow into the support's features, the stem
        processes the support separately without a graph, which saves a backward pass that would only add zeros.
        """
        n, parts = len(support), self.base.stem_parts()
        if (
            torch.is_grad_enabled()
            and not self._end_to_end()
            and not self.shared_stem
            and parts is not None
            and treats_examples_alone(parts)
            and not torch.compiler.is_compiling()
        ):
            with torch.no_grad():
                features = self.base.stem(support)
            return self.key_function(torch.cat([support, queries])), (features, self.base.stem(queries))
        keys, both = self.encode(torch.cat([support, queries]))
        return keys, (both[:n], both[n:])

    def encode(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Compute keys and the features below the adapted layers: (examples, *input) -> (examples, ...) each."""
        return self._encoded(x, grad=torch.is_grad_enabled())

    def _encoded(self, x: Tensor, *, grad: bool) -> tuple[Tensor, Tensor]:
        """Compute keys and features.

        Args:
            x: (examples, *input).
            grad: Whether gradients flow from the features into the stem. Keys always carry gradients.
        """
        with torch.set_grad_enabled(grad or (self.shared_stem and torch.is_grad_enabled())):
            features = self.base.stem(x)
        return self.key_function(features if self.shared_stem else x), features

    def answer(self, support: Encoded, labels: Tensor, queries: Encoded, way: int) -> Tensor:
        """Run both phases from keys and features."""
        check_way(way, self.way)
        keys, features = (part.flatten(0, 1) for part in support)
        memory = self._write(features, keys, labels, way)
        keys, features = (part.flatten(0, 1) for part in queries)
        return self._predict(features, self._attend(keys, memory), memory)

    def predict_encoded(self, queries: Encoded, task: TaskMemory) -> Tensor:
        """Run the prediction phase from keys and features (b * m, ...), ordered by task: logits (b * m, way)."""
        keys, features = queries
        return self._predict(features, self._attend(keys, task), task).flatten(0, 1)

    def recalled(self, queries: Encoded, task: TaskMemory) -> tuple[Tensor | None, ...]:
        """Eqs. 3 and 4: the shifts of queries, given as keys and features (m, ...), from the memory of one task."""
        return self._shifts(self._attend(queries[0], task), task)

    def attend_keys(self, keys: Tensor, task: TaskMemory) -> Tensor:
        """Eq. 3 from keys (m, d) for one task: (m, n)."""
        return self._attend(keys, task)[0]

    def _flat(self, x: Tensor) -> Tensor:
        """(b, n, *input) -> (b * n, *input). Raise ValueError if the base learner was built for other input."""
        flat = x.flatten(0, 1)
        self.base.check_input(flat)
        return flat

    def _write(self, features: Tensor, keys: Tensor, labels: Tensor, way: int) -> TaskMemory:
        """Eq. 2 for every shifted layer, computed from the unshifted base learner's response to the support."""
        mixed = is_mixed(keys)
        with in_single(keys):
            return self._written(single(features, mixed), single(keys, mixed), labels, way)

    def _written(self, features: Tensor, keys: Tensor, labels: Tensor, way: int) -> TaskMemory:
        if self._end_to_end():
            infos = self.conditioning(self.base.head(features), labels, self.base.activations, way)
        else:
            needs_graph = self.conditioning.needs_graph
            with torch.inference_mode(False), torch.set_grad_enabled(needs_graph):
                features, targets = ordinary(features), ordinary(labels)
                output = self.base.head(leaf(features, self.base) if needs_graph else features)
                infos = self.conditioning(output, targets, self.base.activations, way)
        values = write(list(itertools.compress(infos, self.shifted)), self.memory_function)
        memory = TaskMemory(keys.unflatten(0, labels.shape), values, labels, way)
        for _ in range(self.passes - 1):
            memory = self._written_on(memory, features, keys, infos)
        return memory

    def _written_on(
        self, memory: TaskMemory, features: Tensor, keys: Tensor, first: tuple[LayerInfo, ...]
    ) -> TaskMemory:
        """Return the memory after one more pass, in which the support reads the present memory."""
        needs_graph = self.conditioning.needs_graph
        with torch.inference_mode(False):
            with torch.no_grad():
                shifts = self._shifts(self._attend(keys, memory), memory)
                shifts = tuple(None if shift is None else ordinary(shift) for shift in shifts)
            with torch.set_grad_enabled(needs_graph):
                features, labels = ordinary(features), ordinary(memory.labels)
                output = self.base.head(leaf(features, self.base) if needs_graph else features, shifts)
                infos = described_again(self.conditioning, first, output, labels, self.base.activations, memory.way)
        g = self.memory_function
        rest = g(self.conditioning.rest(g.weights()[0][0]))
        more = write(list(itertools.compress(infos, self.shifted)), g)
        values = tuple(added(old, new, rest) for old, new in zip(memory.values, more, strict=True))
        return TaskMemory(memory.keys, values, memory.labels, memory.way)

    def _end_to_end(self) -> bool:
        """Whether gradients flow from the written values into the base learner."""
        return self.conditioning.end_to_end and torch.is_grad_enabled()

    def _attend(self, query_keys: Tensor, memory: TaskMemory) -> Tensor:
        scale = 1.0 if self.log_scale is None else self.log_scale.exp()
        keys = single(query_keys, is_mixed(query_keys)).unflatten(0, (memory.labels.shape[0], -1))
        with in_single(query_keys):
            return memory.attend(keys, scale, self.attention)

    def _predict(self, features: Tensor, attention: Tensor, memory: TaskMemory) -> Tensor:
        """Run the base learner under the shifts of eq. 4, and drop the outputs beyond the task's classes."""
        logits = self.base.head(features, self._shifts(attention, memory)).logits
        return logits.unflatten(0, attention.shape[:2])[..., : memory.way]

    def _shifts(self, attention: Tensor, memory: TaskMemory) -> tuple[Tensor | None, ...]:
        """Eq. 4: beta_t of every adapted layer, or None for a layer that is not shifted."""
        with in_single(attention):
            betas = iter(memory.read(attention))
        return tuple(next(betas).flatten(0, 1) if shifted else None for shifted in self.shifted)

    def guard_initialisation(self) -> None:
        """Start with a g whose shifts help (`csn.core.initialisation.guard`)."""
        guard(self.memory_function, self.conditioning, self.way)


@dataclass(frozen=True)
class CSNOptions(LearnerOptions):
    """Conditionally shifted neurons.

    conditioning: "df", direct feedback (eq. 7), or "gradient" (eqs. 5-6).
    feedback: with direct feedback, "end-to-end" backpropagates through the error; "detached" treats it as a constant.
    shift_rule: eq. 1 ("squashed"), or an ablation of section 4.3.
    shifted: the layers that are shifted.
    g: the memory function, "mlp" or the "simple" one of section 4.3.
    g_units: units of each hidden layer of an MLP g.
    temperature: none for raw cosines (eq. 3), or the initial value of a learned scale.
    attention: "soft" (eq. 3), or "hard" (appendix A).
    guard: start with a g whose shifts help.
    quiet: start with a g that writes nothing where there is no error.
    passes: how often a support is described; each pass after the first describes the remaining error.
    """

    name: ClassVar[str] = "csn"
    adapts_base: ClassVar[bool] = True
    conditioning: Literal["gradient", "df"] = "df"
    feedback: Literal["detached", "end-to-end"] = "detached"
    shift_rule: ShiftRule = "squashed"
    shifted: ShiftedLayers = "all"
    g: Literal["mlp", "simple"] = "mlp"
    g_units: int = 20
    temperature: float | None = None
    attention: Attention = "soft"
    guard: bool = True
    quiet: bool = False
    passes: int = 1

    def build(self, parts: Parts) -> CSN:
        """Build the base learner, then the key function, then g."""
        check_sizes(self, "g_units", "passes")
        check_choices(self)
        base, key_function = parts.base_learner(self.shift_rule), parts.key_function(has_stem=True)
        conditioning: Conditioning
        if self.conditioning == "df":
            conditioning = DirectFeedback(end_to_end=self.feedback == "end-to-end")
        elif self.feedback == "end-to-end":
            raise ValueError(
                "learner.feedback applies only to direct feedback: leave it out, or set learner.conditioning=df"
            )
        else:
            conditioning = ErrorGradient(p=7.0 if self.g == "mlp" else None)  # a scalar g takes the raw gradient
        g = MemoryFunction(
            conditioning.size(base.way),
            units=self.g_units,
            layers=3 if self.g == "mlp" else 1,
            bias=self.g == "mlp" or self.conditioning == "df",
        )
        return CSN(
            base,
            key_function,
            g,
            conditioning,
            temperature=self.temperature,
            attention=self.attention,
            guard=self.guard,
            quiet=self.quiet,
            shifted=self.shifted,
            passes=self.passes,
            shared_stem=parts.shares_stem,
        )
