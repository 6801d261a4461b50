"""csn.graft: conditionally shifted neurons in networks of all kinds, which stay what they are."""

from __future__ import annotations

import copy
import pickle
import threading
from collections.abc import Callable, Iterator

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.testing import assert_close

from csn.classifier.classifier import FewShotClassifier
from csn.config import TrainConfig
from csn.core.base_learner import BaseLearner
from csn.core.model import CSN, CSNOptions
from csn.core.neurons import TANH
from csn.core.parts import Parts
from csn.data.images.strokes import load_strokes
from csn.data.source import EpisodeSource
from csn.engine.train import Trainer
from csn.episode import Episode, Examples
from csn.learner import InputSpec
from csn.networks.cnn import CNN, CNNKey, ConvStack, pool
from csn.networks.graft import check_separate, graft
from csn.networks.hooks import activation_of, is_elementwise

WAY = 3
IMAGE = (1, 8, 8)
EXACT = {"rtol": 0, "atol": 1e-10}


@pytest.fixture(autouse=True)
def _float64() -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    torch.manual_seed(0)
    yield
    torch.set_default_dtype(before)


def small_cnn(activation: Callable[[], nn.Module] = nn.ReLU) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1),
        activation(),
        nn.MaxPool2d(2),
        nn.Conv2d(4, 5, 3, padding=1),
        activation(),
        nn.Flatten(),
        nn.Linear(5 * 16, WAY),
    )


class Block(nn.Module):
    """As torchvision has it, with group norm and activations in place."""

    def __init__(self, filters: int) -> None:
        super().__init__()
        self.conv1, self.norm1 = nn.Conv2d(filters, filters, 3, padding=1), nn.GroupNorm(2, filters)
        self.conv2, self.norm2 = nn.Conv2d(filters, filters, 3, padding=1), nn.GroupNorm(2, filters)
        self.act1, self.act2 = nn.ReLU(inplace=True), nn.ReLU(inplace=True)

    def forward(self, x: Tensor) -> Tensor:
        h = self.act1(self.norm1(self.conv1(x)))
        return self.act2(self.norm2(self.conv2(h)) + x)


class GroupResNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(1, 4, 3, padding=1)
        self.layers = nn.Sequential(Block(4), Block(4))
        self.fc = nn.Linear(4, WAY)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(self.layers(self.first(x)).mean((2, 3)))


class ViT(nn.Module):
    """Patches, learned positions, pre-norm blocks with attention and a GELU MLP, a class token."""

    class Layer(nn.Module):
        def __init__(self, width: int) -> None:
            super().__init__()
            self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
            self.attention = nn.MultiheadAttention(width, 2, batch_first=True)
            self.mlp = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))

        def forward(self, x: Tensor) -> Tensor:
            h = self.norm1(x)
            x = x + self.attention(h, h, h, need_weights=False)[0]
            return x + self.mlp(self.norm2(x))

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.patches = nn.Conv2d(1, width, 4, stride=4)
        self.token, self.positions = nn.Parameter(torch.randn(1, 1, width)), nn.Parameter(torch.randn(1, 5, width))
        self.blocks = nn.ModuleList(ViT.Layer(width) for _ in range(2))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, WAY)

    def forward(self, x: Tensor) -> Tensor:
        h = self.patches(x).flatten(2).mT
        h = torch.cat([self.token.expand(len(h), -1, -1), h], dim=1) + self.positions
        for block in self.blocks:
            h = block(h)
        return self.head(self.norm(h)[:, 0])


class Encoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, activation=nn.GELU(), batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.fc = nn.Linear(8, WAY)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(self.encoder(x).mean(1))


class Functional(nn.Module):
    """Activations that are functions."""

    class Part(nn.Module):
        def __init__(self, inputs: int) -> None:
            super().__init__()
            self.linear = nn.Linear(inputs, 7)

        def forward(self, x: Tensor) -> Tensor:
            return F.gelu(self.linear(x), approximate="tanh")

    def __init__(self) -> None:
        super().__init__()
        self.part, self.second, self.fc = Functional.Part(6), nn.Linear(7, 5), nn.Linear(5, WAY)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(torch.relu(self.second(self.part(x)).relu()))


