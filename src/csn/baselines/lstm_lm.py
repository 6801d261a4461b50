"""The LSTM-LM oracle (Vinyals et al., 2016): a language model whose training included the test words.

It is an upper bound, not a few-shot learner. From the support it learns only which word each label stands for. It
answers with the word that makes the query's sentence most probable.

Shapes: `V` words, `T` steps. PAD ends a sentence and begins the next one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from csn.core.base_learner import he_initialise
from csn.core.parts import Kind, LearnerOptions, Parts, check_sizes, vocabulary_size
from csn.episode import Examples, check_examples, check_same_tasks, support_way
from csn.learner import FewShotLearner
from csn.networks.sentences import BLANK, PAD, WordEmbedding, aligned, check_sentences, initialise_lstm, known

SENTENCES_AT_ONCE = 64  # scored at a time; their logits take a hundred megabytes


class LanguageModel(FewShotLearner[Any]):
    """p(word | words before it in its sentence): an LSTM, a projection to the size of the embeddings, a softmax.

    The embeddings also serve as the weights of the softmax layer. With embeddings of 100 numbers, this takes a third of
    the multiplications of a layer from 300 units to 10,000 words.

    Args:
        vocabulary: The number of words.
        way: The largest number of classes.
        embedding: Numbers in a word embedding.
        units: Units of every LSTM layer.
        layers: Layers of the LSTM.
        dropout: The dropout rate on the embeddings, between layers, and before the projection.
    """

    support_of = "words"

    def __init__(
        self,
        vocabulary: int,
        way: int,
        *,
        embedding: int = 100,
        units: int = 300,
        layers: int = 2,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        if layers < 1 or units < 1:
            raise ValueError(f"a language model needs at least one layer of one unit, got {layers} of {units}")
        self.way = way
        self.embedding = WordEmbedding(vocabulary, embedding, dropout=dropout)
        self.lstm = nn.LSTM(embedding, units, layers, batch_first=True, dropout=dropout if layers > 1 else 0.0)
        self.projection = nn.Linear(units, embedding)
        self.bias = nn.Parameter(torch.zeros(vocabulary))
        self.dropout = nn.Dropout(dropout)
        initialise_lstm(self.lstm)
        he_initialise([self.projection])
        nn.init.normal_(self.embedding.weight, std=embedding**-0.5)  # logits of about 1

    def next_words(self, x: Tensor, which: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Return logits (words, V) for the following words, and these words (words,). PAD is the end of the sentence.

        Args:
            x: Sentences that begin at step 0 and are followed by PAD, (examples, T).
            which: The words to predict, including the end, (examples, T + 1) bool. By default all words and all ends.
        """
        following = F.pad(x, (0, 1), value=PAD)
        if which is None:
            which = torch.arange(following.shape[1], device=x.device) <= (x != PAD).sum(1, keepdim=True)
        states, _ = self.lstm(self.embedding(F.pad(x, (1, 0), value=PAD)))
        h = self.projection(self.dropout(states[which]))
        return F.linear(h, self.embedding.weight, self.bias), following[which]

    def describe(self, support: Examples, way: int | None = None) -> Tensor:
        """Return the word of every label: support.x (b, n, 1) word ids -> (b, way)."""
        way = support_way(support, way)
        check_examples(support, way, self.way)
        if support.x.ndim != 3 or support.x.shape[2] != 1:
            raise ValueError(
                f"a support of a language model must be words, (tasks, examples, 1) ids, got {tuple(support.x.shape)}: "
                f"draw tasks with EpisodeSource(..., support='words')"
            )
        words = support.y.new_full((len(support.y), way), BLANK).scatter_(1, support.y, support.x[..., 0])
        if bool((words == BLANK).any()):
            raise ValueError(
                f"a language model's support needs all {way} words, got labels {support.y.unique().tolist()}"
            )
        return words

    def predict(self, x: Tensor, task: Tensor) -> Tensor:
        """Compute log p of each sentence with each word in the blank, up to a constant: (b, m, T) -> (b, m, way)."""
        check_same_tasks(x, task)
        rows, way = known(x.flatten(0, 1)), task.shape[1]
        check_sentences(rows, self.embedding.vocabulary)
        words = task.repeat_interleave(x.shape[1], dim=0)
        step = max(1, SENTENCES_AT_ONCE // way)
        parts = [self._scores(*part) for part in zip(rows.split(step), words.split(step), strict=True)]
        return torch.cat(parts).view(*x.shape[:2], way)

    def _scores(self, x: Tensor, words: Tensor) -> Tensor:
        """(rows, T) and (rows, way) -> (rows, way). The words before the blank do not depend on the word in it."""
        blank = aligned(x, "start") == BLANK
        if not bool((blank.sum(1) == 1).all()):
            raise ValueError(f"every sentence needs exactly one blank (id {BLANK}), which words are put into")
        # A row without PAD at its end may be cut off, so its end is not scored.
        lengths = (x != PAD).sum(1, keepdim=True)
        last = torch.where(x[:, -1:] == PAD, lengths, lengths - 1)
        steps = torch.arange(int(lengths.max()) + 1, device=x.device)
        scored = (steps >= blank.int().argmax(1, keepdim=True)) & (steps <= last)  # (rows, T + 1)
        way = words.shape[1]
        scored, blank, x = (each.repeat_interleave(way, dim=0) for each in (scored, blank, aligned(x, "start")))
        filled = torch.where(blank, words.reshape(-1, 1), x)[:, : len(steps) - 1]
        logits, following = self.next_words(filled, scored)
        found = -F.cross_entropy(logits, following, reduction="none")
        return found.new_zeros(scored.shape).masked_scatter(scored, found).sum(1).view(-1, way)


@dataclass(frozen=True)
class LanguageModelOptions(LearnerOptions):
    """The LSTM-LM oracle.

    embedding: numbers in a word embedding.
    units: units of every LSTM layer.
    layers: layers of the LSTM.
    dropout: dropout rate on the embeddings, between layers and before the projection.
    """

    name: ClassVar[str] = "lstm-lm"
    uses_network: ClassVar[bool] = False
    uses_key: ClassVar[bool] = False
    encodes: ClassVar[bool] = False
    reads: ClassVar[Kind | None] = "sentences"
    trained_on: ClassVar[Literal["tasks", "text"]] = "text"
    mixes: ClassVar[bool] = False
    embedding: int = 100
    units: int = 300
    layers: int = 2
    dropout: float = 0.0

    def build(self, parts: Parts) -> LanguageModel:
        """Build it for sentences."""
        check_sizes(self, "embedding", "units", "layers")
        return LanguageModel(vocabulary_size(parts.spec, "learner lstm-lm"), parts.way, **vars(self))
