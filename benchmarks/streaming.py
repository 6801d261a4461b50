"""Training on more images than fit into memory: python benchmarks/streaming.py [--images 100000].

Images are drawn, packed as JPEG into tar archives in a temporary folder, and streamed into a training. The
program prints the memory of the process before and after, the share of its time in which the loop waited for images,
and the processor time of the loop and of the decoding workers. On two quiet cores the loop waits only if the workers
need more time than the loop.
"""

from __future__ import annotations

import argparse
import io
import os
import tarfile
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from csn.building import build_learner
from csn.config import load_preset, merge
from csn.data.images.streaming import AheadSource, stream_images
from csn.data.source import EpisodeSource
from csn.engine.checkpoint import write_atomically
from csn.engine.origin import origin
from csn.engine.train import Trainer
from csn.experiments.records.files import json_bytes

CLASSES, SHARDS, SIDE = 500, 10, 84


def generate(folder: Path, images: int) -> int:
    """Write archives of noisy pictures, and return their size in bytes."""
    rng = np.random.default_rng(0)
    kinds = rng.integers(0, 200, (CLASSES, 12, 12, 3))
    for shard in range(SHARDS):
        with tarfile.open(folder / f"{shard:02}.tar", "w") as archive:
            for number in range(shard, images, SHARDS):
                pixels = kinds[number // SHARDS % CLASSES] + rng.integers(0, 56, (12, 12, 3))
                file = io.BytesIO()
                picture = Image.fromarray(pixels.astype(np.uint8)).resize((SIDE, SIDE), Image.Resampling.BICUBIC)
                picture.save(file, "JPEG", quality=85)
                info = tarfile.TarInfo(f"class{number // SHARDS % CLASSES:03}/{number:06}.jpg")
                info.size = file.tell()
                file.seek(0)
                archive.addfile(info, file)
    return sum(path.stat().st_size for path in folder.glob("*.tar"))


def memory() -> float:
    """The memory of this process in megabytes."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


def main() -> None:
    """Generate, train, print, and write the result file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--images", type=int, default=100_000)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("results/benchmarks/streaming.json"))
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        on_disk = generate(folder, options.images)
        started = time.perf_counter()
        data = stream_images(folder, size=SIDE)
        listed = time.perf_counter() - started
        config = merge(load_preset("adacnn-df", "plus"), {"data": {"way": 5}, "train": {"tasks_per_step": 4}})
        sources = [EpisodeSource(data, split, way=5, shot=1, queries=5, seed=0) for split in ("train", "val")]
        ahead, waited = AheadSource(sources[0]), [0.0]

        class Watched:
            def batch(self, *asked):
                began = time.perf_counter()
                episode = ahead.batch(*asked)
                waited[0] += time.perf_counter() - began
                return episode

        torch.manual_seed(0)
        trainer = Trainer(build_learner(config, data.input_spec), config.train, Watched(), sources[1], folder)
        trainer.learner.train()
        for _ in range(5):
            trainer._step()
        before, waited[0], began = memory(), 0.0, time.perf_counter()
        loop, process = time.thread_time(), time.process_time()
        most = before
        for _ in range(options.steps):
            trainer._step()
            most = max(most, memory())
        seconds = time.perf_counter() - began
        loop, process = time.thread_time() - loop, time.process_time() - process
    found = {
        "images": options.images,
        "megabytes on disk": round(on_disk / 2**20),
        "megabytes decoded": round(options.images * 3 * SIDE * SIDE / 2**20),
        "seconds to list": round(listed, 2),
        "steps": options.steps,
        "images a second": round(options.steps * 4 * 30 / seconds),
        "share of time waiting": round(waited[0] / seconds, 4),
        "processor seconds of the loop": round(loop, 2),
        "processor seconds of the workers": round(process - loop, 2),
        "megabytes of memory after 5 steps": round(before),
        "most": round(most),
        "load": os.getloadavg()[0],
        "threads": options.threads,
    }
    for name, value in found.items():
        print(f"{name:36} {value}")
    content = {"rows": [found], **origin("benchmarks/streaming.py")}
    write_atomically(options.out, json_bytes(content))


if __name__ == "__main__":
    main()
