"""One training on many processes, started by torchrun: N ranks compute what one rank computes.

A rank is one process. It computes its share of the tasks of a step. Gradients, losses and the statistics of batch norm
are summed over all ranks, so no result depends on the number of ranks. Without torchrun all of this does nothing.
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

from csn.engine.batch_norm import gathered, normalise_over_all_ranks
from csn.engine.checkpoint import load_checkpoint

T = TypeVar("T")
TIMEOUT = 300.0  # seconds that ranks wait for one another; CSN_TIMEOUT sets another number
PREPARING = timedelta(hours=12)  # wait of a machine's ranks while the first one fetches and reads the data


class SharedError(ValueError):
    """An error that every rank raises and only rank 0 prints."""

    is_told = True


class Share(NamedTuple):
    """A rank's part of a step: tasks first ... stop - 1 out of `of` tasks."""

    first: int
    stop: int
    of: int

    @property
    def cut(self) -> slice:
        """The slice of the whole step that belongs to this share."""
        return slice(self.first, self.stop)

    @property
    def weight(self) -> float:
        """The share's fraction of the step, which is its weight in the mean loss."""
        return (self.stop - self.first) / self.of


@dataclass(frozen=True)
class Ranks:
    """This process, and the processes that it trains with.

    rank: this process's number among all processes.
    world: the number of processes.
    local: this process's number on its machine.
    """

    rank: int = 0
    world: int = 1
    local: int = 0

    @property
    def is_alone(self) -> bool:
        """Whether this is the only process."""
        return self.world == 1

    @property
    def is_first(self) -> bool:
        """Whether this rank writes files and reports progress."""
        return self.rank == 0

    def share(self, count: int) -> Share:
        """This rank's part of `count` tasks, which are consecutive. The parts differ by at most one task in size."""
        each, more = divmod(count, self.world)
        first = self.rank * each + min(self.rank, more)
        return Share(first, first + each + (self.rank < more), count)

    def total(self, *values: float) -> list[float]:
        """Sum each value over all ranks."""
        if self.is_alone:
            return list(values)
        return gathered(torch.tensor(values, dtype=torch.float64)).sum(0).tolist()

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
        """Call a function on rank 0 only, and return its result on every rank.

        If it raises ValueError or OSError, every rank raises.
        """
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
        """If the block raises ValueError or OSError on one rank, every rank raises.

        The ranks must not communicate inside the block.
        """
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
        """Call a function on one rank of each machine, then on the others. Return its result.

        The first rank fetches data and fills the cache. The other ranks of the machine then read them.
        """
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
        """Raise ValueError unless these named values are the same on every rank."""
        everyone = self.gathered(what)
        with self.together():
            for rank, its in enumerate(everyone):
                if other := [name for name in what if its.get(name) != everyone[0].get(name)]:
                    raise ValueError(
                        f"rank {rank} differs from rank 0 in {', '.join(other)} ({its.get(other[0])!r}, not "
                        f"{everyone[0].get(other[0])!r}): start all ranks with the same command, code and data"
                    )

    def loaded(self, path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Load a checkpoint on every rank. Only rank 0 needs the file."""
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
        # DDP may rearrange its buckets after the first step. After a restart, gradients would then be summed in another
        # order. With find_unused_parameters the buckets stay, and a parameter without a gradient is not an error.
        warnings.filterwarnings("ignore", "Grad strides do not match bucket view strides")
        known = inspect.signature(DistributedDataParallel).parameters
        sync = "forward_sync_buffers" if "forward_sync_buffers" in known else "broadcast_buffers"
        options: dict[str, Any] = {"find_unused_parameters": True, sync: False}
        return DistributedDataParallel(_Calls(learner), **options)

    def waiting(self, call: Callable[..., Any], more: bool) -> AbstractContextManager[None]:
        """The context of one part of a step: if more parts follow, gradients are not exchanged yet."""
        return call.no_sync() if more and isinstance(call, DistributedDataParallel) else nullcontext()


ALONE = Ranks()


class _Calls(nn.Module):
    """A module whose forward calls any method of a learner by name, so that DDP can wrap all of them."""

    def __init__(self, learner: nn.Module) -> None:
        super().__init__()
        self.learner = learner

    def forward(self, method: str, *inputs: Any) -> Any:
        """Call the method with the inputs."""
        return getattr(self.learner, method)(*inputs)


def is_restarted() -> bool:
    """Whether torchrun has started this process again after a failure."""
    return int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")) > 0


def ranks_of_environment() -> Ranks:
    """The ranks that torchrun's environment variables describe, or one process alone."""
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
    """The ranks, connected as long as the context lasts. A lost connection raises ConnectionError."""
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
                f"rank {ranks.rank} of {ranks.world} lost the others ({_first_line(error)}): find out which ended "
                f"first and why, then add --resume to the command: training goes on from the last checkpoint"
            ) from error
        raise
    finally:
        dist.destroy_process_group()


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0][:200]
