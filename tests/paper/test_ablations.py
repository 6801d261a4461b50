"""Section 4.3: the ablations are options of the same model."""

from __future__ import annotations

import pytest
import torch
from torch import tensor
from torch.testing import assert_close

from csn import building
from csn.core.conditioning import DirectFeedback, ErrorGradient
from csn.core.model import CSN
from csn.core.neurons import SHIFTED_LAYERS, shifted_layers
from csn.core.parts import NetworkKey, NetworkOptions
from csn.episode import Episode, Examples
from csn.learner import InputSpec
from csn.networks.cnn import CNNOptions
from csn.networks.encoded import EncodedFFNOptions
from csn.networks.ffn import FFNOptions
from csn.networks.lstm import LSTMOptions
from csn.networks.neighbours import NeighbourKeyOptions

VOCABULARY = 12
# base learner -> what it reads, and options that make it small
NETWORKS: dict[str, tuple[InputSpec, NetworkOptions]] = {
    "ffn": (InputSpec((4,)), FFNOptions(units=6)),
    "cnn": (InputSpec((1, 12, 12)), CNNOptions(filters=4)),
    "lstm": (InputSpec((7,), VOCABULARY), LSTMOptions(units=5, layers=2, embedding=4)),
    "lstm-ffn": (InputSpec((7,), VOCABULARY), EncodedFFNOptions(units=5, layers=1, embedding=4, dropout=0.2)),
}

pytestmark = pytest.mark.usefixtures("float64")


def build(**options: object) -> CSN:
    torch.manual_seed(0)
    model = building.build(reads=(4,), way=3, network=FFNOptions(units=6), **options).eval()
    torch.nn.init.normal_(model.base.output.weight)  # as after some training
    return model


def shapes(model: CSN) -> list[tuple[int, ...]]:
    return [tuple(parameter.shape) for parameter in model.memory_function.parameters()]


def test_gradient_without_preprocessing_times_a_learned_scalar():
    model = build(conditioning="gradient", g="simple")
    assert isinstance(model.conditioning, ErrorGradient)
    assert shapes(model) == [(1, 1)]  # lambda and nothing else
    model.memory_function.layers[0].weight.data.fill_(-3.0)
    support = Examples(torch.randn(1, 3, 4), tensor([[0, 1, 2]]))
    memory = model.describe(support)
    output = model.base(support.x[0])
    losses = -output.logits.log_softmax(-1)[torch.arange(3), support.y[0]]
    expected = torch.autograd.grad(losses.sum(), output.preactivations)
    for values, gradient in zip(memory.values, expected, strict=True):
        assert_close(values.dense()[0], -3.0 * gradient)


def test_a_scalar_starts_as_descent():
    assert build(conditioning="gradient", g="simple").memory_function.layers[0].weight.item() < 0


def test_direct_feedback_through_a_perceptron():
    model = build(conditioning="df", g="simple")
    assert isinstance(model.conditioning, DirectFeedback)
    assert shapes(model) == [(1, 3), (1,)]
    (layer,) = model.memory_function.layers
    layer.bias.data.fill_(0.7)
    support = Examples(torch.randn(1, 3, 4), tensor([[0, 1, 2]]))
    memory = model.describe(support)
    output = model.base(support.x[0])
    error = output.logits.softmax(-1) - torch.eye(3)
    w, c = layer.weight[0], 0.7
    for values, a in zip(memory.values[:-1], output.preactivations[:-1], strict=True):
        for i in range(3):
            for neuron in range(6):
                expected = c + (w @ error[i] if a[i, neuron] > 0 else 0.0)
                assert_close(values.dense()[0, i, neuron], torch.as_tensor(expected))


@pytest.mark.parametrize("conditioning", ["gradient", "df"])
def test_the_unablated_g_is_a_three_layer_perceptron(conditioning):
    size = {"gradient": 2, "df": 3}[conditioning]
    model = build(conditioning=conditioning, g_units=40)
    assert shapes(model) == [(40, size), (40,), (40, 40), (40,), (1, 40), (1,)]


@pytest.mark.parametrize("base", ["ffn", "cnn"])
def test_the_shift_rule_reaches_the_base_learner(base):
    reads, small = NETWORKS[base]
    x = torch.randn(5, *reads.shape)
    logits = {}
    for rule in ("squashed", "raw", "inside"):
        torch.manual_seed(0)
        model = building.build(reads=reads, way=3, network=small, shift_rule=rule).eval()
        torch.nn.init.normal_(model.base.output.weight)
        shifts = tuple(torch.randn_like(a) for a in model.base(x).preactivations)  # of both signs
        logits[rule] = model.base(x, shifts).logits
    assert not torch.allclose(logits["squashed"], logits["raw"])
    assert not torch.allclose(logits["squashed"], logits["inside"])
    assert not torch.allclose(logits["raw"], logits["inside"])


