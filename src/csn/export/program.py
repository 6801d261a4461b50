"""Compile a module into a short list of operations with fixed shapes, which a page can run without any library.

The graph from torch.export is simplified. Tensors that do not depend on the inputs are computed here, batch norm is
folded into the convolution before it, and operations that only rename a tensor are removed.
"""

from __future__ import annotations

import hashlib
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.fx import Node

from csn.export.graphs import quiet_tracing

Operation = dict[str, Any]
aten = torch.ops.aten


@dataclass(frozen=True)
class Ref:
    """A tensor that depends on the inputs, given by its number and shape."""

    number: int
    shape: tuple[int, ...]


@dataclass
class Program:
    """Operations in order. Each computes the tensor `out` from the tensors `in`. Weights are stored as tensors."""

    inputs: list[Ref] = field(default_factory=list)
    operations: list[Operation] = field(default_factory=list)
    outputs: list[Ref] = field(default_factory=list)

    def as_json(self, weights: Weights) -> dict[str, Any]:
        """The program for JSON. Its weights are added to the store and replaced by their numbers."""
        operations = [
            {name: weights.add(value) if isinstance(value, Tensor) else value for name, value in each.items()}
            for each in self.operations
        ]
        inputs, outputs = ([ref.number for ref in refs] for refs in (self.inputs, self.outputs))
        return {"inputs": inputs, "operations": operations, "outputs": outputs}


class Weights:
    """The weights of several programs. Each tensor is stored once, in half precision or in 8 bits with a scale per row.

    Args:
        bits: 16, or 8 to store tensors of `LARGE` numbers or more in 8 bits.
    """

    LARGE = 1024

    def __init__(self, bits: int) -> None:
        self.bits, self.parts, self.described = bits, [], []
        self._known: dict[str, int] = {}
        self._size = 0

    parts: list[bytes]
    described: list[dict[str, Any]]

    def add(self, tensor: Tensor) -> int:
        """The number of a tensor, which is stored if it is new."""
        tensor = tensor.detach().float().contiguous()
        digest = hashlib.sha256(f"{tuple(tensor.shape)}".encode() + tensor.numpy().tobytes()).hexdigest()
        if digest not in self._known:
            self._known[digest] = len(self.described)
            self._append(tensor)
        return self._known[digest]

    def content(self) -> bytes:
        """All weights as bytes, one tensor after the other."""
        return b"".join(self.parts)

    def _append(self, tensor: Tensor) -> None:
        about: dict[str, Any] = {"shape": list(tensor.shape), "at": self._size}
        if self.bits == 8 and tensor.numel() >= self.LARGE:
            rows = tensor.flatten(1)
            scale = rows.abs().amax(1).clamp_min(1e-12) / 127
            whole = (rows / scale[:, None]).round().to(torch.int8).numpy().tobytes()
            about |= {"kind": "int8"}
            content = scale.numpy().tobytes() + whole
        else:
            about |= {"kind": "float16"}
            content = tensor.half().numpy().tobytes()
        content += bytes(-len(content) % 4)  # align the next tensor to 4 bytes
        self.described.append(about)
        self.parts.append(content)
        self._size += len(content)


def compiled(module: nn.Module, inputs: tuple[Tensor, ...]) -> Program:
    """The module as a program for inputs of these shapes. ValueError names an operation that a page cannot do."""
    with torch.no_grad(), quiet_tracing():
        exported = torch.export.export(module.eval(), inputs, strict=False).run_decompositions()
    signature = exported.graph_signature
    constants: dict[str, Tensor] = {
        **{name: exported.state_dict[of] for name, of in signature.inputs_to_parameters.items()},
        **{name: _stored(exported, of) for name, of in signature.inputs_to_buffers.items()},
        **{name: exported.constants[of] for name, of in signature.inputs_to_lifted_tensor_constants.items()},
    }
    compiler = _Compiler()
    for node in exported.graph.nodes:
        compiler.take(node, constants)
    return compiler.program


def _stored(exported: torch.export.ExportedProgram, name: str) -> Tensor:
    return exported.state_dict[name] if name in exported.state_dict else exported.constants[name]


