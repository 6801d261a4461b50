"""A trained CSN as ONNX: one graph for each phase, and one for both together.

    describe.onnx   support, labels -> keys, values_0, values_1, ...
    predict.onnx    queries, keys, labels, values_0, ... -> logits, attention
    episode.onnx    support, labels, queries -> logits

The numbers of examples and of queries are free. Labels are 0, 1, ... without gaps. A class beyond the largest label has
the logit -inf. With conditioning by gradients, the graph contains the backward pass. Sentences have a fixed number of
steps, with PAD where there is no word (csn.export.sentences).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from csn import __version__
from csn.core.model import CSN
from csn.engine.checkpoint import write_atomically
from csn.export.graphs import DescribeGraph, EpisodeGraph, PredictGraph, exportable, quiet_tracing
from csn.export.sentences import padded
from csn.learner import FewShotLearner
from csn.networks.sentences import BLANK, PAD, UNKNOWN

OPSET = 18
STEPS = 32  # steps of a sentence
MOST_STEPS = 256  # a graph holds each step by itself: more take very long to write and to run
COUNTS = (19, 23, 29, 31, 37, 41, 43, 47, 53, 59)  # of examples for tracing; the graph takes any number


def export_onnx(
    learner: FewShotLearner[Any], folder: Path, about: Mapping[str, Any] | None = None, *, steps: int = STEPS
) -> list[Path]:
    """Write the three graphs of a CSN into a folder.

    Args:
        learner: A CSN. It is exported in evaluation mode, and its own mode does not change.
        folder: The folder to write to. It is created if it does not exist.
        about: Further facts to store in the files, e.g. how inputs are prepared. Values must fit into JSON.
        steps: Steps of a sentence including PAD, for a network that reads sentences.

    Returns:
        The files.
    """
    given = exportable(learner)
    _check_packages()
    training = given.training
    given.eval()
    try:
        model = padded(given) if _reads_sentences(given) else given
        shape = input_shape(model, steps)
        programs = _programs(model, shape, {**_facts(model, shape), **(about or {})})
    finally:
        given.train(training)
    paths = []
    for name, content in programs.items():
        write_atomically(folder / f"{name}.onnx", content)
        paths.append(folder / f"{name}.onnx")
    return paths


def _programs(model: CSN, shape: tuple[int, ...], facts: Mapping[str, Any]) -> dict[str, bytes]:
    support, queries = (_some_inputs(model, count, shape) for count in _free_counts(model, shape))
    labels = torch.arange(len(support)) % model.way
    describe, predict = DescribeGraph(model), PredictGraph(model)
    keys, *values = (part.detach() for part in describe(support, labels))
    layers = [f"values_{t}" for t in range(len(values))]
    of_support: list[dict[int, str]] = [{0: "n"}, {0: "n"}]
    graphs: dict[str, tuple[nn.Module, tuple[Tensor, ...], list[dict[int, str]], list[str], list[str]]] = {
        "describe": (describe, (support, labels), of_support, ["support", "labels"], ["keys", *layers]),
        "predict": (
            predict,
            (queries, keys, labels, *values),
            [{0: "m"}, *of_support, *({0: "n"} for _ in values)],
            ["queries", "keys", "labels", *layers],
            ["logits", "attention"],
        ),
        "episode": (
            EpisodeGraph(model),
            (support, labels, queries),
            [*of_support, {0: "m"}],
            ["support", "labels", "queries"],
            ["logits"],
        ),
    }
    return {name: _onnx(model, *graph, facts=facts) for name, graph in graphs.items()}


def _onnx(
    model: CSN,
    graph: nn.Module,
    inputs: tuple[Tensor, ...],
    dynamic: Sequence[Mapping[int, str]],
    names: list[str],
    outputs: list[str],
    *,
    facts: Mapping[str, Any],
) -> bytes:
    """One graph as the bytes of an ONNX file."""
    with quiet_tracing():
        if model.conditioning.needs_graph and "support" in names:
            graph = _with_backward(graph, inputs)
        free = {name: torch.export.Dim(name) for axes in dynamic for name in axes.values()}
        shapes = tuple({axis: free[name] for axis, name in axes.items()} for axes in dynamic)
        wrapped = _Positional(graph).eval()
        program = torch.onnx.export(
            wrapped,
            inputs,
            dynamic_shapes=(shapes,),
            dynamo=True,
            opset_version=OPSET,
            input_names=names,
            output_names=outputs,
            verbose=False,
        )
    assert program is not None
    _check_free(program.model.graph.inputs, dynamic)
    program.model.producer_name, program.model.producer_version = "csn", __version__
    program.model.metadata_props.update({name: json.dumps(value) for name, value in facts.items()})
    content: bytes = program.model_proto.SerializeToString()
    return content


def _check_free(inputs: Sequence[Any], dynamic: Sequence[Mapping[int, str]]) -> None:
    """Raise ValueError if tracing fixed a number of examples, as it does for code that reads the number as an int."""
    for given, axes in zip(inputs, dynamic, strict=True):
        fixed = [name for axis, name in axes.items() if isinstance(given.shape[axis], int)]
        if fixed:
            raise ValueError(
                f"the graph would take {given.shape[0]} examples only in {given.name}: a network or key of yours takes "
                f"len() of a tensor; use .shape[0]"
            )


class _Positional(nn.Module):
    """A graph that takes its inputs by position, without names."""

    def __init__(self, graph: nn.Module) -> None:
        super().__init__()
        self.phase = graph

    def forward(self, *inputs: Tensor) -> Any:
        """Call the graph."""
        return self.phase(*inputs)


def _with_backward(graph: nn.Module, inputs: tuple[Tensor, ...]) -> nn.Module:
    """The graph with its backward pass (eq. 5) written out as forward operations."""
    from torch._decomp import get_decompositions
    from torch.fx.experimental.proxy_tensor import make_fx

    aten = torch.ops.aten
    table: dict[Any, Any] = dict(
        get_decompositions(
            [
                aten.max_pool2d_with_indices_backward,
                aten.threshold_backward,
                aten.tanh_backward,
                aten._log_softmax_backward_data,
                aten.nll_loss_forward,
                aten.nll_loss_backward,
                aten.native_group_norm_backward,
                aten.native_batch_norm_backward,
            ]
        )
    )
    table[aten.convolution_backward.default] = _convolution_backward
    # The parameters are constants: only gradients with respect to preactivations are needed.
    wanted = {name: parameter.requires_grad for name, parameter in graph.named_parameters()}
    try:
        graph.requires_grad_(False)
        return make_fx(graph, decomposition_table=table, tracing_mode="symbolic", _allow_non_fake_inputs=True)(*inputs)
    finally:
        for name, parameter in graph.named_parameters():
            parameter.requires_grad_(wanted[name])


def _convolution_backward(
    gradient: Tensor,
    x: Tensor,
    weight: Tensor,
    bias_sizes: Any,
    stride: list[int],
    padding: list[int],
    dilation: list[int],
    transposed: bool,
    output_padding: list[int],
    groups: int,
    mask: tuple[bool, bool, bool],
) -> tuple[Tensor | None, None, None]:
    """The gradient with respect to a convolution's input, as a transposed convolution."""
    if any(mask[1:]) or transposed or max(stride) > 1:
        raise ValueError("only convolutions of stride 1 can be exported with conditioning by gradients")
    if not mask[0]:
        return None, None, None
    into = torch.ops.aten.convolution(gradient, weight, None, stride, padding, dilation, True, output_padding, groups)
    return into, None, None


