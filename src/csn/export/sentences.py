"""adaLSTM in a form that can be traced: all sentences have the same number of steps; steps without words are masked.

The original network packs its words and therefore depends on the lengths of the sentences. Here every sentence has T
steps. At a step without a word (PAD), the state does not change. `T` steps, `H` units of a layer.
"""

from __future__ import annotations

import copy

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from csn.core.base_learner import BaseLearner, BaseOutput, Shifts
from csn.core.model import CSN
from csn.core.neurons import TANH, shifted_activation, shifted_logits
from csn.networks.lstm import LSTM, LSTMKey, LSTMLayer
from csn.networks.neighbours import NeighbourKey
from csn.networks.sentences import PAD, SentenceEncoder, read_until


def padded(learner: CSN) -> CSN:
    """The same learner with the same weights, in a form that can be traced. The original does not change."""
    base, key = learner.base, learner.key_function
    if not isinstance(base, LSTM):
        raise ValueError(f"among networks for sentences, only lstm can be exported, not {type(base).__name__}")
    if base.align != "blank":
        raise ValueError(f"graphs align sentences at the blank, this run has network.align={base.align}")
    if not isinstance(key, NeighbourKey | LSTMKey):
        raise ValueError(f"{type(key).__name__} cannot be exported: train with key.name=neighbours, context or network")
    twin = copy.copy(learner)
    twin._modules = dict(learner._modules)
    twin.base = PaddedLSTM(base, differentiates=learner.conditioning.needs_graph)
    twin.key_function = PaddedKey(key)
    return twin


class PaddedLSTM(BaseLearner):
    """The base learner of adaLSTM, step by step.

    Args:
        base: The network whose weights are used.
        differentiates: Whether to return, in place of each c_t, a 0 that is added to it. The gradient of that 0 is the
            total derivative with respect to c_t, as eq. 5 needs it. It is 0 at PAD.
    """

    def __init__(self, base: LSTM, *, differentiates: bool) -> None:
        super().__init__()
        self.network, self.differentiates = base, differentiates
        self.way, self.activations, self.input_spec = base.way, base.activations, base.input_spec

    def check_input(self, x: Tensor) -> None:
        """Check nothing: a graph cannot raise errors."""

    def stem(self, x: Tensor) -> Tensor:
        """(examples, T) ids -> (examples, T, embedding + 1): the last column is 1 at words and 0 at PAD."""
        return self.network.embedded(read_until(x, self.network.until))

    def head(self, features: Tensor, shifts: Shifts | None = None) -> BaseOutput:
        """Section 2.5 in every layer, and eq. 1, t = T."""
        words, inputs = features[..., -1] > 0, features[..., :-1].unbind(1)
        preactivations = []
        last = inputs[0]
        for t, layer in enumerate(self.network.layers):
            assert isinstance(layer, LSTMLayer)
            beta = shifts[t] if shifts else None
            zero = features.new_zeros(*words.shape, layer.recurrent_weight.shape[1])
            if self.differentiates and shifts is None:
                zero.requires_grad_()
            inputs, cells, last = self._layer(layer, inputs, words, zero, beta)
            preactivations.append(zero if self.differentiates and shifts is None else cells)
        a = self.network.output(last)
        return BaseOutput(shifted_logits(a, shifts[-1] if shifts else None), (*preactivations, a))

    def _layer(
        self, layer: LSTMLayer, inputs: tuple[Tensor, ...], words: Tensor, zero: Tensor, beta: Tensor | None
    ) -> tuple[tuple[Tensor, ...], Tensor, Tensor]:
        """h of every step, c (examples, T, H), and h after the last word."""
        h = c = zero[:, 0] * 0
        outputs, cells = [], []
        for t, x in enumerate(inputs):
            z = F.linear(x, layer.input_weight, layer.bias) + F.linear(h, layer.recurrent_weight)
            o, i, f, v = z.chunk(4, dim=-1)
            state = v.tanh() * i.sigmoid() + c * f.sigmoid() + zero[:, t]
            shift = None if beta is None else beta[:, t]
            active = shifted_activation(state, shift, TANH, self.network.shift_rule) * o.sigmoid()
            word = words[:, t, None]
            h, c = torch.where(word, active, h), torch.where(word, state, c)
            outputs.append(h)
            cells.append(c)
        return tuple(outputs), torch.stack(cells, dim=1), h


class PaddedKey(nn.Module):
    """A key function for sentences, without checks and without packing."""

    def __init__(self, key: NeighbourKey | LSTMKey) -> None:
        super().__init__()
        self.key = key

    def forward(self, x: Tensor) -> Tensor:
        """(examples, T) -> (examples, d)."""
        if isinstance(self.key, NeighbourKey):
            return self.key.unchecked(x)
        out: Tensor = self.key.output(_encoded(self.key.encoder, x))
        return out


def _encoded(encoder: SentenceEncoder, x: Tensor) -> Tensor:
    """A plain LSTM's state after the last word of each sentence: (examples, T) -> (examples, units)."""
    x = read_until(x, encoder.until)
    words, inputs, lstm = x != PAD, encoder.embedding(x).unbind(1), encoder.lstm
    h = inputs[0]
    for layer in range(lstm.num_layers):
        weight, recurrent, bias, bias_h = (
            getattr(lstm, f"{name}_l{layer}") for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
        )
        h = c = inputs[0].new_zeros(x.shape[0], lstm.hidden_size)
        outputs = []
        for t, given in enumerate(inputs):
            i, f, g, o = (F.linear(given, weight, bias) + F.linear(h, recurrent, bias_h)).chunk(4, dim=-1)
            state = f.sigmoid() * c + i.sigmoid() * g.tanh()
            word = words[:, t, None]
            h = torch.where(word, o.sigmoid() * state.tanh(), h)
            c = torch.where(word, state, c)
            outputs.append(h)
        inputs = tuple(outputs)
    return h
