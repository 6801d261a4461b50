"""Batch norm over all ranks is PyTorch's own where there is one rank; tests/contract has several."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.testing import assert_close

from csn.engine.batch_norm import normalise_over_all_ranks

EXACT = {"rtol": 0, "atol": 1e-10}


@pytest.fixture
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, float64: None) -> Iterator[None]:
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def derivatives(norm: nn.Module, x: Tensor, twice: bool) -> tuple[Tensor, ...]:
    """Of a function that is no sum, or of the size of its gradients."""
    inputs = (x, *norm.parameters())
    first = torch.autograd.grad(
        (norm(x) ** 3 * torch.arange(x.numel()).view(x.shape)).sum(), inputs, create_graph=twice
    )
    return torch.autograd.grad(sum(g.square().mean() for g in first), inputs) if twice else first


@pytest.mark.parametrize("twice", [False, True])
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_one_rank_normalises_as_pytorch_does(alone: None, layout: torch.memory_format, twice: bool) -> None:
    torch.manual_seed(0)
    x = (torch.randn(6, 3, 5, 4) / 10).contiguous(memory_format=layout).requires_grad_()
    theirs = nn.BatchNorm2d(3)
    with torch.no_grad():
        theirs.weight.uniform_(), theirs.bias.uniform_()
    ours = nn.BatchNorm2d(3)
    ours.load_state_dict(theirs.state_dict())
    normalise_over_all_ranks(ours)
    assert type(ours) is not nn.BatchNorm2d
    assert_close(ours(x), theirs(x), **EXACT)
    assert_close(derivatives(ours, x, twice), derivatives(theirs, x, twice), rtol=1e-9, atol=1e-9)
    assert_close(dict(ours.named_buffers()), dict(theirs.named_buffers()), **EXACT)
