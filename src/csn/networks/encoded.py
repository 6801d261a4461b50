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
    """The encoder is the stem and knows nothing of the task; all layers of the FFN are adapted. Trained jointly.

    layers: of the encoder; the FFN has three. embedding_dropout: on the word embeddings; dropout: on every layer of the
    FFN (appendix A). until: how far the encoder reads a sentence.
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

    units: of the encoder and of the FFN.
    layers: of the encoder; the FFN has three.
    embedding: numbers in a word embedding.
    embedding_dropout: rate on single numbers of the embeddings.
    until: how far the encoder reads a sentence.
    dropout: rate on the inputs of every layer of the FFN.
    """

    name: ClassVar[str] = "lstm-ffn"
    base_class: ClassVar[type[Any]] = EncodedFFN
    base_only: ClassVar[tuple[str, ...]] = ("dropout",)
    layers: int = 2
    dropout: float = 0.0
