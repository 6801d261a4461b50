"""`--devices N`: run this command in N processes that share its work."""

from __future__ import annotations

import os
import signal
import sys

from torch.distributed.elastic.multiprocessing.api import SignalException
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
from torch.distributed.launcher.api import LaunchConfig, elastic_launch

PER_CORE, LEAST_ALLOWED = 4, 16  # more processes than that would only fill the memory
STOPPING = 600  # seconds for processes to finish a validation and save


def launch(devices: int, arguments: list[str]) -> int:
    """Run a command in several processes of this machine, as torchrun does, and return its exit status.

    Args:
        devices: The number of processes.
        arguments: The words of the command, with `--devices`.
    """
    if devices < 1:
        raise ValueError(f"--devices must be at least 1, got {devices}: give the number of processes")
    if devices > (most := max(LEAST_ALLOWED, PER_CORE * (os.cpu_count() or 1))):
        raise ValueError(
            f"--devices must be at most {most} on this machine, got {devices}: give one for each core or GPU"
        )
    os.environ["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] = "1"
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, (os.cpu_count() or 1) // devices)))
    config = LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=devices,
        run_id=f"csn-{os.getpid()}",
        rdzv_backend="c10d",
        rdzv_endpoint="localhost:0",
        local_addr="localhost",
        max_restarts=0,
        shutdown_timeout=STOPPING,
    )
    try:
        elastic_launch(config, sys.executable)("-m", "csn", *_without_devices(arguments))
    except ChildFailedError as error:
        status = error.get_first_failure()[1].exitcode
        return status if status > 0 else 128 - status  # negative: the number of the signal that killed it
    except SignalException as error:
        return 130 if error.sigval == signal.SIGINT else 75
    return 0


def _without_devices(arguments: list[str]) -> list[str]:
    """The command of one process: the words without `--devices`."""
    kept, words = [], iter(arguments)
    for word in words:
        if word == "--devices":
            next(words, None)
        elif not word.startswith("--devices="):
            kept.append(word)
    return kept
