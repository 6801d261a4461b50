"""Section 2.5: an LSTM with conditionally shifted neurons, h_t = (tanh(c_t) + tanh(beta_t)) * o_t."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn, tensor
from torch.testing import assert_close

from csn.core.conditioning import DirectFeedback, ErrorGradient
from csn.core.memory import MemoryFunction
from csn.core.model import CSN
from csn.core.neurons import SHIFT_RULES, TANH, ShiftRule, shifted_activation
from csn.episode import Episode, Examples
from csn.networks.encoded import EncodedFFN
from csn.networks.lstm import LSTM, LSTMLayer
from csn.networks.neighbours import NeighbourKey
from csn.networks.packing import distinct, pack
from csn.networks.recurrence import lstm_layer
from csn.networks.sentences import SentenceEncoder, aligned, read_until

EXACT = {"rtol": 0, "atol": 1e-10}
VOCABULARY, WAY = 12, 3
SENTENCES = tensor([[0, 0, 5, 1, 6, 7, 8], [4, 5, 9, 1, 0, 0, 0], [0, 0, 0, 1, 0, 0, 0], [3, 4, 5, 1, 6, 7, 8]])

SHARED = tensor([[0, 5, 1, 6, 5], [5, 5, 1, 6, 0], [6, 5, 1, 5, 6]])  # words that repeat are looked up once
FULL = tensor([[5, 6, 1, 7], [4, 8, 1, 3], [9, 6, 1, 7], [3, 4, 1, 5]])  # without PAD, states need no copy


def sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x))


def small(layers: int = 1, rule: ShiftRule = "squashed") -> LSTM:
    base = LSTM(VOCABULARY, WAY, embedding=3, units=4, layers=layers, shift_rule=rule)
    nn.init.normal_(base.output.weight)  # it starts at 0, which would hide what is below
    return base


def small_encoded() -> EncodedFFN:
    base = EncodedFFN(VOCABULARY, WAY, embedding=3, units=4).eval()
    nn.init.normal_(base.ffn.output.weight)
    return base


def some_shifts(base: LSTM, x: Tensor) -> tuple[Tensor, ...]:
    units = base.output.in_features
    hidden = [torch.randn(*x.shape, units) for _ in base.layers]
    return (*hidden, torch.randn(len(x), base.way))


def plain_layer(
    x: Tensor, layer: LSTMLayer, real: Tensor, beta: Tensor | None, rule: ShiftRule, nudge: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """The equations of section 2.5, word by word: x (examples, T, inputs) -> h and c (examples, T, H), h at the end.

    nudge (examples, T, H) is added to c_t as soon as it is computed.
    """
    H = layer.recurrent_weight.shape[1]
    W_o, W_i, W_f, W_v = torch.cat([layer.input_weight, layer.recurrent_weight], 1).split(H)
    b_o, b_i, b_f, b_v = layer.bias.split(H)
    outputs, cells, ends = [], [], []
    for e in range(len(x)):
        h, c = x.new_zeros(H), x.new_zeros(H)
        for t in range(x.shape[1]):
            if real[e, t]:
                xh = torch.cat([x[e, t], h])
                i, f, o = (W_i @ xh + b_i).sigmoid(), (W_f @ xh + b_f).sigmoid(), (W_o @ xh + b_o).sigmoid()
                c = torch.tanh(W_v @ xh + b_v) * i + c * f
                if nudge is not None:
                    c = c + nudge[e, t]
                h = shifted_activation(c, None if beta is None else beta[e, t], TANH, rule) * o
            outputs.append(h)
            cells.append(c)
        ends.append(h)
    shape = (*x.shape[:2], H)
    return torch.stack(outputs).view(shape), torch.stack(cells).view(shape), torch.stack(ends)


def plain_logits(
    base: LSTM, x: Tensor, shifts: tuple[Tensor, ...] | None, nudges: list[Tensor] | None = None
) -> tuple[Tensor, list[Tensor]]:
    h, cells, real = F.embedding(x, base.embedding.weight), [], x != 0
    for t, layer in enumerate(base.layers):
        beta = None if shifts is None else shifts[t]
        h, c, end = plain_layer(h, layer, real, beta, base.shift_rule, None if nudges is None else nudges[t])
        cells.append(c)
    logits = end @ base.output.weight.T + base.output.bias
    return (logits if shifts is None else logits + shifts[-1]), cells


@pytest.mark.parametrize("rule", SHIFT_RULES)
def test_two_steps_of_one_unit_by_hand(float64, rule):
    # gates o, i, f, v; one input, one unit
    W, U, b = (
        tensor([[0.5], [1.0], [-1.0], [2.0]]),
        tensor([[0.1], [0.2], [0.3], [-0.4]]),
        tensor([0.0, 0.1, 1.0, -0.2]),
    )
    beta1, beta2 = 0.7, -0.3
    packing = pack(tensor([[True, True]]))
    h, c = lstm_layer(tensor([[1.0], [-2.0]]), W, U, b, packing, tensor([[[beta1], [beta2]]]), rule)

    def activation(c: float, beta: float) -> float:
        return {
            "squashed": math.tanh(c) + math.tanh(beta),
            "raw": math.tanh(c) + beta,
            "inside": math.tanh(c + beta),
        }[rule]

    c1 = math.tanh(2.0 - 0.2) * sigmoid(1.0 + 0.1)
    h1 = activation(c1, beta1) * sigmoid(0.5)
    c2 = math.tanh(-4 - 0.4 * h1 - 0.2) * sigmoid(-2 + 0.2 * h1 + 0.1) + c1 * sigmoid(2 + 0.3 * h1 + 1)
    h2 = activation(c2, beta2) * sigmoid(-1 + 0.1 * h1)
    assert_close(h, tensor([[h1], [h2]]))
    assert_close(c, tensor([[[c1], [c2]]]))


@pytest.mark.parametrize("rule", SHIFT_RULES)
@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("shifted", [False, True])
@pytest.mark.parametrize("x", [SENTENCES, SHARED, FULL], ids=["padded", "shared", "full"])
def test_values_and_gradients_equal_the_equations(float64, x, layers, rule, shifted):
    torch.manual_seed(0)
    base = small(layers, rule)
    shifts = tuple(s.requires_grad_() for s in some_shifts(base, x)) if shifted else None
    output = base(x, shifts)
    logits, cells = plain_logits(base, x, shifts)
    assert_close(output.logits, logits, **EXACT)
    for found, expected in zip(output.preactivations, cells, strict=False):
        assert_close(found, expected, **EXACT)

    weight = torch.randn_like(logits)
    leaves = [*base.parameters(), *(shifts or ())]
    found, expected = (torch.autograd.grad((v * weight).sum(), leaves) for v in (output.logits, logits))
    for a, b in zip(found, expected, strict=True):
        assert_close(a, b, **EXACT)


@pytest.mark.parametrize("rule", SHIFT_RULES)
def test_numerical_gradients_of_a_layer(float64, rule):
    torch.manual_seed(0)
    packing = pack(SENTENCES[:2] != 0)
    inputs = [torch.randn(*s, requires_grad=True) for s in ((9, 2), (12, 2), (12, 3), (12,), (2, 7, 3))]

    def outputs(x: Tensor, W: Tensor, U: Tensor, b: Tensor, beta: Tensor) -> Tensor:
        return lstm_layer(x, W, U, b, packing, beta, rule)[0]

    assert torch.autograd.gradcheck(outputs, inputs)
    assert torch.autograd.gradcheck(lambda *x: lstm_layer(*x, packing)[0], inputs[:4])


@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("x", [SENTENCES, FULL], ids=["padded", "full"])
def test_eq5_is_the_total_derivative_with_respect_to_every_cell(float64, x, layers):
    """Finite differences: a small change of c_t at one step affects every later step and layer."""
    torch.manual_seed(0)
    base, labels = small(layers), tensor([[0, 2], [1, 2]])
    *infos, _ = ErrorGradient(p=None)(base(x), labels, base.activations, WAY)
    zeros = [torch.zeros(*x.shape, 4) for _ in range(layers)]
    step = 1e-5
    for t, info in enumerate(infos):
        found = info.dense().reshape(*x.shape, 4)
        expected = torch.zeros_like(found)
        for place in range(x.shape[1]):
            for unit in range(4):
                loss = []
                for sign in (1, -1):
                    nudges = [z.clone() for z in zeros]
                    nudges[t][:, place, unit] = sign * step  # examples are independent of each other
                    logits, _ = plain_logits(base, x, None, nudges)
                    loss.append(F.cross_entropy(logits, labels.flatten(), reduction="none"))
                expected[:, place, unit] = (loss[0] - loss[1]).detach() / (2 * step)
        assert_close(found, expected, rtol=0, atol=1e-8)
        assert (found[x == 0] == 0).all()
        assert (found[x != 0] != 0).all()


def test_cells_at_pad_are_the_state_carried_along(float64):
    base = small()
    c = base(SENTENCES).preactivations[0]
    assert (c[0, :2] == 0).all()
    assert (c[1, 4:] == c[1, 3]).all()


@pytest.mark.parametrize("build", [lambda: small(2), small_encoded])
def test_more_padding_changes_nothing(float64, build):
    torch.manual_seed(0)
    base = build()
    wider = F.pad(SENTENCES, (2, 3))
    assert_close(base(wider).logits, base(SENTENCES).logits, **EXACT)
    if isinstance(base, LSTM):
        shifts = some_shifts(base, SENTENCES)
        padded = tuple(F.pad(s, (0, 0, 2, 3), value=0.9) for s in shifts[:-1])
        assert_close(base(wider, (*padded, shifts[-1])).logits, base(SENTENCES, shifts).logits, **EXACT)


@pytest.mark.parametrize("conditioning", [ErrorGradient(), DirectFeedback()], ids=["gradient", "df"])
def test_more_padding_changes_no_episode(float64, conditioning):
    torch.manual_seed(0)
    model = ada_lstm(conditioning)
    nn.init.normal_(model.base.output.weight)
    x, y = SENTENCES[None], tensor([[0, 1, 2, 2]])
    narrow = model(Episode(Examples(x, y), Examples(x, y), WAY)).logits
    wide = F.pad(x, (2, 3))
    assert_close(model(Episode(Examples(wide, y), Examples(wide, y), WAY)).logits, narrow, **EXACT)


def test_an_unshifted_layer_is_torchs_lstm(float64):
    torch.manual_seed(0)
    base = small(2)
    reference = nn.LSTM(3, 4, 2, batch_first=True)
    for t, layer in enumerate(base.layers):
        for name, ours in (("weight_ih", layer.input_weight), ("weight_hh", layer.recurrent_weight)):
            o, i, f, v = ours.detach().split(4)
            getattr(reference, f"{name}_l{t}").data = torch.cat([i, f, v, o])
        o, i, f, v = layer.bias.detach().split(4)
        getattr(reference, f"bias_ih_l{t}").data = torch.cat([i, f, v, o])
        getattr(reference, f"bias_hh_l{t}").data.zero_()
    x = torch.randint(1, VOCABULARY, (5, 6))
    _, (h, _) = reference(base.embedding(x))
    assert_close(base(x).logits, base.output(h[-1]), **EXACT)


def test_distinct_words_are_found_where_half_of_them_repeat():
    words, rows = distinct(tensor([5, 1, 5, 6, 6, 1, 5]), VOCABULARY)
    assert words.tolist() == [1, 5, 6]
    assert rows is not None
    assert rows.tolist() == [1, 0, 1, 2, 2, 0, 1]
    for ids, vocabulary in ((tensor([5, 1, 5, 6]), VOCABULARY), (tensor([5, 5]), 1000)):
        words, rows = distinct(ids, vocabulary)
        assert words is ids
        assert rows is None


def test_dropout_embeds_every_word_by_itself(float64):
    torch.manual_seed(0)
    base = LSTM(VOCABULARY, WAY, embedding=3, units=4, embedding_dropout=0.5)
    assert base.stem(SHARED).shape == (3, 5, 4)
    base.eval()
    assert torch.equal(base.stem(SHARED), SHARED)
    assert_close(base(SHARED).logits, base.head(base.embedded(SHARED)).logits, **EXACT)


def test_encoder_state_is_that_after_the_last_word(float64):
    torch.manual_seed(0)
    encoder = SentenceEncoder(VOCABULARY, embedding=3, units=4, layers=2)
    for found, sentence in zip(encoder(SENTENCES), SENTENCES, strict=True):
        _, (h, _) = encoder.lstm(encoder.embedding(sentence[sentence != 0])[None])
        assert_close(found, h[-1, 0], **EXACT)


def test_a_sentence_read_until_its_blank_ends_there(float64):
    torch.manual_seed(0)
    assert read_until(SENTENCES, "end") is SENTENCES
    cut = read_until(SENTENCES, "blank")
    assert [[word for word in row if word] for row in cut.tolist()] == [[5, 1], [4, 5, 9, 1], [1], [3, 4, 5, 1]]
    assert_close(cut[cut != 0], SENTENCES[cut != 0])  # no word has moved
    with pytest.raises(ValueError, match="to their end or to their blank, got 'middle'"):
        read_until(SENTENCES, "middle")
    for network, reads in (
        (small(2), lambda until: LSTM(VOCABULARY, WAY, embedding=3, units=4, layers=2, until=until)),
        (small_encoded(), lambda until: EncodedFFN(VOCABULARY, WAY, embedding=3, units=4, until=until).eval()),
    ):
        whole, up_to_blank = reads("end"), reads("blank")
        for other in (whole, up_to_blank):
            other.load_state_dict(network.state_dict())
        assert_close(up_to_blank(SENTENCES).logits, network(cut).logits, **EXACT)
        assert_close(whole(SENTENCES).logits, network(SENTENCES).logits, **EXACT)
        assert not torch.allclose(network(cut).logits[0], network(SENTENCES).logits[0])


def test_shapes_of_neurons():
    output = small(2)(SENTENCES)
    assert [tuple(a.shape) for a in output.preactivations] == [(4, 7, 4), (4, 7, 4), (4, 3)]
    with torch.no_grad():
        assert not small()(SENTENCES).logits.requires_grad


@pytest.mark.parametrize(
    ("x", "message"),
    [
        (tensor([[0, 0, 0]]), "has no word"),
        (tensor([[0, 1, VOCABULARY]]), "another vocabulary"),
        (torch.rand(2, 3), "int64 word ids"),
    ],
)
def test_bad_sentences_are_refused(x, message):
    for network in (small(), small_encoded()):
        with pytest.raises(ValueError, match=message):
            network(x)


def test_windows_of_another_size_are_refused():
    base = small()
    with pytest.raises(ValueError, match="windows of the same size"):
        base(SENTENCES, some_shifts(base, F.pad(SENTENCES, (1, 1))))


def test_alignments_move_words_to_the_blank_the_start_or_the_end():
    assert aligned(SENTENCES, "blank") is SENTENCES
    assert aligned(SENTENCES, "start").tolist() == [
        [5, 1, 6, 7, 8, 0, 0],
        [4, 5, 9, 1, 0, 0, 0],
        [1, 0, 0, 0, 0, 0, 0],
        [3, 4, 5, 1, 6, 7, 8],
    ]
    assert aligned(SENTENCES, "end").tolist() == [
        [0, 0, 5, 1, 6, 7, 8],
        [0, 0, 0, 4, 5, 9, 1],
        [0, 0, 0, 0, 0, 0, 1],
        [3, 4, 5, 1, 6, 7, 8],
    ]
    with pytest.raises(ValueError, match="blank, start, end, got 'middle'"):
        aligned(SENTENCES, "middle")


@pytest.mark.parametrize("align", ["start", "end"])
def test_alignment_decides_which_steps_shift_each_other_and_nothing_else(float64, align):
    torch.manual_seed(0)
    as_given = small(2)
    moved = LSTM(VOCABULARY, WAY, embedding=3, units=4, layers=2, align=align)
    moved.load_state_dict(as_given.state_dict())
    assert_close(
        moved(SENTENCES).logits, as_given(SENTENCES).logits, **EXACT
    )  # without shifts, where words lie is all one
    shifts = some_shifts(as_given, SENTENCES)
    assert_close(moved(SENTENCES, shifts).logits, as_given(aligned(SENTENCES, align), shifts).logits, **EXACT)
    assert not torch.allclose(moved(SENTENCES, shifts).logits, as_given(SENTENCES, shifts).logits)


def ada_lstm(conditioning: ErrorGradient | DirectFeedback, rule: ShiftRule = "squashed", layers: int = 1) -> CSN:
    base = LSTM(VOCABULARY, WAY, embedding=8, units=8, layers=layers, shift_rule=rule)
    key = NeighbourKey(VOCABULARY, embedding=8, units=16)
    return CSN(base, key, MemoryFunction(conditioning.size(WAY)), conditioning, temperature=10.0)


@pytest.mark.parametrize(("layers", "rule"), [*((1, rule) for rule in SHIFT_RULES), (2, "squashed")])
@pytest.mark.parametrize("conditioning", [ErrorGradient(), DirectFeedback()], ids=["gradient", "df"])
def test_learns_which_sentence_is_which(conditioning, rule, layers):
    """Sentences of a task differ in the word before the blank. Every task assigns new labels."""
    torch.manual_seed(0)
    model = ada_lstm(conditioning, rule, layers)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    accuracy = 0.0
    for _ in range(80):
        words = torch.rand(8, VOCABULARY - 3).argsort(1)[:, :WAY] + 3  # (b, C) a word for every class
        y = torch.stack([torch.randperm(WAY) for _ in range(8)])

        def sentences(words: Tensor = words, y: Tensor = y) -> Examples:
            x = torch.randint(3, VOCABULARY, (8, WAY, 5))
            x[..., 1], x[..., 2] = words.gather(1, y), 1
            x[:, ::2, 0] = 0
            return Examples(x, y)

        output = model(Episode(sentences(), sentences(), WAY))
        optimizer.zero_grad()
        output.loss.backward()
        optimizer.step()
        accuracy = 0.9 * accuracy + 0.1 * float((output.logits.argmax(-1) == y).double().mean())
    assert accuracy > 0.55, accuracy  # chance is 0.33