def _reads_sentences(model: CSN) -> bool:
    return model.input_spec is not None and model.input_spec.vocabulary is not None


def input_shape(model: CSN, steps: int = STEPS) -> tuple[int, ...]:
    """The shape of one example. For sentences, the number of steps."""
    if model.input_spec is None:
        raise ValueError("this learner does not say what it reads: build it with an input_spec")
    if not _reads_sentences(model):
        return tuple(model.input_spec.shape)
    if not 2 <= steps <= MOST_STEPS:
        raise ValueError(
            f"sentences in graphs have 2 to {MOST_STEPS} steps, got {steps}: give the number of steps of your inputs"
        )
    return (steps,)


def _free_counts(model: CSN, shape: tuple[int, ...]) -> list[int]:
    """Numbers of support examples and queries for tracing.

    Neither is a size of an input or a parameter: torch takes sizes that are equal for one size, and a graph traced with
    3 queries of 3 colours would take 3 queries only.
    """
    taken = {*shape, model.way, *(size for parameter in model.parameters() for size in parameter.shape)}
    return [count for count in COUNTS if count not in taken][:2]


def _some_inputs(model: CSN, count: int, shape: tuple[int, ...]) -> Tensor:
    """Inputs for tracing. A sentence consists of words around one blank."""
    if not _reads_sentences(model):
        return torch.rand(count, *shape)
    ids = torch.full((count, *shape), UNKNOWN)
    ids[:, shape[0] // 2] = BLANK
    return ids


def _facts(model: CSN, shape: tuple[int, ...]) -> dict[str, Any]:
    """The facts that a user of the files needs, stored in each file."""
    facts = {
        "csn.version": __version__,
        "csn.opset": OPSET,
        "csn.way": model.way,
        "csn.input": list(shape),
        "csn.conditioning": "gradient" if model.conditioning.needs_graph else "df",
        "csn.labels": "0, 1, ... without gaps, at most csn.way of them; output l is label l",
        "csn.unused": "a class beyond the largest label has the logit -inf",
    }
    if _reads_sentences(model):
        words = f"word ids below csn.vocabulary; PAD is {PAD}, the one blank of each is {BLANK}, at one step in all"
        facts |= {"csn.vocabulary": model.input_spec.vocabulary, "csn.sentences": words}  # type: ignore[union-attr]
    return facts


def _check_packages() -> None:
    try:
        import onnx  # noqa: F401
        import onnxscript  # noqa: F401
    except ImportError as error:
        raise ValueError(f'ONNX needs packages that are not installed ({error}): pip install "csn[onnx]"') from error
