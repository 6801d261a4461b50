"""`csn export`: a trained CSN as a page that needs no server, or as graphs for other languages."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from csn.classifier.pretrained import fingerprint, open_shipped, shipped_names, shipped_thresholds
from csn.cli.terminal import say
from csn.config import merge
from csn.engine.models import empty_learner, input_spec, open_model
from csn.learner import FewShotLearner


def export(options: argparse.Namespace) -> int:
    """Run `csn export`: a run or shipped weights -> files."""
    learner, is_run = open_source(options.source)
    name = Path(options.source).name
    if options.to == "page":
        files = _page(learner, options.out or Path(f"{name}.html"), options.source, is_run)
    else:
        files = _onnx(learner, options.out or Path(f"{name}-onnx"), options.source, is_run, options.steps)
    for file in files:
        say(f"wrote {file} ({file.stat().st_size:,} bytes)")
    return 0


def open_source(source: str) -> tuple[FewShotLearner[Any], bool]:
    """The learner of a run's folder or of shipped weights, and whether it is a run."""
    folder = Path(source)
    if folder.is_dir():
        learner, config, metadata = open_model(folder / "best.safetensors")
        if config.precision != "float32":  # an exported model states its own precision
            exact = empty_learner(merge(config, {"network": {"precision": "float32"}}), input_spec(metadata["about"]))
            exact.load_state_dict(learner.state_dict())
            learner = exact.eval()
        return learner, True
    if source in shipped_names():
        return open_shipped(source)[0], False
    raise ValueError(
        f"{source} is neither the folder of a run nor the name of shipped weights: give such a folder, or one of "
        f"{', '.join(shipped_names())}"
    )


def _onnx(learner: FewShotLearner[Any], folder: Path, source: str, is_run: bool, steps: int) -> list[Path]:
    from csn.export.onnx import export_onnx

    if is_run:
        preparation = {"csn.preparation": "as the data set that the run was trained on"}
        return export_onnx(learner, folder, preparation, steps=steps)
    about = {
        "csn.preparation": "white ink on black in [0, 1]: the whole picture, centred on a square of 28 x 28",
    }
    return export_onnx(learner, folder, about)


def _page(learner: FewShotLearner[Any], file: Path, source: str, is_run: bool) -> list[Path]:
    try:
        from csn.classifier.classifier import FewShotClassifier
        from csn.export.page import export_page
        from csn.service.samples import alphabets
        from csn.service.unknowns import default_threshold
    except ImportError as error:
        raise ValueError(
            f'exporting a page needs packages that are not installed ({error}): pip install "csn[service]"'
        ) from error
    samples = [
        {"name": name, "drawings": [{"label": each.label, "ink": each.x.numpy().tobytes()} for each in drawings]}
        for name, drawings in alphabets().items()
    ]
    if is_run:
        threshold = default_threshold(FewShotClassifier(run=source))
        thresholds = {1: threshold} if isinstance(threshold, float) else {}
    else:
        thresholds = shipped_thresholds(source)
    made_with = {"model": None if is_run else source, "made_with": "run" if is_run else "model"}
    return export_page(
        learner,
        file,
        name=Path(source).name,
        thresholds=thresholds,
        about=made_with | {"fingerprint": fingerprint(learner)},
        samples=samples,
    )