class _Compiler:
    def __init__(self) -> None:
        self.program = Program()
        self._found: dict[Node, Any] = {}
        self._makers: dict[int, Operation] = {}
        self._count = 0

    def take(self, node: Node, constants: dict[str, Tensor]) -> None:
        if node.op == "placeholder":
            constant = constants.get(node.name)
            self._found[node] = self._new_input(node) if constant is None else constant.detach()
        elif node.op == "output":
            self.program.outputs = [self._found[each] for each in node.args[0]]  # type: ignore[union-attr,index]
        elif node.op == "call_function":
            self._found[node] = self._called(node)
        else:
            raise ValueError(f"a page cannot do {node.op} {node.target}")

    def _new_input(self, node: Node) -> Ref:
        ref = self._ref(node)
        self.program.inputs.append(ref)
        return ref

    def _ref(self, node: Node) -> Ref:
        self._count += 1
        value = node.meta["val"]
        value = value[0] if isinstance(value, tuple | list) else value
        return Ref(self._count - 1, tuple(value.shape))

    def _called(self, node: Node) -> Any:
        args = [self._resolved(arg) for arg in node.args]
        if not any(isinstance(each, Ref) for arg in args for each in (arg if isinstance(arg, list) else [arg])):
            return node.target(*args, **{k: self._resolved(v) for k, v in node.kwargs.items()})  # type: ignore[operator]
        if node.target in SAME:
            return args[0]
        if node.target is aten._native_batch_norm_legit_no_training.default and self._folded(node, args):
            return args[0]
        rule = RULES.get(node.target)
        if rule is None:
            able = ", ".join(sorted({str(target) for target in RULES}))
            raise ValueError(f"a page cannot do {node.target}: export another network. A page can do {able}")
        made = self._ref(node)
        operation = rule(made, *args)
        refs = [arg for arg in operation.pop("in") if arg is not None]
        operation |= {"in": [ref.number for ref in refs], "out": made.number, "shape": list(made.shape)}
        self.program.operations.append(operation)
        self._makers[made.number] = operation
        return made

    def _resolved(self, arg: Any) -> Any:
        if isinstance(arg, Node):
            return self._found[arg]
        return [self._resolved(each) for each in arg] if isinstance(arg, list | tuple) else arg

    def _folded(self, node: Node, args: Sequence[Any]) -> bool:
        """Fold batch norm with known statistics into the convolution before it, if nothing else reads that one."""
        before = node.args[0]
        maker = self._makers.get(args[0].number)
        if maker is None or maker["op"] != "conv" or not isinstance(before, Node) or len(before.users) > 1:
            return False
        scale, shift = _affine(args[1], args[2], args[3], args[4], args[6])
        maker["weight"] = maker["weight"] * scale[:, None, None, None]
        maker["bias"] = maker["bias"] * scale + shift
        return True


