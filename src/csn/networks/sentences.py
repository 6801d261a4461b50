"""Sentences as numbers: (examples, T) int64 word ids, PAD on either side of the words, one BLANK among them.

Each word out of vocabulary has its own negative id.
"""

from __future__ import annotations

from typing import Literal, get_args

import torch
import torch.nn.functional as F
from torch import Tensor, nn

PAD, BLANK, UNKNOWN = 0, 1, 2
Alignment = Literal["blank", "start", "end"]
ALIGNMENTS: tuple[Alignment, ...] = get_args(Alignment)
Until = Literal["end", "blank"]


def check_sentences(x: Tensor, vocabulary: int) -> None:
    """Raise ValueError unless x holds sentences of a vocabulary, at least one word in each."""
    if x.ndim != 2 or x.dtype != torch.int64:
        raise ValueError(f"sentences must be (examples, T) int64 word ids, got {tuple(x.shape)} of {x.dtype}")
    if x.numel() == 0 or not bool((x != PAD).any(1).all()):
        raise ValueError("a sentence has no word: every row needs at least the blank (id 1)")
    if int(x.max()) >= vocabulary:
        raise ValueError(
            f"word ids must lie below {vocabulary}, got {int(x.max())}: this network was built for another vocabulary"
        )


def known(x: Tensor) -> Tensor:
    """Replace negative word ids, which stand for words out of vocabulary, by UNKNOWN."""
    return x.masked_fill(x < 0, UNKNOWN)


def aligned(x: Tensor, align: Alignment) -> Tensor:
    """Move the words of each row so that certain steps correspond: (examples, T) -> the same.

    Args:
        x: Word ids.
        align: "blank" leaves rows unchanged: the windows of csn.data.text have all blanks at one step. "start" moves
            first words to step 0. "end" moves last words to the last step.
    """
    if align not in ALIGNMENTS:
        raise ValueError(f"sentences must be aligned at one of {', '.join(ALIGNMENTS)}, got {align!r}")
    if align == "blank":
        return x
    real = x != PAD
    return x.gather(1, (real if align == "end" else ~real).to(torch.uint8).argsort(dim=1, stable=True))


def read_until(x: Tensor, until: Until) -> Tensor:
    """Cut sentences to the part that a recurrent network reads: (examples, T) -> the same, or PAD after the blank.

    Args:
        x: Word ids.
        until: "blank" stops at the missing word, the 'prediction timestep' of section 4.2. "end" reads to the last
            word.
    """
    if until not in get_args(Until):
        raise ValueError(f"sentences can be read to their end or to their blank, got {until!r}")
    if until == "end":
        return x
    blank = (x == BLANK).int()
    return x.masked_fill(blank.cumsum(1) - blank > 0, PAD)


class WordEmbedding(nn.Module):
    """Randomly initialised embeddings (section 4.2), with dropout on their single numbers.

    Embeddings start small. Numbers of about 1 would change too little, because only a few tasks contain a given word.
    """

    start = 0.1

    def __init__(self, vocabulary: int, size: int, *, dropout: float = 0.0) -> None:
        super().__init__()
        if vocabulary <= UNKNOWN or size < 1:
            raise ValueError(
                f"embeddings need more ids than the three special ones and a size of 1 or more, got {vocabulary} ids "
                f"and size {size}"
            )
        self.vocabulary, self.size = vocabulary, size
        self.weight = nn.Parameter(self.start * torch.randn(vocabulary, size))
        self.dropout = nn.Dropout(dropout)

    @property
    def drops(self) -> bool:
        """Whether dropout is active, so that two embeddings of a word differ."""
        return self.dropout.training and self.dropout.p > 0

    def forward(self, x: Tensor) -> Tensor:
        """(...) -> (..., size)."""
        return self.dropout(F.embedding(known(x), self.weight))


class SentenceEncoder(nn.Module):
    """A plain LSTM with its own embeddings. It gives the state after the last word that it reads. PAD has no effect.

    until: how far it reads (`read_until`).
    """

    def __init__(
        self,
        vocabulary: int,
        *,
        embedding: int,
        units: int,
        layers: int,
        dropout: float = 0.0,
        until: Until = "end",
    ) -> None:
        super().__init__()
        self.until = until
        self.embedding = WordEmbedding(vocabulary, embedding, dropout=dropout)
        self.lstm = nn.LSTM(embedding, units, layers, batch_first=True)
        initialise_lstm(self.lstm)

    def forward(self, x: Tensor) -> Tensor:
        """(examples, T) -> (examples, units). Sentences are moved to step 0, so that no PAD comes before a word."""
        x = read_until(x, self.until)
        lengths = (x != PAD).sum(1)
        states, _ = self.lstm(self.embedding(aligned(x, "start")[:, : int(lengths.max())]))
        return states[torch.arange(len(x), device=x.device), lengths - 1]


def initialise_lstm(lstm: nn.LSTM) -> None:
    """Initialise W of [x_t; h_{t-1}] as He et al. (2015) (appendix A). Biases are 0, but 1 in the forget gate."""
    for name, parameter in lstm.named_parameters():
        if name.startswith("weight"):
            inputs = lstm.hidden_size + (lstm.input_size if name.endswith("l0") else lstm.hidden_size)
            nn.init.normal_(parameter, std=(2 / inputs) ** 0.5)
        else:
            nn.init.zeros_(parameter)
            if name.startswith("bias_ih"):
                nn.init.ones_(parameter[lstm.hidden_size : 2 * lstm.hidden_size])  # torch's order: i, f, v, o