def bert() -> nn.Module:
    transformers = pytest.importorskip("transformers", reason="transformers is not installed", exc_type=ImportError)
    config = transformers.BertConfig(
        vocab_size=20,
        hidden_size=8,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=16,
        max_position_embeddings=8,
        num_labels=WAY,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    return transformers.BertForSequenceClassification(config)


def flat_key(inputs: int) -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(inputs, 6))


class WordKey(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words = nn.EmbeddingBag(20, 6)

    def forward(self, x: Tensor) -> Tensor:
        return self.words(x)


class Case:
    """A network, the layers to shift, its input and a key."""

    def __init__(
        self,
        build: Callable[[], nn.Module],
        layers: list[str],
        shape: tuple[int, ...],
        key: Callable[[], nn.Module],
        words: int | None = None,
    ) -> None:
        self.build, self.layers, self.shape, self.key, self.words = build, layers, shape, key, words

    def grafted(self, **options: object) -> tuple[nn.Module, CSN]:
        """The network as it was and its graft, in evaluation mode; the output layer as after some training."""
        torch.manual_seed(0)
        network = self.build().to(torch.float64).eval()
        alone = copy.deepcopy(network)
        spec = InputSpec(self.shape, self.words)
        return alone, graft(network, layers=self.layers, way=WAY, key=self.key(), reads=spec, **options).eval()

    def x(self, *lead: int) -> Tensor:
        generator = torch.Generator().manual_seed(1)
        if self.words:
            return torch.randint(self.words, (*lead, *self.shape), generator=generator)
        return torch.randn(*lead, *self.shape, generator=generator)

    def episode(self, queries: int = 5) -> Episode:
        y = torch.tensor([[0, 1, 2, 1]]).repeat(2, 1)
        asked = torch.arange(queries).remainder(WAY).repeat(2, 1)
        return Episode(Examples(self.x(2, 4), y), Examples(self.x(2, queries) * (1 if self.words else 2), asked), WAY)


CASES = {
    "sequential": Case(small_cnn, ["1", "4", "6"], IMAGE, lambda: flat_key(64)),
    "sequential-silu": Case(lambda: small_cnn(nn.SiLU), ["4", "6"], IMAGE, lambda: flat_key(64)),
    "resnet": Case(GroupResNet, ["layers.0.act2", "layers.1.act1", "layers.1.act2", "fc"], IMAGE, lambda: flat_key(64)),
    "vit": Case(ViT, ["blocks.0.mlp.1", "blocks.1.mlp.1", "head"], IMAGE, lambda: flat_key(64)),
    "encoder": Case(
        Encoder, ["encoder.layers.0.activation", "encoder.layers.1.activation", "fc"], (4, 8), lambda: flat_key(32)
    ),
    "functional": Case(Functional, ["part.gelu", "relu", "relu_1", "fc"], (6,), lambda: flat_key(6)),
    "bert": Case(
        bert,
        ["bert.encoder.layer.*.intermediate.intermediate_act_fn", "bert.pooler.activation", "classifier"],
        (5,),
        WordKey,
        words=20,
    ),
}


@pytest.fixture(params=CASES, ids=list(CASES))
def case(request: pytest.FixtureRequest) -> Case:
    return CASES[request.param]


def logits_of(output: object) -> Tensor:
    return output if isinstance(output, Tensor) else output.logits  # type: ignore[attr-defined]


@pytest.mark.parametrize("mode", [True, False], ids=["training", "evaluation"])
def test_without_shifts_the_network_answers_as_before_to_the_bit(case, mode):
    """In evaluation nn.TransformerEncoder takes a fused path where nothing hooks it: compare with gradients on."""
    network, learner = case.grafted()
    network.train(mode), learner.train(mode)
    x = case.x(5)
    expected = logits_of(network(x))
    assert torch.equal(logits_of(learner.base.network(x)), expected)
    assert torch.equal(learner.base(x).logits, expected)


def test_the_network_itself_keeps_its_parameters_and_mode(case):
    network, learner = case.grafted()
    state = learner.base.network.state_dict()
    assert state.keys() == network.state_dict().keys()
    assert all(torch.equal(value, state[name]) for name, value in network.state_dict().items())


@pytest.mark.parametrize("conditioning", ["df", "gradient"])
def test_queries_alone_equal_queries_together(case, conditioning):
    _, learner = case.grafted(conditioning=conditioning, temperature=10.0)
    episode = case.episode()
    task = learner.describe(episode.support)
    together = learner.predict(episode.query.x, task)
    alone = torch.cat([learner.predict(x, task) for x in episode.query.x.split(1, dim=1)], dim=1)
    assert_close(alone, together, **EXACT)
    assert_close(learner(episode).logits, together, **EXACT)


@pytest.mark.parametrize("conditioning", ["df", "gradient"])
def test_every_layer_is_described_and_shifted(case, conditioning):
    _, learner = case.grafted(conditioning=conditioning)
    memory = learner.describe(case.episode().support)
    plain = learner.base(case.x(5))
    assert len(memory.values) == len(plain.preactivations) == len(learner.base.layers)
    for t, a in enumerate(plain.preactivations):
        shifts = tuple(torch.ones_like(a) if s == t else None for s in range(len(plain.preactivations)))
        assert not torch.allclose(learner.base(case.x(5), shifts).logits, plain.logits)
        assert (memory.values[t].dense() != 0).any()


@pytest.mark.parametrize("conditioning", ["df", "gradient"])
def test_training_reaches_the_network_the_key_and_g(case, conditioning):
    _, learner = case.grafted(conditioning=conditioning, temperature=10.0)
    learner.train()
    learner(case.episode()).loss.backward()
    unused = [name for name, parameter in learner.named_parameters() if parameter.grad is None]
    assert unused == []
    for part in (learner.base, learner.key_function, learner.memory_function):
        assert any((parameter.grad != 0).any() for parameter in part.parameters())


@pytest.mark.parametrize("conditioning", ["df", "gradient"])
def test_a_frozen_network_trains_only_f_g_and_the_head(case, conditioning):
    torch.manual_seed(0)
    network = case.build().to(torch.float64).requires_grad_(False)
    output = network.get_submodule(case.layers[-1]).requires_grad_(True)
    learner = graft(network, layers=case.layers, way=WAY, key=case.key(), conditioning=conditioning)
    learner(case.episode()).loss.backward()
    reached = {name for name, parameter in learner.named_parameters() if parameter.grad is not None}
    head = {f"base.network.{case.layers[-1]}.{name}" for name, _ in output.named_parameters()}
    others = {name for name, _ in learner.named_parameters() if not name.startswith("base.")}
    assert reached == head | others


def test_eq_5_is_the_gradient_of_each_examples_own_loss(case):
    """By the slow way: one example at a time, and its own loss."""
    _, learner = case.grafted(conditioning="gradient")
    x, y = case.x(4), torch.tensor([0, 1, 2, 1])
    output = learner.base.head(learner.base.stem(x).requires_grad_(not case.words))
    infos = learner.conditioning(output, y[None], learner.base.activations, WAY)
    for i in range(4):
        own = learner.base(x[i : i + 1])
        gradients = torch.autograd.grad(F.cross_entropy(own.logits, y[i : i + 1]), own.preactivations)
        for info, gradient in zip(infos, gradients, strict=True):
            assert_close(info.gradient[0, i], gradient[0], rtol=1e-8, atol=1e-12)


def test_eq_1_by_hand():
    """w1 = 2, w2 = 3: x = 1 gives a1 = 2; with shifts -1 and 0.5 ReLU adds 0, with 4 it adds 4."""
    network = nn.Sequential(nn.Linear(1, 1, bias=False), nn.ReLU(), nn.Linear(1, 2, bias=False))
    with torch.no_grad():
        network[0].weight.fill_(2.0)
        network[2].weight.copy_(torch.tensor([[3.0], [-1.0]]))
    base = graft(network, layers=["1", "2"], way=2, key=flat_key(1)).base
    x = torch.tensor([[1.0], [-1.0]])
    plain = base(x)
    assert_close(plain.preactivations[0], torch.tensor([[2.0], [-2.0]]))
    assert_close(plain.logits, torch.tensor([[6.0, -2.0], [0.0, 0.0]]))
    shifted = base(x, (torch.tensor([[-1.0], [4.0]]), torch.tensor([[0.5, 0.0], [0.0, 1.0]])))
    assert_close(shifted.logits, torch.tensor([[6.5, -2.0], [12.0, -3.0]]))


@pytest.mark.parametrize(("rule", "expected"), [("squashed", 3.0 + 2.0), ("raw", 3.0 + 2.0), ("inside", 5.0)])
def test_the_ablations_of_eq_1_by_hand(rule, expected):
    """a = 3, beta = 2; at a = -3, beta = 2: squashed and raw give 0 + 2, inside relu(-1) = 0."""
    network = nn.Sequential(nn.ReLU(inplace=True), nn.Linear(1, 2, bias=False))
    with torch.no_grad():
        network[1].weight.fill_(1.0)
    base = graft(network, layers=["0", "1"], way=2, key=flat_key(1), shift_rule=rule).base
    x = torch.tensor([[3.0], [-3.0]])
    logits = base(x, (torch.tensor([[2.0], [2.0]]), None)).logits
    assert_close(logits[:, 0], torch.tensor([expected, 0.0 if rule == "inside" else 2.0]))
    assert_close(x, torch.tensor([[3.0], [-3.0]]))  # an activation in place changes nothing of anybody else


def test_sigma_prime_by_autograd_equals_the_formula():
    a = torch.linspace(-2, 2, 9)
    silu = activation_of("act", nn.SiLU())
    s = torch.sigmoid(a)
    assert_close(silu.derivative(a), s * (1 + a * (1 - s)), rtol=0, atol=1e-14)
    assert_close(activation_of("act", nn.Tanh()).derivative(a), TANH.derivative(a), rtol=0, atol=1e-14)
    with torch.inference_mode():
        assert_close(silu.derivative(a), s * (1 + a * (1 - s)), rtol=0, atol=1e-14)
    assert activation_of("act", nn.ReLU()).binary
    assert not silu.binary


@pytest.mark.parametrize("module", [nn.GELU(), nn.PReLU(), nn.Hardswish(), nn.ELU(inplace=True), nn.Identity()])
def test_elementwise_modules_are_known(module):
    assert is_elementwise(module)


@pytest.mark.parametrize("module", [nn.Softmax(-1), nn.LayerNorm(2), nn.Linear(2, 2), nn.Flatten(), nn.MaxPool2d(2)])
def test_modules_that_mix_neurons_are_no_activations(module):
    assert not is_elementwise(module)


class PlainCNN(nn.Module):
    """adaCNN as somebody else would write it."""

    def __init__(self, filters: int) -> None:
        super().__init__()
        self.lower = ConvStack(1, filters, 2)
        self.convolutions = nn.ModuleList(nn.Conv2d(filters, filters, 3, padding=1) for _ in range(3))
        self.activations = nn.ModuleList(nn.ReLU() for _ in range(3))
        self.output = nn.Linear(filters, WAY)

    def forward(self, x: Tensor) -> Tensor:
        x = self.lower(x)
        for convolution, activation in zip(self.convolutions, self.activations, strict=True):
            x = pool(activation(convolution(x)))
        return self.output(x.flatten(1))


@pytest.mark.parametrize("conditioning", ["df", "gradient"])
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last], ids=["contiguous", "channels_last"])
def test_adacnn_rebuilt_by_graft_is_adacnn(conditioning, layout):
    """Values and gradients agree to the last bits."""
    torch.manual_seed(0)
    image, filters = (1, 12, 12), 4
    base, key = CNN(image, WAY, filters=filters), CNNKey(image, size=8, filters=filters)
    nn.init.normal_(base.output.weight)
    options = {"conditioning": conditioning, "temperature": 10.0}
    own = CSNOptions(**options).build(Parts(InputSpec(image), WAY, base, key, 8))
    network = PlainCNN(filters)
    for theirs, ours in ((network.lower, base.lower), (network.convolutions, base.adapted)):
        theirs.load_state_dict(ours.state_dict())
    network.output.load_state_dict(base.output.state_dict())
    network.to(memory_format=layout)
    layers = [*(f"activations.{i}" for i in range(3)), "output"]
    grafted = graft(network, layers=layers, way=WAY, key=copy.deepcopy(key), stem="lower", **options)
    grafted.memory_function.load_state_dict(own.memory_function.state_dict())
    y = torch.arange(WAY).repeat(2, 2)
    episode = Episode(Examples(torch.rand(2, 6, *image), y), Examples(torch.rand(2, 6, *image), y), WAY)
    losses = [learner(episode).loss for learner in (own, grafted)]
    assert_close(losses[1], losses[0], rtol=0, atol=1e-12)
    for loss in losses:
        loss.backward()
    pairs = [
        (base.lower.convolutions[0], network.lower.convolutions[0]),
        *zip(base.adapted, network.convolutions, strict=True),
        (base.output, network.output),
        *zip(own.memory_function.layers, grafted.memory_function.layers, strict=True),
        (key.output, grafted.key_function.network.output),
    ]
    for ours, theirs in pairs:
        for one, other in zip(ours.parameters(), theirs.parameters(), strict=True):
            assert (one.grad != 0).any()
            assert_close(other.grad, one.grad, rtol=1e-9, atol=1e-12)


