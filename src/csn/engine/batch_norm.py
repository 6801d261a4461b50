"""Batch norm whose statistics are those of all ranks together, so that they do not depend on how many there are."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn


class _AllSum(torch.autograd.Function):
    """A tensor added up over all ranks; so is its gradient, for it reaches the loss of every rank."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        total = x.detach().clone(memory_format=torch.contiguous_format)
        dist.all_reduce(total)
        return total

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        return _AllSum.apply(gradients[0])


class _OfAllRanks(nn.modules.batchnorm._BatchNorm):
    """Normalises as one process would that had the examples of all ranks."""

    def forward(self, x: Tensor) -> Tensor:
        """(examples, channels, ...) -> the same."""
        if not self.training:
            return super().forward(x)
        a = x.to(self.weight.dtype)
        others = [axis for axis in range(a.ndim) if axis != 1]
        each = (1, -1, *(1,) * (a.ndim - 2))
        count = _AllSum.apply(a.new_tensor([a.numel() / a.shape[1]]))
        mean = _AllSum.apply(a.sum(others)) / count
        centred = a - mean.view(each)
        variance = _AllSum.apply(centred.square().sum(others)) / count
        self._remember(mean.detach(), variance.detach() * count / (count - 1))
        scale = self.weight * (variance + self.eps).rsqrt()
        return (centred * scale.view(each) + self.bias.view(each)).to(x.dtype)

    def _remember(self, mean: Tensor, variance: Tensor) -> None:
        """Move the statistics that evaluation goes by."""
        if self.num_batches_tracked is None or self.running_mean is None or self.running_var is None:
            return
        self.num_batches_tracked += 1
        rate = 1 / float(self.num_batches_tracked) if self.momentum is None else self.momentum
        self.running_mean.lerp_(mean, rate)
        self.running_var.lerp_(variance, rate)


class _OfAllRanks1d(_OfAllRanks, nn.BatchNorm1d):
    pass


class _OfAllRanks2d(_OfAllRanks, nn.BatchNorm2d):
    pass


def normalise_over_all_ranks(network: nn.Module) -> None:
    """Let every batch norm of a network take the statistics of all ranks. It keeps its parameters and its name."""
    kinds: dict[type[nn.Module], type[nn.Module]] = {nn.BatchNorm1d: _OfAllRanks1d, nn.BatchNorm2d: _OfAllRanks2d}
    for module in network.modules():
        module.__class__ = kinds.get(type(module), type(module))
