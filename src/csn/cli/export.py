"""`csn export`: a trained CSN as graphs for other languages."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from csn.classifier.pretrained import open_shipped, shipped_names, shipped_threshold
from csn.cli.terminal import say
from csn.config import merge
from csn.engine.run import empty_learner, input_spec, open_model
from csn.export.onnx import export_onnx
from csn.learner import FewShotLearner


def export(options: argparse.Namespace) -> int:
    """`csn export`: a run, or weights of the package, into files."""
    learner, about = open_source(options.source)
    out = options.out or Path(f"{Path(options.source).name}-{options.to}")
    files = export_onnx(learner, out, about)
    for file in files:
        say(f"wrote {file} ({file.stat().st_size:,} bytes)")
    return 0


def open_source(source: str) -> tuple[FewShotLearner[Any], dict[str, Any]]:
    """The learner of a run's folder or of weights of the package, and what users of the graphs must know."""
    folder = Path(source)
    if folder.is_dir():
        learner, config, metadata = open_model(folder / "best.safetensors")
        if config.precision != "float32":  # a graph says itself how exact it is
            exact = empty_learner(merge(config, {"network": {"precision": "float32"}}), input_spec(metadata["about"]))
            exact.load_state_dict(learner.state_dict())
            learner = exact.eval()
        return learner, {"csn.preparation": "as the data set that the run was trained on"}
    if source in shipped_names():
        learner, _ = open_shipped(source)
        return learner, {
            "csn.preparation": "white ink on black in [0, 1]: the whole picture, centred on a square of 28 x 28",
            "csn.threshold": shipped_threshold(source),
        }
    raise ValueError(
        f"there is no run {source}, and no weights of that name: give the folder of a run, or one of "
        f"{', '.join(shipped_names())}"
    )
