"""Key functions f for sentences (section 2.1.2): (examples, T) word ids -> key of size d, linear output layer."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from csn.base.learner import he_initialise
from csn.base.sentences import BLANK, PAD, SentenceEncoder, WordEmbedding, check_sentences
from csn.keys import MLPKey


class NeighbourKey(nn.Module):
    """A perceptron over the embeddings of the words next to the blank, `neighbours` on either side.

    Where the sentence ends before that, the neighbour is PAD, which has an embedding as any word has.
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
    ) -> None:
        super().__init__()
        if neighbours < 1:
            raise ValueError(f"a key needs at least one neighbour on either side, got {neighbours}")
        self.neighbours = neighbours
        self.embedding = WordEmbedding(vocabulary, embedding, dropout=dropout)
        self.layers = MLPKey(2 * neighbours * embedding, size=size, units=units, layers=layers)

    def forward(self, x: Tensor) -> Tensor:
        """(examples, T) -> (examples, d)."""
        check_sentences(x, self.embedding.vocabulary)
        return self.layers(self.embedding(neighbour_ids(x, self.neighbours)))


class LSTMKey(nn.Module):
    """A plain LSTM over the whole sentence; the key is a projection of its state after the last word."""

    def __init__(
        self,
        vocabulary: int,
        *,
        size: int = 64,
        embedding: int = 100,
        units: int = 300,
        layers: int = 1,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.encoder = SentenceEncoder(vocabulary, embedding=embedding, units=units, layers=layers, dropout=dropout)
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
