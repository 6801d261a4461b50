"""A key function for sentences that reads the words next to the blank (section 2.1.2): (examples, T) -> key."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from csn.core.parts import KeyOptions, NetworkOptions, check_sizes, vocabulary_size
from csn.learner import InputSpec
from csn.networks.ffn import MLPKey
from csn.networks.lstm import SentenceNetworkOptions
from csn.networks.sentences import BLANK, PAD, UNKNOWN, WordEmbedding, check_sentences, known


class NeighbourKey(nn.Module):
    """A perceptron over the embeddings of the words next to the blank, `neighbours` on either side.

    A neighbour beyond the end of the sentence is PAD, which has an embedding like a word.

    Args:
        vocabulary: The number of words.
        size: Numbers in a key.
        neighbours: Words on either side of the blank.
        embedding: Numbers in a word embedding.
        units: Units of the hidden layers.
        layers: Layers of the perceptron.
        dropout: The dropout rate on the word embeddings.
        context: Whether to add a linear map of the mean embedding of the sentence's other known words, which represents
            its topic.
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
        _check_blanks(x)
        return self.unchecked(x)

    def unchecked(self, x: Tensor) -> Tensor:
        """Do the same without checking the sentences, because an exported graph cannot inspect their words."""
        keys: Tensor = self.layers(self.embedding(_words_around(x, self.neighbours)))
        return keys if self.context is None else keys + self.context(self._mean_of_others(x))

    def _mean_of_others(self, x: Tensor) -> Tensor:
        """The mean embedding of the known words that are not neighbours, or 0 if there are none. Dropout follows it."""
        steps = torch.arange(x.shape[1], device=x.device)
        distance = (steps - (x == BLANK).int().argmax(1, keepdim=True)).abs()
        counted = ((x > UNKNOWN) & (distance > self.neighbours)).to(self.embedding.weight.dtype)
        total = torch.einsum("et,etd->ed", counted, F.embedding(known(x), self.embedding.weight))
        return self.embedding.dropout(total / counted.sum(1, keepdim=True).clamp(min=1))


def neighbour_ids(x: Tensor, neighbours: int) -> Tensor:
    """Return the words around the blank, at any place in the row: (examples, T) -> (examples, 2 * neighbours)."""
    _check_blanks(x)
    return _words_around(x, neighbours)


def _check_blanks(x: Tensor) -> None:
    if not bool(((x == BLANK).sum(1) == 1).all()):
        raise ValueError(
            f"keys are made of the blank's neighbours: every sentence needs exactly one blank (id {BLANK})"
        )


def _words_around(x: Tensor, neighbours: int) -> Tensor:
    before = torch.arange(neighbours, device=x.device)  # in the padded row, from the blank's
    places = torch.cat([before, before + neighbours + 1])
    blank = (x == BLANK).int().argmax(1)
    return F.pad(x, (neighbours, neighbours), value=PAD).gather(1, blank[:, None] + places)


@dataclass(frozen=True)
class NeighbourKeyOptions(KeyOptions):
    """The key is a perceptron over the embeddings of the words next to the blank.

    size: numbers in a key.
    neighbours: words on either side of the blank.
    layers: layers of the perceptron.
    """

    name: ClassVar[str] = "neighbours"
    context: ClassVar[bool] = False
    size: int = 64
    neighbours: int = 2
    layers: int = 1

    def build(self, network: NetworkOptions, spec: InputSpec) -> NeighbourKey:
        """Build the key function. It has its own embeddings, as large as those of the network."""
        check_sizes(self, "size", "neighbours", "layers")
        vocabulary = vocabulary_size(spec, f"key {self.name}")
        if not isinstance(network, SentenceNetworkOptions):
            raise ValueError(f"key {self.name} needs a network that embeds words (lstm, lstm-ffn), got {network.name}")
        return NeighbourKey(
            vocabulary,
            embedding=network.embedding,
            dropout=network.embedding_dropout,
            context=self.context,
            **vars(self),
        )


@dataclass(frozen=True)
class ContextKeyOptions(NeighbourKeyOptions):
    """The key of the blank's neighbours, plus a map of the mean embedding of the sentence's other words.

    size: numbers in a key.
    neighbours: words on either side of the blank.
    layers: layers of the perceptron.
    """

    name: ClassVar[str] = "context"
    context: ClassVar[bool] = True
