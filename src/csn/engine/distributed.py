"""One training on many processes, started by torchrun: N ranks compute what one rank computes.

A rank is one process. It takes its share of the tasks of a step, and gradients, losses and the statistics of batch norm
are added up over all ranks, so that no result depends on how many there are. Without torchrun all of this does nothing.
"""

from __future__ import annotations

import inspect
import os
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from csn.engine.batch_norm import normalise_over_all_ranks
from csn.engine.checkpoint import load_checkpoint

T = TypeVar("T")
TIMEOUT = 300.0  # seconds that ranks wait for one another; CSN_TIMEOUT sets another number
PREPARING = timedelta(hours=12)  # that ranks of a machine wait while the first one fetches and reads the data


class SharedError(ValueError):
    """An error that every rank has, and that rank 0 prints."""

    is_told = True


class Share(NamedTuple):
    """A rank's part of a step: tasks first ... stop - 1 of `of`."""

    first: int
    stop: int
    of: int

    @property
    def cut(self) -> slice:
        """What is to be taken of the whole step."""
        return slice(self.first, self.stop)

    @property
    def weight(self) -> float:
        """Part of the step's mean loss that is this share's."""
        return (self.stop - self.first) / self.of


@dataclass(frozen=True)
class Ranks:
    """This process and those that it trains with.

    rank: its number among all.
    world: how many there are.
    local: its number on this machine.
    """

    rank: int = 0
    world: int = 1
    local: int = 0

    @property
    def is_alone(self) -> bool:
        """Whether there is one process only."""
        return self.world == 1

    @property
    def is_first(self) -> bool:
        """Whether this rank writes files and speaks."""
        return self.rank == 0

    def share(self, count: int) -> Share:
        """This rank's part of `count` tasks: neighbours, as many as of any other rank or one more."""
        each, more = divmod(count, self.world)
        first = self.rank * each + min(self.rank, more)
        return Share(first, first + each + (self.rank < more), count)

    def total(self, *values: float) -> list[float]:
        """Each value added up over all ranks."""
        if self.is_alone:
            return list(values)
        summed = torch.tensor(values, dtype=torch.float64)
        dist.all_reduce(summed)
        return summed.tolist()

    def stopped(self, should_stop: bool) -> bool:
        """Whether any rank was asked to stop."""
        return self.total(should_stop)[0] > 0

    def gathered(self, value: T) -> list[T]:
        """The value of every rank, in order."""
        if self.is_alone:
            return [value]
        values: list[Any] = [None] * self.world
        dist.all_gather_object(values, value)
        return values

    def first_only(self, function: Callable[[], T]) -> T:
        """What a function returns on rank 0, where alone it is called; its ValueError or OSError is that of all."""
        if self.is_alone:
            return function()
        told: list[Any] = [None, None]
        error: Exception | None = None
        if self.is_first:
            try:
                told = [function(), None]
            except (ValueError, OSError) as failure:
                error, told = failure, [None, str(failure)]
        dist.broadcast_object_list(told)
        if error is not None:
            raise error
        if told[1] is not None:
            raise SharedError(told[1])
        return told[0]

    @contextmanager
    def together(self) -> Iterator[None]:
        """What fails with ValueError or OSError on one rank fails on all. The ranks must not communicate in between."""
        error: Exception | None = None
        try:
            yield
        except (ValueError, OSError) as failure:
            error = failure
        if self.is_alone:
            if error is not None:
                raise error
            return
        failed = {rank: text for rank, text in enumerate(self.gathered(error and str(error))) if text is not None}
        if failed:
            rank, text = next(iter(failed.items()))
            if len(failed) < self.world:
                text = f"rank {rank} of {self.world}: {text}"
            raise (ValueError if self.is_first else SharedError)(text) from error

    def prepared(self, function: Callable[[], T]) -> T:
        """What a function returns, called first by one rank of each machine: it fetches and keeps what others read."""
        if self.is_alone:
            return function()
        waiting = dist.new_group(timeout=PREPARING, backend="gloo")
        result: list[T] = []
        with self.together():
            failure: Exception | None = None
            for is_now in (self.local == 0, self.local != 0):
                if is_now:
                    try:
                        result.append(function())
                    except (ValueError, OSError) as error:
                        failure = error
                dist.barrier(waiting)
            if failure is not None:
                raise failure
        return result[0]

    def check_same(self, what: dict[str, Any]) -> None:
        """Raise ValueError unless these facts, each by its name, are the same on every rank."""
        everyone = self.gathered(what)
        with self.together():
            for rank, its in enumerate(everyone):
                if other := [name for name in what if its.get(name) != everyone[0].get(name)]:
                    raise ValueError(
                        f"rank {rank} differs from rank 0 in {', '.join(other)} ({its.get(other[0])!r}, there "
                        f"{everyone[0].get(other[0])!r}): start all ranks with the same command, code and data"
                    )

    def loaded(self, path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """A checkpoint, which only rank 0 needs to have."""
        if self.is_alone:
            return load_checkpoint(path)
        tensors: dict[str, Tensor] = {}

        def read() -> tuple[dict[str, Any], dict[str, Any]]:
            found, metadata = load_checkpoint(path)
            tensors.update(found)
            return {name: (tensor.shape, tensor.dtype) for name, tensor in found.items()}, metadata

        layout, metadata = self.first_only(read)
        for name, (shape, dtype) in layout.items():
            tensors[name] = tensors[name].contiguous() if self.is_first else torch.empty(shape, dtype=dtype)
            dist.broadcast(tensors[name], 0)
        return tensors, metadata

    def wrap(self, learner: nn.Module) -> Callable[..., Any]:
        """A learner's methods, called by name. After the backward pass, gradients are the mean over all ranks."""
        if self.is_alone:
            return _Calls(learner)
        normalise_over_all_ranks(learner)
        # Buckets that are rearranged after the first step add up in another order after a restart; with
        # find_unused_parameters they stay, and a parameter that no task reached is no error.
        warnings.filterwarnings("ignore", "Grad strides do not match bucket view strides")
        known = inspect.signature(DistributedDataParallel).parameters
        sync = "forward_sync_buffers" if "forward_sync_buffers" in known else "broadcast_buffers"
        options: dict[str, Any] = {"find_unused_parameters": True, sync: False}
        return DistributedDataParallel(_Calls(learner), **options)

    def waiting(self, call: Callable[..., Any], more: bool) -> AbstractContextManager[None]:
        """Where there are more parts of a step, gradients wait for them before they go to the other ranks."""
        return call.no_sync() if more and isinstance(call, DistributedDataParallel) else nullcontext()


ALONE = Ranks()


class _Calls(nn.Module):
    """A learner, any of whose methods can be wrapped."""

    def __init__(self, learner: nn.Module) -> None:
        super().__init__()
        self.learner = learner

    def forward(self, method: str, *inputs: Any) -> Any:
        """What the method makes of the inputs."""
        return getattr(self.learner, method)(*inputs)


def is_restarted() -> bool:
    """Whether torchrun has started this process again after a failure."""
    return int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")) > 0


def ranks_of_environment() -> Ranks:
    """The ranks that torchrun's environment variables tell of, or one process alone."""
    if "RANK" not in os.environ and "WORLD_SIZE" not in os.environ:
        return ALONE
    numbers = {}
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"):
        value = os.environ.get(name, "")
        if not value.isdecimal():
            raise ValueError(
                f"the environment variable {name} should be a number, got {value!r}: start several processes with "
                f"torchrun or --devices, or unset RANK and WORLD_SIZE for one"
            )
        numbers[name] = int(value)
    if numbers["RANK"] >= numbers["WORLD_SIZE"]:
        raise ValueError(f"RANK {numbers['RANK']} is not below WORLD_SIZE {numbers['WORLD_SIZE']}: start with torchrun")
    return Ranks(numbers["RANK"], numbers["WORLD_SIZE"], numbers["LOCAL_RANK"])


@contextmanager
def connected() -> Iterator[Ranks]:
    """The ranks, connected for as long as the context lasts. A lost connection is a ConnectionError."""
    ranks = ranks_of_environment()
    if ranks.is_alone:
        yield ranks
        return
    backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
    timeout = timedelta(seconds=float(os.environ.get("CSN_TIMEOUT", TIMEOUT)))
    try:
        dist.init_process_group(backend, timeout=timeout)
    except (RuntimeError, ValueError) as error:
        raise ConnectionError(
            f"rank {ranks.rank} of {ranks.world} could not connect to the others ({_first_line(error)}): check that "
            f"all were started and can reach MASTER_ADDR, and set GLOO_SOCKET_IFNAME to a network device, e.g. lo"
        ) from error
    try:
        yield ranks
    except RuntimeError as error:
        if isinstance(error, dist.DistError) or "gloo" in str(error) or "onnection" in str(error):
            raise ConnectionError(
                f"rank {ranks.rank} of {ranks.world} lost the others ({_first_line(error)}): see which of them ended "
                f"first and why; the same command with --resume goes on from the last checkpoint"
            ) from error
        raise
    finally:
        dist.destroy_process_group()


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0][:200]