def _affine(weight: Tensor, bias: Tensor, mean: Tensor, variance: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    scale = weight / (variance + eps).sqrt()
    return scale, bias - mean * scale


def _conv(
    out: Ref,
    x: Ref,
    weight: Tensor,
    bias: Tensor | None,
    stride: list[int],
    padding: list[int],
    dilation: list[int],
    transposed: bool,
    output_padding: list[int],
    groups: int,
) -> Operation:
    if {*stride, *dilation, groups} != {1} or transposed or len({*padding}) > 1:
        raise ValueError("a page can only do ungrouped convolutions of stride 1 with the same padding on all sides")
    bias = weight.new_zeros(len(weight)) if bias is None else bias
    return {"op": "conv", "in": [x], "weight": weight, "bias": bias, "padding": padding[0]}


def _norm(out: Ref, x: Ref, *rest: Any) -> Operation:
    scale, shift = _affine(rest[0], rest[1], rest[2], rest[3], rest[5])
    return {"op": "affine", "in": [x], "weight": scale, "bias": shift}


def _maxpool(
    out: Ref,
    x: Ref,
    size: list[int],
    stride: list[int] | None = None,
    padding: int | list[int] = 0,
    dilation: Any = 1,
    ceil: bool = False,
) -> Operation:
    if (stride and stride != size) or padding not in (0, [0, 0]) or dilation not in (1, [1, 1]):
        raise ValueError("a page can only do pooling with stride equal to the window and no padding")
    return {"op": "maxpool", "in": [x], "size": size}


def _mean(out: Ref, x: Ref, dims: list[int], keep: bool = False) -> Operation:
    axes = sorted(dim % len(x.shape) for dim in dims)
    if axes != list(range(axes[0], axes[-1] + 1)):
        raise ValueError("a page can only take the mean over adjacent axes")
    return {"op": "mean", "in": [x], "first": axes[0], "last": axes[-1]}


def _linear(out: Ref, x: Ref, weight: Tensor, bias: Tensor | None = None) -> Operation:
    if not isinstance(weight, Tensor):
        raise ValueError("a page can only multiply by weights")
    bias = weight.new_zeros(weight.shape[1]) if bias is None else bias
    return {"op": "linear", "in": [x], "weight": weight.T, "bias": bias}


def _softmax(out: Ref, x: Ref, dim: int, half: bool = False) -> Operation:
    if dim not in (-1, len(x.shape) - 1):
        raise ValueError("a page can only do softmax along the last axis")
    return {"op": "softmax", "in": [x]}


def _binary(name: str) -> Callable[..., Operation]:
    def rule(out: Ref, one: Any, other: Any) -> Operation:
        operation: Operation = {"op": name, "in": [part if isinstance(part, Ref) else None for part in (one, other)]}
        for place, part in (("left", one), ("right", other)):
            if isinstance(part, Tensor):
                operation[place] = part
            elif not isinstance(part, Ref):
                operation[place] = torch.tensor(float(part))
        return operation

    return rule


def _take(out: Ref, x: Ref, indices: list[Any]) -> Operation:
    *others, index = indices
    if any(other is not None for other in others) or not isinstance(index, Tensor):
        raise ValueError("a page can only select along the last axis")
    return {"op": "take", "in": [x], "index": index.flatten().tolist()}


def _pad(out: Ref, x: Ref, pads: list[int], value: float = 0.0) -> Operation:
    if value != 0:
        raise ValueError("a page can only pad with 0")
    return {"op": "pad", "in": [x], "before": [*reversed(pads[0::2])]}


def _select(out: Ref, x: Ref, dim: int, index: int) -> Operation:
    return {"op": "slice", "in": [x], "dim": dim % len(x.shape), "start": index % x.shape[dim], "length": 1}


def _slice(out: Ref, x: Ref, dim: int = 0, start: int | None = None, end: int | None = None) -> Operation:
    dim %= len(x.shape)
    first = range(x.shape[dim])[start or 0 : end]
    return {"op": "slice", "in": [x], "dim": dim, "start": first.start, "length": out.shape[dim]}


def _reshape(out: Ref, x: Ref, *unused: Any) -> Operation:
    return {"op": "reshape", "in": [x]}


SAME = {
    aten.clone.default,
    aten.alias.default,
    aten.detach.default,
    aten._to_copy.default,
    aten._assert_tensor_metadata.default,
    operator.getitem,  # the first output of an operation; inference uses no other
}
RULES: dict[Any, Callable[..., Operation]] = {
    aten.convolution.default: _conv,
    aten._native_batch_norm_legit_no_training.default: _norm,
    aten.max_pool2d_with_indices.default: _maxpool,
    aten._adaptive_avg_pool2d.default: lambda out, x, size: {"op": "avgpool", "in": [x]},
    aten.mean.dim: _mean,
    aten.addmm.default: lambda out, bias, x, weight: _linear(out, x, weight, bias),
    aten.mm.default: _linear,
    aten.relu.default: lambda out, x: {"op": "relu", "in": [x]},
    aten.tanh.default: lambda out, x: {"op": "tanh", "in": [x]},
    aten._softmax.default: _softmax,
    aten.add.Tensor: _binary("add"),
    aten.sub.Tensor: _binary("sub"),
    aten.mul.Tensor: _binary("mul"),
    aten.gt.Scalar: lambda out, x, value: {"op": "above", "in": [x], "value": value},
    aten.permute.default: lambda out, x, order: {"op": "permute", "in": [x], "order": order},
    aten.index.Tensor: _take,
    aten.constant_pad_nd.default: _pad,
    aten.select.int: _select,
    aten.slice.Tensor: _slice,
    aten.view.default: _reshape,
    aten.unsqueeze.default: _reshape,
    aten.squeeze.dims: _reshape,
}