def inputs(base: str, examples: int) -> torch.Tensor:
    """(1, examples, *input); sentences have a blank in the middle and PAD at their ends."""
    shape = NETWORKS[base][0].shape
    if not base.startswith("lstm"):
        return torch.randn(1, examples, *shape)
    x = torch.randint(3, VOCABULARY, (1, examples, *shape))
    x[..., 3] = 1
    x[:, ::2, 0] = x[:, 1::3, 5:] = 0
    return x


def network(base: str, **options: object) -> CSN:
    torch.manual_seed(0)
    reads, small = NETWORKS[base]
    key = NeighbourKeyOptions(size=6) if base.startswith("lstm") else NetworkKey(size=6)
    model = building.build(reads=reads, way=3, network=small, key=key, **options).eval()
    output = model.base.ffn.output if base == "lstm-ffn" else model.base.output
    torch.nn.init.normal_(output.weight)  # as after some training
    torch.nn.init.ones_(model.memory_function.layers[-1].bias)  # so that no hidden ReLU(beta) is dead
    return model


def test_which_layers_are_shifted():
    assert shifted_layers("all", 3) == (True, True, True)
    assert shifted_layers("output", 3) == (False, False, True)
    assert shifted_layers("hidden", 3) == (True, True, False)
    assert shifted_layers("none", 3) == (False, False, False)
    assert shifted_layers("hidden", 1) == (False,)
    with pytest.raises(ValueError, match=r"all, output, hidden, none, got 'some'"):
        shifted_layers("some", 3)


@pytest.mark.parametrize("shifted", SHIFTED_LAYERS)
@pytest.mark.parametrize("conditioning", ["gradient", "df"])
@pytest.mark.parametrize("base", NETWORKS)
def test_shifts_reach_the_layers_asked_for_and_no_other(base, conditioning, shifted):
    """The whole model's shifts, those of the other layers replaced by None: the same logits."""
    whole, ablated = network(base, conditioning=conditioning), network(base, conditioning=conditioning, shifted=shifted)
    support, x = Examples(inputs(base, 6), tensor([[0, 1, 2, 0, 1, 2]])), inputs(base, 5)
    memory, own = whole.describe(support), ablated.describe(support)
    betas = [beta[0] for beta in memory.read(whole.attend(x, memory))]
    reached = shifted_layers(shifted, len(betas))
    expected = whole.base(x[0], tuple(beta if yes else None for beta, yes in zip(betas, reached, strict=True))).logits
    assert len(own.values) == sum(reached)
    assert_close(ablated.predict(x, own)[0], expected)
    assert_close(ablated(Episode(support, Examples(x, tensor([[0, 1, 2, 0, 1]])), 3)).logits[0], expected)
    if shifted != "all":
        assert not torch.allclose(expected, whole.predict(x, memory)[0])


def test_the_output_shift_alone_adds_what_attention_reads_to_the_logits():
    model = build(shifted="output")
    support, x = Examples(torch.randn(1, 3, 4), tensor([[0, 1, 2]])), torch.randn(1, 5, 4)
    memory = model.describe(support)
    (values,) = (layer.dense()[0] for layer in memory.values)  # (3 examples, 3 outputs)
    alpha, plain, logits = model.attend(x, memory)[0], model.base(x[0]).logits, model.predict(x, memory)[0]
    for j in range(5):
        for c in range(3):
            assert_close(logits[j, c], plain[j, c] + sum(alpha[j, i] * values[i, c] for i in range(3)))


def test_without_any_shift_the_support_says_nothing():
    model = build(shifted="none")
    x = torch.randn(1, 5, 4)
    memories = [model.describe(Examples(torch.randn(1, 3, 4), tensor([labels]))) for labels in ([0, 1, 2], [2, 0, 1])]
    assert torch.equal(model.predict(x, memories[0]), model.predict(x, memories[1]))
    assert torch.equal(model.predict(x, memories[0].extended(memories[1]))[0], model.base(x[0]).logits)


def test_hard_attention_is_an_option():
    model = build(attention="hard")
    support = Examples(torch.randn(1, 3, 4), tensor([[0, 1, 2]]))
    attention = model.attend(torch.randn(1, 5, 4), model.describe(support))
    assert attention.max(-1).values.tolist() == [[1.0] * 5]


def test_g_of_the_wrong_size_is_refused():
    parts = build(conditioning="df")
    wrong = build(conditioning="gradient").memory_function
    with pytest.raises(ValueError, match="DirectFeedback gives each neuron 3 numbers, g takes 2"):
        CSN(parts.base, parts.key_function, wrong, DirectFeedback())
