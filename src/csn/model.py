"""CSN: figure 1. A base learner and a meta learner (key function f, memory function g, memory) in two phases.

`b` tasks, `n` support examples, `m` queries, `C` ways, `d` key size.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from csn.base.learner import BaseLearner
from csn.conditioning import Conditioning, DirectFeedback
from csn.episode import Episode, Examples, check_examples, check_finite
from csn.learner import FewShotLearner
from csn.memory import Attention, MemoryFunction, TaskMemory

GUARD_DRAWS = 10_000


class CSN(FewShotLearner):
    """A network that shifts its own activations by what it reads back from a memory of the task's examples.

    temperature: None for raw cosines as in eq. 3, or the initial value of a learned scale on them.
    guard: make sure that g starts out helpful (see `guard_initialisation`).
    """

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
    ) -> None:
        super().__init__()
        expected = conditioning.size(base.way)
        if memory_function.size != expected:
            raise ValueError(
                f"{type(conditioning).__name__} gives each neuron {expected} numbers, g takes {memory_function.size}"
            )
        self.way = base.way
        self.base, self.key_function, self.memory_function = base, key_function, memory_function
        self.conditioning, self.attention = conditioning, attention
        self.log_scale = None if temperature is None else nn.Parameter(torch.tensor(math.log(temperature)))
        if guard:
            self.guard_initialisation()

    def describe(self, support: Examples, way: int | None = None) -> TaskMemory:
        """The description phase: one memory row per support example."""
        if way is None:
            way = max(2, int(support.y.max()) + 1) if support.y.numel() else 2
        check_examples(support, way, self.way)
        x = support.x.flatten(0, 1)
        with torch.no_grad():
            features = self.base.stem(x)
        return self._write(features, self.key_function(x), support.y, way)

    def predict(self, x: Tensor, task: TaskMemory) -> Tensor:
        """The prediction phase: (b, m, *input) -> logits (b, m, way)."""
        check_finite(x)
        flat = x.flatten(0, 1)
        attention = self._attend(self.key_function(flat), task)
        return self._predict(self.base.stem(flat), attention, task)

    def attend(self, x: Tensor, task: TaskMemory) -> Tensor:
        """Eq. 3: how much each query takes from each memory row. (b, m, *input) -> (b, m, n)."""
        return self._attend(self.key_function(x.flatten(0, 1)), task)

    def episode_logits(self, episode: Episode) -> Tensor:
        """Both phases, with support and query in one call wherever layers are not shifted."""
        support, query = episode.support, episode.query
        check_examples(support, episode.way, self.way)
        b, n = support.y.shape
        x = torch.cat([support.x.flatten(0, 1), query.x.flatten(0, 1)])
        keys, features = self.key_function(x), self.base.stem(x)
        memory = self._write(features[: b * n], keys[: b * n], support.y, episode.way)
        return self._predict(features[b * n :], self._attend(keys[b * n :], memory), memory)

    def _write(self, features: Tensor, keys: Tensor, labels: Tensor, way: int) -> TaskMemory:
        """Eq. 2 for every adapted layer, from the unshifted base learner's behaviour on the support."""
        with torch.set_grad_enabled(self.conditioning.needs_graph):
            output = self.base.head(features.detach().requires_grad_(self.conditioning.needs_graph))
            infos = self.conditioning(output, labels, self.base.activations, way)
        values = tuple(info.values(self.memory_function) for info in infos)
        return TaskMemory(keys.unflatten(0, labels.shape), values, labels, way)

    def _attend(self, query_keys: Tensor, memory: TaskMemory) -> Tensor:
        scale = 1.0 if self.log_scale is None else self.log_scale.exp()
        return memory.attend(query_keys.unflatten(0, (memory.labels.shape[0], -1)), scale, self.attention)

    def _predict(self, features: Tensor, attention: Tensor, memory: TaskMemory) -> Tensor:
        """The base learner under the shifts of eq. 4; outputs beyond the task's classes are cut off."""
        shifts = tuple(beta.flatten(0, 1) for beta in memory.read(attention))
        logits = self.base.head(features, shifts).logits
        return logits.unflatten(0, attention.shape[:2])[..., : memory.way]

    @torch.no_grad()
    def guard_initialisation(self) -> None:
        """Draw g again until it starts out helpful: d >= 1, and for direct feedback g(e) > 0 on average over classes.

        d is the value that g writes at the output neuron of an example's own class less those at the others, at a
        uniform prediction. About half of all draws have d < 0 (then -g is the draw) and most of the rest are so close
        to 0 that the near-uniform attention of an untrained f drowns the signal; training stays at chance or starts
        late. Under that attention a hidden shift starts as the mean of g(e) over the classes: where it is negative,
        direct feedback starts with every hidden ReLU(beta) dead.
        """
        g, C = self.memory_function, self.way
        like = g.weights()[0][0]
        own = torch.eye(C, dtype=torch.bool, device=like.device)
        error = like.new_full((C, C), 1 / C) - own.to(like.dtype)  # y_hat - y of one example per class
        info = self.conditioning.output_info(error[None])
        for _ in range(GUARD_DRAWS):
            values = info.values(g).dense()[0]
            d = float(values[own].mean() - values[~own].mean())
            if d < 0:
                g.negate()
            alive = not isinstance(self.conditioning, DirectFeedback) or bool(g(error).mean() > 0)
            if abs(d) >= 1 and alive:
                return
            g.initialise()
        raise ValueError(f"no helpful memory function in {GUARD_DRAWS} draws: build it with more units or guard=False")
