"""LSTM + adaFFN (section 4.2): a plain LSTM reads the sentence, a feed-forward network with CSNs adapts to the task."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor

from csn.core.base_learner import BaseLearner, BaseOutput, Shifts
from csn.core.neurons import ShiftRule
from csn.learner import InputSpec
from csn.networks.ffn import FFN
from csn.networks.lstm import SentenceNetworkOptions
from csn.networks.sentences import SentenceEncoder, Until, check_sentences


class EncodedFFN(BaseLearner):
    """An encoder that no task adapts, and an FFN in which every layer is adapted. Both are trained jointly.

    Args:
        vocabulary: The number of words.
        way: The number of outputs C.
        embedding: Numbers in a word embedding.
        units: Units of the encoder and of the FFN.
        layers: Layers of the encoder. The FFN has three.
        embedding_dropout: The dropout rate on the word embeddings.
        dropout: The dropout rate on every layer of the FFN (appendix A).
        until: How far the encoder reads a sentence (`read_until`).
        shift_rule: How shifts are added (`csn.core.neurons`).
    """

    ffn_layers = 3

    def __init__(
        self,
        vocabulary: int,
        way: int,
        *,
        embedding: int = 100,
        units: int = 300,
        layers: int = 2,
        embedding_dropout: float = 0.0,
        dropout: float = 0.2,
        until: Until = "end",
        shift_rule: ShiftRule = "squashed",
    ) -> None:
        super().__init__()
        self.encoder = SentenceEncoder(
            vocabulary, embedding=embedding, units=units, layers=layers, dropout=embedding_dropout, until=until
        )
        self.ffn = FFN(units, way, units=units, layers=self.ffn_layers, dropout=dropout, shift_rule=shift_rule)
        self.input_spec = InputSpec((0,), vocabulary)
        self.way, self.activations, self.shift_rule = way, self.ffn.activations, shift_rule

    def check_input(self, x: Tensor) -> None:
        """Sentences of the vocabulary."""
        check_sentences(x, self.encoder.embedding.vocabulary)

    def stem(self, x: Tensor) -> Tensor:
        """(examples, T) ids -> (examples, units): the encoder's state after the last word it reads."""
        return self.encoder(x)

    def head(self, features: Tensor, shifts: Shifts | None = None) -> BaseOutput:
        """Eq. 1 in every layer of the FFN."""
        return self.ffn.head(features, shifts)


@dataclass(frozen=True)
class EncodedFFNOptions(SentenceNetworkOptions):
    """The networks of LSTM + adaFFN.

    units: units of the encoder and of the FFN.
    layers: layers of the encoder; the FFN has three.
    embedding: numbers in a word embedding.
    embedding_dropout: dropout rate on the word embeddings.
    until: how far the encoder reads a sentence: to its "end" or its "blank".
    dropout: dropout rate on the input of every layer of the FFN.
    """

    name: ClassVar[str] = "lstm-ffn"
    base_class: ClassVar[type[Any]] = EncodedFFN
    base_only: ClassVar[tuple[str, ...]] = ("dropout",)
    layers: int = 2
    dropout: float = 0.0