def test_a_stem_is_run_once_and_changes_nothing():
    whole = small_cnn()
    calls = []
    whole[0].register_forward_hook(lambda *_: calls.append(1))
    key = flat_key(64)
    case = CASES["sequential"]
    expected = graft(copy.deepcopy(whole), layers=["4", "6"], way=WAY, key=copy.deepcopy(key))
    named = graft(copy.deepcopy(whole), layers=["4", "6"], way=WAY, key=copy.deepcopy(key), stem="2")
    apart = graft(whole[3:], layers=["4", "6"], way=WAY, key=key, stem=whole[:3])
    for learner in (named, apart):
        learner.memory_function.load_state_dict(expected.memory_function.state_dict())
    episode = case.episode()
    loss = expected(episode).loss
    calls.clear()
    assert torch.equal(named(episode).loss, loss)
    assert len(calls) == 1
    assert torch.equal(apart(episode).loss, loss)
    assert len(calls) == 2
    names = {f"{part}.{name}" for part in ("0", "3", "6") for name in ("weight", "bias")}
    assert {name.split(".", 1)[-1] for name, _ in named.base.named_parameters()} == names


def test_a_stem_that_something_goes_around_is_refused():
    with pytest.raises(ValueError, match=r"also uses .*shortcut"):
        graft(GroupResNet(), layers=["layers.1.act2", "fc"], way=WAY, key=flat_key(64), stem="layers.1.norm2")
    with pytest.raises(ValueError, match="not above the stem"):
        graft(GroupResNet(), layers=["layers.0.act2", "fc"], way=WAY, key=flat_key(64), stem="layers.1.norm1")
    with pytest.raises(ValueError, match=r"unknown layer 'layer\.0'"):
        graft(GroupResNet(), layers=["fc"], way=WAY, key=flat_key(64), stem="layer.0")


