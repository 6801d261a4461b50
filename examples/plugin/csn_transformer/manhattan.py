"""A learner that answers with the class whose examples are nearest on average, in city-block distance."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from csn.baselines.embedding import Embedded, EmbeddingLearner, by_class
from csn.core.parts import LearnerOptions, Parts


class Manhattan(EmbeddingLearner):
    """Logits are minus the mean distance to the examples of a class; a class without examples is never the answer."""

    def compare(self, queries: Tensor, task: Embedded) -> Tensor:
        """Embeddings (b, m, d) -> logits (b, m, way)."""
        members = by_class(task.labels, task.way).to(queries.dtype)  # (b, n, way), one-hot
        distance = torch.cdist(queries, task.embeddings, p=1) @ members / members.sum(1).clamp(min=1).unsqueeze(1)
        return (-distance).masked_fill(members.sum(1).unsqueeze(1) == 0, -torch.inf)


@dataclass(frozen=True)
class ManhattanOptions(LearnerOptions):
    """It has no options. Its network can have any architecture."""

    name: ClassVar[str] = "manhattan"

    def build(self, parts: Parts) -> Manhattan:
        """Build it over the key function's outputs."""
        return Manhattan(parts.key_function(), parts.way)
