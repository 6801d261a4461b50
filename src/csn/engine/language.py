"""Training a language model to predict the next word, in batches of whole sentences of similar length.

It uses the loop of csn.engine.train, but counts sentences instead of tasks. There too, step s is a function of
(seed, s).
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from csn.baselines.lstm_lm import LanguageModel
from csn.config import TrainConfig
from csn.data.source import EpisodeSource
from csn.data.text.running import RunningText
from csn.engine.reports import StepReport, ValidationReport
from csn.engine.train import TrainingLoop
from csn.networks.sentences import PAD

BATCHES_SORTED = 50  # the sentences of this many batches are sorted by length together
VALIDATION_SENTENCES = 1000


class LanguageTrainer(TrainingLoop):
    """Keeps the model with the lowest perplexity on validation sentences, and reports its accuracy on validation tasks.

    The other arguments are those of TrainingLoop.

    Args:
        learner: The language model.
        text: Training and validation sentences.
        validation: The source of the validation tasks.
    """

    unit = "sentences"
    learner: LanguageModel

    def __init__(
        self,
        learner: LanguageModel,
        config: TrainConfig,
        text: RunningText,
        validation: EpisodeSource,
        folder: Path,
        *,
        about: dict[str, Any] | None = None,
        device: torch.device | str = "cpu",
    ) -> None:
        super().__init__(learner, config, folder, about=about, device=device)
        if config.micro_tasks is not None:
            raise ValueError(
                "train.micro_tasks does not apply to a language model, which reads sentences: leave it out"
            )
        if config.compile != "off":
            raise ValueError("train.compile does not apply to a language model, which reads sentences: leave it out")
        if len(text.train) < config.tasks_per_step:
            raise ValueError(
                f"train.tasks_per_step asks for {config.tasks_per_step} sentences a step, but the text has only "
                f"{len(text.train)}: ask for fewer"
            )
        self.text, self.validation = text, validation
        self._batches = functools.lru_cache(maxsize=1)(self._epoch)

    @property
    def standing(self) -> str:
        """The best result so far, in words."""
        return f"best validation perplexity {1 / self.best:.1f}" if self.best > 0 else "no validation yet"

    def _epoch(self, epoch: int) -> list[np.ndarray]:
        """The sentences of each batch of an epoch. Sentences left over after the last full batch are left out."""
        size, rng = self.config.tasks_per_step, np.random.default_rng([self.config.seed, epoch])
        order = rng.permutation(len(self.text.train))
        lengths = (self.text.train != PAD).sum(1).numpy()
        pools = np.split(order, range(size * BATCHES_SORTED, len(order), size * BATCHES_SORTED))
        order = np.concatenate([pool[np.argsort(lengths[pool], kind="stable")] for pool in pools])
        batches = order[: len(order) // size * size].reshape(-1, size)
        return list(batches[rng.permutation(len(batches))])

    def _step(self) -> StepReport:
        """Train on one batch.

        The loss is the mean over all words of the batch, sentence ends included. The accuracy is that of the next word
        among all words.
        """
        size = self.config.tasks_per_step
        epoch, number = divmod(self.tasks // size, len(self.text.train) // size)
        share = self.ranks.share(size)
        x = _cropped(self.text.train[torch.from_numpy(self._batches(epoch)[number])])
        self._seed_step()
        self._seed_share(share)
        logits, following = self._call("next_words", x[share.cut].to(self.device))
        weight = len(following) / int((x != PAD).sum() + len(x))  # of this rank's words and ends among all
        loss = self._descend([F.cross_entropy(logits, following)], size, weight)
        return StepReport(self.tasks, loss, weight * float((logits.argmax(-1) == following).double().mean()))

    def _validate(self) -> ValidationReport:
        perplexity = self._perplexity()
        accuracy, interval = self._accuracy()
        is_best = self._keep_best(1 / perplexity, validation=accuracy, interval=interval, perplexity=perplexity)
        return ValidationReport(self.tasks, accuracy, interval, is_best, perplexity)

    @torch.no_grad()
    def _perplexity(self) -> float:
        """The exponential of the mean loss per word (or sentence end) of the validation sentences."""
        self.learner.eval()
        losses = []
        batches = self.text.val[:VALIDATION_SENTENCES].split(self.config.tasks_per_step)
        for x in batches[self.ranks.share(len(batches)).cut]:
            losses.append(F.cross_entropy(*self.learner.next_words(_cropped(x).to(self.device)), reduction="none"))
        self.learner.train()
        everyone = self.ranks.gathered([each.cpu() for each in losses])
        return float(torch.cat([each for of_rank in everyone for each in of_rank]).double().mean().exp())


def _cropped(x: Tensor) -> Tensor:
    """The sentences without the columns that hold only padding."""
    return x[:, : int((x != PAD).sum(1).max())]