def test_a_layer_of_the_network_as_the_key():
    network = small_cnn()
    learner = graft(network, layers=["4", "6"], way=WAY, key="2", reads=IMAGE)
    x = torch.randn(3, *IMAGE)
    assert torch.equal(learner.embed(x), network[:3](x).flatten(1))
    assert torch.isfinite(learner(CASES["sequential"].episode()).loss)
    assert not any(name.startswith("key_function") for name in learner.state_dict())
    again = copy.deepcopy(learner)
    nn.init.zeros_(again.base.network[0].weight)
    assert not torch.equal(again.embed(x), learner.embed(x))  # the copy's key is a layer of the copy


def test_patterns_name_every_activation():
    learner = graft(GroupResNet(), layers=["layers.1.*", "fc"], way=WAY, key=flat_key(64))
    assert learner.base.layers == ("layers.1.act1", "layers.1.act2", "fc")


def test_threads_do_not_meet():
    """Two threads on one learner, each with its own task, many times: what each finds is what it finds alone."""
    _, learner = CASES["sequential"].grafted()
    episodes = [CASES["sequential"].episode(queries) for queries in (2, 5)]
    expected = [learner(episode).logits for episode in episodes]
    wrong: list[int] = []

    def ask(index: int) -> None:
        for _ in range(30):
            if not torch.equal(learner(episodes[index]).logits, expected[index]):
                wrong.append(index)

    threads = [threading.Thread(target=ask, args=(index,)) for index in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_two_grafts_of_one_network_do_not_meet():
    network = small_cnn()
    one = graft(network, layers=["4", "6"], way=WAY, key=flat_key(64))
    before = one(CASES["sequential"].episode()).logits
    two = graft(network, layers=["1", "6"], way=WAY, key=flat_key(64), conditioning="gradient")
    assert len(two.describe(CASES["sequential"].episode().support).values) == 2
    assert torch.equal(one(CASES["sequential"].episode()).logits, before)


def test_bfloat16_and_autocast():
    torch.set_default_dtype(torch.float32)
    case = CASES["vit"]
    network = case.build()
    for options in ({"conditioning": "df", "temperature": 10.0}, {"conditioning": "gradient"}):
        learner = graft(copy.deepcopy(network), layers=case.layers, way=WAY, key=case.key(), **options)
        exact = learner(case_float(case.episode())).loss
        with torch.autocast("cpu", dtype=torch.bfloat16):
            half = learner(case_float(case.episode())).loss
        assert_close(half.float(), exact, rtol=0.1, atol=0.1)
        learner.base.to(torch.bfloat16)
        loss = learner(case_float(case.episode())).loss
        assert_close(loss, exact, rtol=0.1, atol=0.1)
        loss.backward()
        assert learner.base.network.head.weight.grad.dtype == torch.bfloat16


def case_float(episode: Episode) -> Episode:
    support, query = (Examples(part.x.float(), part.y) for part in (episode.support, episode.query))
    return Episode(support, query, episode.way)


def norms(where: str) -> nn.Sequential:
    norm = nn.BatchNorm1d(5)
    parts = [nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 5), nn.ReLU(), nn.Linear(5, WAY)]
    parts.insert(1 if where == "below" else 3, norm)
    return nn.Sequential(*parts)


