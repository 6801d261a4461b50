"""adaLSTM: an LSTM with conditionally shifted neurons in the recurrence, and a softmax layer (sections 2.5 and 4.2).

A layer's neurons are its memory cells at every step, (T, H). Information comes from c_t, and shifts go to h_t. Step t
of the support shifts step t of a query; `align` says how sentences of unequal length lie on these steps.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from csn.core.base_learner import BaseLearner, BaseOutput, Shifts, he_initialise, start_uniform
from csn.core.neurons import TANH, ShiftRule, shifted_logits
from csn.core.parts import Kind, NetworkOptions, vocabulary_size
from csn.learner import InputSpec
from csn.networks.packing import Packing, distinct, pack
from csn.networks.recurrence import lstm_layer
from csn.networks.sentences import (
    PAD,
    Alignment,
    SentenceEncoder,
    Until,
    WordEmbedding,
    aligned,
    check_sentences,
    known,
    read_until,
)


class LSTMLayer(nn.Module):
    """Weights of one layer. Gates are in the order o, i, f, v.

    W of [x_t; h_{t-1}] is initialised as He et al. (2015), as in appendix A. Biases start at 0, but at 1 in the forget
    gate, which is the default of the paper's framework.
    """

    def __init__(self, inputs: int, units: int) -> None:
        super().__init__()
        scale = (2 / (inputs + units)) ** 0.5
        self.input_weight = nn.Parameter(scale * torch.randn(4 * units, inputs))
        self.recurrent_weight = nn.Parameter(scale * torch.randn(4 * units, units))
        self.bias = nn.Parameter(torch.zeros(4 * units))
        nn.init.ones_(self.bias[2 * units : 3 * units])

    def forward(
        self, x: Tensor, packing: Packing, shifts: Tensor | None, rule: ShiftRule, rows: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Section 2.5: (words, inputs) -> h (words, H) and c (examples, T, H). `rows` as in `lstm_layer`."""
        return lstm_layer(x, self.input_weight, self.recurrent_weight, self.bias, packing, shifts, rule, rows)


class LSTM(BaseLearner):
    """The base learner of adaLSTM.

    Args:
        vocabulary: The number of words.
        way: The number of outputs C.
        embedding: Numbers in a word embedding.
        units: Units of every LSTM layer.
        layers: Layers of the LSTM.
        embedding_dropout: The dropout rate on the word embeddings.
        align: Which steps of two sentences correspond (`aligned`).
        until: How far a sentence is read (`read_until`).
        shift_rule: How shifts are added (`csn.core.neurons`).
    """

    def __init__(
        self,
        vocabulary: int,
        way: int,
        *,
        embedding: int = 100,
        units: int = 300,
        layers: int = 1,
        embedding_dropout: float = 0.0,
        align: Alignment = "blank",
        until: Until = "end",
        shift_rule: ShiftRule = "squashed",
    ) -> None:
        super().__init__()
        if layers < 1 or units < 1:
            raise ValueError(f"an LSTM needs at least one layer of one unit, got {layers} of {units}")
        self.way, self.align, self.until, self.shift_rule = way, align, until, shift_rule
        self.activations, self.input_spec = (TANH,) * layers, InputSpec((0,), vocabulary)
        self.embedding = WordEmbedding(vocabulary, embedding, dropout=embedding_dropout)
        self.layers = nn.ModuleList(LSTMLayer(units if layer else embedding, units) for layer in range(layers))
        self.output = nn.Linear(units, way)
        start_uniform(self.output)

    def check_input(self, x: Tensor) -> None:
        """Sentences of the vocabulary."""
        check_sentences(x, self.embedding.vocabulary)

    def stem(self, x: Tensor) -> Tensor:
        """(examples, T) ids -> the same, aligned, for the head embeds each word once. With dropout: `embedded`."""
        x = aligned(read_until(x, self.until), self.align)
        return self.embedded(x) if self.embedding.drops else x

    def embedded(self, x: Tensor) -> Tensor:
        """(examples, T) ids -> (examples, T, embedding + 1): the last column is 1 at words and 0 at PAD."""
        embedded = self.embedding(x)
        return torch.cat([embedded, (x != PAD).unsqueeze(-1).to(embedded.dtype)], dim=-1)

    def head(self, features: Tensor, shifts: Shifts | None = None) -> BaseOutput:
        """Section 2.5 in every layer, then eq. 1, t = T, from h after the last word that is read."""
        examples, T = features.shape[:2]
        if features.is_floating_point():
            packing, rows = pack(features[..., -1] > 0), None
            h = packing.packed(features)[:, :-1]
        else:
            packing = pack(features != PAD)
            words, rows = distinct(known(features).flatten()[packing.index], self.embedding.vocabulary)
            h = F.embedding(words, self.embedding.weight)
        preactivations = []
        for t, layer in enumerate(self.layers):
            beta = shifts[t] if shifts else None
            if beta is not None and beta.shape[:2] != (examples, T):
                raise ValueError(
                    f"the shifts are for sentences of {beta.shape[1]} steps, these have {T}: describe and predict with "
                    f"windows of the same size"
                )
            h, c = layer(h, packing, beta, self.shift_rule, None if t else rows)
            preactivations.append(c)
        a = self.output(h[packing.last])
        return BaseOutput(shifted_logits(a, shifts[-1] if shifts else None), (*preactivations, a))


class LSTMKey(nn.Module):
    """A plain LSTM over the sentence. The key is a projection of its state after the last word that it reads."""

    def __init__(
        self,
        vocabulary: int,
        *,
        size: int = 64,
        embedding: int = 100,
        units: int = 300,
        layers: int = 1,
        embedding_dropout: float = 0.0,
        until: Until = "end",
    ) -> None:
        super().__init__()
        self.encoder = SentenceEncoder(
            vocabulary, embedding=embedding, units=units, layers=layers, dropout=embedding_dropout, until=until
        )
        self.output = nn.Linear(units, size)
        he_initialise([self.output])

    def forward(self, x: Tensor) -> Tensor:
        """(examples, T) -> (examples, d)."""
        return self.output(self.encoder(x))


@dataclass(frozen=True)
class SentenceNetworkOptions(NetworkOptions):
    """The options that all networks for sentences share.

    units: units of every LSTM layer.
    layers: layers of the LSTM, also in a key function of the same shape.
    embedding: numbers in a word embedding.
    embedding_dropout: dropout rate on the word embeddings.
    until: how far a sentence is read: to its "end" or its "blank".
    """

    reads: ClassVar[Kind] = "sentences"
    default_key: ClassVar[str] = "neighbours"
    key_class: ClassVar[type[Any]] = LSTMKey
    units: int = 300
    layers: int = 1
    embedding: int = 100
    embedding_dropout: float = 0.0
    until: Until = "end"

    def input_of(self, spec: InputSpec) -> int:
        """The number of words."""
        return vocabulary_size(spec, f"network {self.name}")


@dataclass(frozen=True)
class LSTMOptions(SentenceNetworkOptions):
    """The networks of adaLSTM.

    units: units of every LSTM layer.
    layers: layers of the LSTM, also in a key function of the same shape.
    embedding: numbers in a word embedding.
    embedding_dropout: dropout rate on the word embeddings.
    until: how far a sentence is read: to its "end" or its "blank".
    align: which steps of two sentences correspond.
    """

    name: ClassVar[str] = "lstm"
    base_class: ClassVar[type[Any]] = LSTM
    base_only: ClassVar[tuple[str, ...]] = ("align",)
    align: Alignment = "blank"
