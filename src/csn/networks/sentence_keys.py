"""Key functions f for sentences (section 2.1.2): (examples, T) word ids -> key of size d, linear output layer."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from csn.core.base_learner import he_initialise
from csn.networks.keys import MLPKey
from csn.networks.sentences import BLANK, PAD, UNKNOWN, SentenceEncoder, Until, WordEmbedding, check_sentences


class NeighbourKey(nn.Module):
    """A perceptron over the embeddings of the words next to the blank, `neighbours` on either side.

    Where the sentence ends before that, the neighbour is PAD, which has an embedding as any word has. context: a linear
    map of the mean embedding of the sentence's other known words is added, which tells what it is about.
    """

    def __init__(
        self,
        vocabulary: int,
        *,
        size: int = 64,
        neighbours: int = 2,
        embedding: int = 100,
        units: int = 128,
        layers: int = 1,
        dropout: float = 0.0,
        context: bool = False,
    ) -> None:
        super().__init__()
        if neighbours < 1:
            raise ValueError(f"a key needs at least one neighbour on either side, got {neighbours}")
        self.neighbours = neighbours
        self.embedding = WordEmbedding(vocabulary, embedding, dropout=dropout)
        self.layers = MLPKey(2 * neighbours * embedding, size=size, units=units, layers=layers)
        self.context = nn.Linear(embedding, size, bias=False) if context else None

    def forward(self, x: Tensor) -> Tensor:
        """(examples, T) -> (examples, d)."""
        check_sentences(x, self.embedding.vocabulary)
        keys = self.layers(self.embedding(neighbour_ids(x, self.neighbours)))
        return keys if self.context is None else keys + self.context(self._mean_of_others(x))

    def _mean_of_others(self, x: Tensor) -> Tensor:
        """The mean embedding of the known words that are no neighbours; 0 where there are none. Dropout comes after."""
        steps = torch.arange(x.shape[1], device=x.device)
        distance = (steps - (x == BLANK).int().argmax(1, keepdim=True)).abs()
        counted = ((x > UNKNOWN) & (distance > self.neighbours)).to(self.embedding.weight.dtype)
        total = torch.einsum("et,etd->ed", counted, F.embedding(x, self.embedding.weight))
        return self.embedding.dropout(total / counted.sum(1, keepdim=True).clamp(min=1))


class LSTMKey(nn.Module):
    """A plain LSTM over the sentence; the key is a projection of its state after the last word it reads."""

    def __init__(
        self,
        vocabulary: int,
        *,
        size: int = 64,
        embedding: int = 100,
        units: int = 300,
        layers: int = 1,
        dropout: float = 0.0,
        until: Until = "end",
    ) -> None:
        super().__init__()
        self.encoder = SentenceEncoder(
            vocabulary, embedding=embedding, units=units, layers=layers, dropout=dropout, until=until
        )
        self.output = nn.Linear(units, size)
        he_initialise([self.output])

    def forward(self, x: Tensor) -> Tensor:
        """(examples, T) -> (examples, d)."""
        return self.output(self.encoder(x))


def neighbour_ids(x: Tensor, neighbours: int) -> Tensor:
    """The words around the blank, wherever in the row it is: (examples, T) -> (examples, 2 * neighbours)."""
    blank = x == BLANK
    if not bool((blank.sum(1) == 1).all()):
        raise ValueError(f"keys come from the blank's neighbours: every sentence needs exactly one blank (id {BLANK})")
    beside = torch.arange(-neighbours, neighbours + 1, device=x.device)
    beside = beside[beside != 0] + neighbours  # in the padded row
    return F.pad(x, (neighbours, neighbours), value=PAD).gather(1, blank.int().argmax(1)[:, None] + beside)