def vectors() -> Episode:
    return CASES["functional"].episode()


def test_batch_norm_above_a_shifted_layer_is_refused_in_training():
    learner = graft(norms("above"), layers=["1", "4", "5"], way=WAY, key=flat_key(6))
    with pytest.raises(ValueError, match=r"'3', a batch norm in training mode, is above the shifted layer"):
        learner(vectors())
    assert torch.isfinite(learner.eval()(vectors()).loss)
    frozen = graft(norms("above"), layers=["1", "4", "5"], way=WAY, key=flat_key(6), frozen_statistics=True)
    frozen.train()(vectors())
    assert int(frozen.base.network[3].num_batches_tracked) == 0
    below = graft(norms("below"), layers=["2", "4", "5"], way=WAY, key=flat_key(6))
    assert torch.isfinite(below.train()(vectors()).loss)


def test_check_separate_finds_what_mixes_examples():
    class Mixing(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x - x.mean(0)

    def learner(*parts: nn.Module) -> BaseLearner:
        network = nn.Sequential(nn.Linear(6, 5), nn.ReLU(), *parts, nn.Linear(5, WAY))
        return graft(network, layers=["1", str(len(network) - 1)], way=WAY, key=flat_key(6)).base

    x = torch.randn(4, 6)
    check_separate(learner(nn.Dropout(0.5)), x)
    with pytest.raises(ValueError, match="mixes the examples"):
        check_separate(learner(Mixing()), x)


BAD = [
    (["act", "6"], r"unknown layer 'act'"),
    (["1", "4", "7"], r"unknown layer '7': There are 0, 1, 2, 3, 4, 5, 6"),
    (["4", "1", "6"], r"'1' runs before '4'|'1' is used more than once in a pass, or after|name layers in the order"),
    (["0", "6"], r"'0' \(Conv2d\) is no elementwise activation"),
    (["1", "1", "6"], "'1' is named twice"),
    (["1", "4"], "must be the output layer"),
    ([], "at least the output layer"),
    (["1", "5"], r"gives \(80,\) numbers per example, way=3 needs \(3,\)"),
    (["conv*", "6"], r"no activation module has a name like 'conv\*'"),
]


@pytest.mark.parametrize(("layers", "message"), BAD)
def test_bad_layers_are_named(layers, message):
    with pytest.raises(ValueError, match=message):
        graft(small_cnn(), layers=layers, way=WAY, key=flat_key(64))(CASES["sequential"].episode())


def test_functional_names_are_offered():
    with pytest.raises(ValueError, match=r"unknown layer 'part\.glu': did you mean 'part\.gelu'"):
        graft(Functional(), layers=["part.glu", "fc"], way=WAY, key=flat_key(6))


def test_a_network_that_cannot_be_traced_is_refused():
    class Branching(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Linear(6, WAY)

        def forward(self, x: Tensor) -> Tensor:
            return self.fc(F.relu(x)) if x.sum() > 0 else self.fc(x)

    with pytest.raises(ValueError, match=r"torch\.fx cannot trace this network .*make its activations modules"):
        graft(Branching(), layers=["relu", "fc"], way=WAY, key=flat_key(6))

    class Dropping(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Linear(6, WAY)

        def forward(self, x: Tensor) -> Tensor:
            return self.fc(F.dropout(F.relu(x), training=self.training))

    with pytest.raises(ValueError, match="functional dropout"):
        graft(Dropping(), layers=["relu", "fc"], way=WAY, key=flat_key(6))


def test_a_module_that_is_used_twice_is_refused():
    act = nn.ReLU()
    network = nn.Sequential(nn.Linear(6, 5), act, nn.Linear(5, 5), act, nn.Linear(5, WAY))
    with pytest.raises(ValueError, match="'1' is used more than once"):
        graft(network, layers=["1", "4"], way=WAY, key=flat_key(6))(vectors())


def test_a_layer_that_does_not_run_is_refused():
    class Skipping(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc, self.act = nn.Linear(6, WAY), nn.ReLU()

        def forward(self, x: Tensor) -> Tensor:
            return self.fc(x)

    with pytest.raises(ValueError, match=r"'fc' runs before 'act'"):
        graft(Skipping(), layers=["act", "fc"], way=WAY, key=flat_key(6))(vectors())


def test_complex_integer_and_misplaced_neurons_are_refused():
    class Cast(nn.Module):
        def __init__(self, dtype: torch.dtype) -> None:
            super().__init__()
            self.dtype = dtype

        def forward(self, x: Tensor) -> Tensor:
            return x.to(self.dtype)

    for dtype in (torch.complex128, torch.int64):
        network = nn.Sequential(Cast(dtype), nn.Identity(), Cast(torch.float64), nn.Linear(6, WAY))
        with pytest.raises(ValueError, match=rf"'1' gets a tensor of {dtype}: only real numbers"):
            graft(network, layers=["1", "3"], way=WAY, key=flat_key(6))(vectors())

    class Turned(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.mT

    network = nn.Sequential(Turned(), nn.Identity(), Turned(), nn.Linear(6, WAY))
    with pytest.raises(ValueError, match="the examples must come first"):
        graft(network, layers=["1", "3"], way=WAY, key=flat_key(6))(vectors())


def test_a_key_of_another_batch_size_is_refused():
    class Mean(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.mean(0, keepdim=True)

    with pytest.raises(ValueError, match=r"18 rows for 18 examples; got torch\.float64 \(1, 6\)"):
        graft(Functional(), layers=["fc"], way=WAY, key=Mean())(vectors())


def test_other_bad_arguments():
    with pytest.raises(ValueError, match=r"unknown option of graft 'temprature': did you mean 'temperature'"):
        graft(small_cnn(), layers=["6"], way=WAY, key=flat_key(64), temprature=10.0)
    with pytest.raises(ValueError, match="way >= 2"):
        graft(small_cnn(), layers=["6"], way=1, key=flat_key(64))
    learner = graft(small_cnn(), layers=["4", "6"], way=WAY, key=flat_key(64), reads=IMAGE)
    with pytest.raises(ValueError, match=r"shape \(1, 8, 8\), got \(1, 9, 9\)"):
        learner.describe(Examples(torch.randn(1, 2, 1, 9, 9), torch.tensor([[0, 1]])))


def test_the_result_is_an_ordinary_learner(tmp_path):
    """It trains, validates and resumes in the engine, serves the classifier, and can be copied and pickled."""
    torch.set_default_dtype(torch.float32)
    network = nn.Sequential(nn.Conv2d(1, 4, 3, stride=4), nn.GELU(), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 49, 5))
    layers = ["2", "4"]
    learner = graft(network, layers=layers, way=5, key=flat_key(784), stem="1", reads=(1, 28, 28), temperature=10.0)
    data = load_strokes()
    sources = [EpisodeSource(data, split, way=5, shot=1, queries=2, seed=0) for split in ("train", "val")]
    config = TrainConfig(tasks=16, validate_every=8, validation_tasks=10)
    trainer = Trainer(learner, config, *sources, tmp_path)
    assert trainer.run() == "finished"
    episode = sources[0].batch(0, 1)
    expected = learner.eval()(episode).logits
    for copied in (copy.deepcopy(learner), pickle.loads(pickle.dumps(learner))):
        assert torch.equal(copied(episode).logits, expected)
        nn.init.zeros_(copied.base.network.get_parameter("4.weight"))
        assert torch.equal(learner(episode).logits, expected)
    nn.init.zeros_(learner.base.network.get_parameter("4.weight"))
    again = Trainer(learner, config, *sources, tmp_path)
    again.resume()
    assert again.done
    assert torch.equal(learner(episode).logits, expected)
    names = ["a", "b", "c", "d", "e"]
    classifier = FewShotClassifier(learner=learner).fit(episode.support.x[0], names)
    found = classifier.predict(episode.query.x[0])
    assert found.tolist() == [names[c] for c in expected[0].argmax(-1).tolist()]


def test_the_key_network_of_adacnn():
    """Its functional activations are found, and without shifts it gives what it gave."""
    torch.set_default_dtype(torch.float32)
    encoder = CNNKey((1, 28, 28), norm="batch").eval()
    network = nn.Sequential(copy.deepcopy(encoder), nn.Linear(64, 5)).eval()
    alone = copy.deepcopy(network)
    layers = ["0.convolutions.relu_2", "0.convolutions.relu_4", "1"]
    learner = graft(network, layers=layers, way=5, key=encoder, reads=(1, 28, 28), temperature=10.0).eval()
    x = torch.rand(1, 10, 1, 28, 28)
    assert torch.equal(learner.base(x[0]).logits, alone(x[0]))
    memory = learner.describe(Examples(x[:, :5], torch.arange(5)[None]))
    shapes = [tuple(values.dense().shape[2:]) for values in memory.values]
    assert shapes == [(4, 4, 64), (1, 1, 64), (5,)]  # ReLU comes after pooling: 28-14-7-4-2-1
    logits = learner.predict(x[:, 5:], memory)
    assert torch.isfinite(logits).all()
    assert not torch.equal(logits[0], alone(x[0, 5:]))
