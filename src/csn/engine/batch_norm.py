"""Batch norm with statistics over all ranks, so that results do not depend on the number of ranks."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn


def gathered(x: Tensor) -> Tensor:
    """Gather the tensors of all ranks: (ranks, ...). With gloo, a sum of few numbers takes five times as long."""
    everyone = [torch.empty_like(x, memory_format=torch.contiguous_format) for _ in range(dist.get_world_size())]
    dist.all_gather(everyone, x.detach().contiguous())
    return torch.stack(everyone)


class _AllSum(torch.autograd.Function):
    """Sum a tensor over all ranks. The gradient is summed too, because the sum enters the loss of every rank."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return gathered(x).sum(0)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        return _AllSum.apply(gradients[0])


def _each(channels: Tensor, x: Tensor) -> Tensor:
    """One number per channel, reshaped so that it broadcasts over (examples, channels, ...)."""
    return channels.view(1, -1, *(1,) * (x.ndim - 2))


def _statistics(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Count, mean and variance of each channel over all ranks, computed with differentiable sums."""
    others = [axis for axis in range(x.ndim) if axis != 1]
    count = _AllSum.apply(x.new_tensor([x.numel() / x.shape[1]]))
    mean = _AllSum.apply(x.sum(others)) / count
    return count, mean, _AllSum.apply((x - _each(mean, x)).square().sum(others)) / count


class _Normalised(torch.autograd.Function):
    """Batch norm over all ranks with PyTorch's own kernels. Ranks exchange only a few numbers per channel.

    It returns the result, and the count, mean and variance that it used. Gradients flow through the result only.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Combine the means and variances of the ranks by the formula of Chan, Golub and LeVeque."""
        own = x.numel() / x.shape[1]
        its_mean, its_variance = torch.batch_norm_update_stats(x, None, None, 0.0)
        everyone = gathered(torch.stack([torch.full_like(its_mean, own), its_mean, its_variance]))
        counts, means, variances = everyone.unbind(1)  # (ranks, channels) each
        count = counts[:, :1].sum(0)
        mean = (counts * means).sum(0) / count
        variance = (counts * (variances + (means - mean).square())).sum(0) / count
        ctx.save_for_backward(x, weight, bias, count, mean, variance)
        ctx.eps = eps
        ctx.mark_non_differentiable(count, mean, variance)
        return F.batch_norm(x, mean, variance, weight, bias, False, 0.0, eps), count, mean, variance

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        """Each input also moves the mean and the variance, and so it affects the outputs of every rank."""
        x, weight, bias, count, mean, variance = ctx.saved_tensors
        if torch.is_grad_enabled():  # a second derivative is needed
            _, mean, variance = _statistics(x)
            scale = weight * (variance + ctx.eps).rsqrt()
            y = (x - _each(mean, x)) * _each(scale, x) + _each(bias, x)
            found = torch.autograd.grad(y, (x, weight, bias), gradients[0], create_graph=True)
            return found[0], found[1], found[2], None
        _, of_weight, of_bias = torch.ops.aten.native_batch_norm_backward(
            gradients[0], x, weight, mean, variance, None, None, False, ctx.eps, [False, True, True]
        )
        bias_sum, weight_sum = gathered(torch.stack([of_bias, of_weight])).sum(0) / count
        # dL/dx is linear in dL/dy and x. The first term keeps mean and variance constant; the rest is how x moves them.
        spread = (variance + ctx.eps).rsqrt()
        scale = weight * spread
        slope = -scale * spread * weight_sum
        of_x = torch.addcmul(_each(-scale * bias_sum - slope * mean, x), gradients[0], _each(scale, x))
        of_x.addcmul_(x, _each(slope, x))
        return of_x, of_weight, of_bias, None


class _OfAllRanks(nn.modules.batchnorm._BatchNorm):
    """Normalises like a single process that has the examples of all ranks."""

    def forward(self, x: Tensor) -> Tensor:
        """(examples, channels, ...) -> the same."""
        if not self.training:
            return super().forward(x)
        y, count, mean, variance = _Normalised.apply(x.to(self.weight.dtype), self.weight, self.bias, self.eps)
        self._remember(mean, variance * count / (count - 1))
        return y.to(x.dtype)

    def _remember(self, mean: Tensor, variance: Tensor) -> None:
        """Update the running statistics that evaluation uses."""
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
    """Make every batch norm of a network use the statistics of all ranks. Parameters and their names stay the same."""
    kinds: dict[type[nn.Module], type[nn.Module]] = {nn.BatchNorm1d: _OfAllRanks1d, nn.BatchNorm2d: _OfAllRanks2d}
    for module in network.modules():
        module.__class__ = kinds.get(type(module), type(module))
