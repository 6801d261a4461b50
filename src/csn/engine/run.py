"""A run: one folder with config.json, log.jsonl, last.safetensors and best.safetensors (vocabulary.json for sentences).

`new_trainer` trains into the folder, and `open_run` reads the trained model back. Neither needs anything else.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from csn import __version__
from csn.baselines.lstm_lm import LanguageModel
from csn.building import build_learner
from csn.config import Config, config_from_json
from csn.data.images.streaming import AheadSource, StreamedExamples
from csn.data.source import Dataset, EpisodeSource
from csn.data.text.running import RunningText
from csn.data.varied import VariedSource
from csn.engine import pretrain as pretraining
from csn.engine.checkpoint import remove_unfinished, write_atomically
from csn.engine.distributed import ALONE, Ranks
from csn.engine.evaluate import EVALUATION_SEED
from csn.engine.language import LanguageTrainer
from csn.engine.lengthen import lengthened, restate
from csn.engine.lock import lock_folder
from csn.engine.log import read_log
from csn.engine.machine import check_mixed, check_precision
from csn.engine.models import check_size, describe_vocabulary, open_model
from csn.engine.origin import origin
from csn.engine.pretrain import PretrainTrainer
from csn.engine.train import Trainer, TrainingLoop
from csn.learner import FewShotLearner

VALIDATION_QUERIES = 5


@dataclass(frozen=True)
class TrainedRun:
    """A trained model with its history."""

    folder: Path
    config: Config
    learner: FewShotLearner[Any]
    metadata: dict[str, Any]
    origin: dict[str, Any]
    log: list[dict[str, Any]]

    @property
    def history(self) -> dict[str, Any]:
        """How it was trained: the commands and commits, its length and its validation curve."""
        metadata, log = self.metadata, self.log
        return {
            **self.origin,
            "tasks": metadata["tasks"],
            "validation": metadata["validation"],
            **({"perplexity": metadata["perplexity"]} if "perplexity" in metadata else {}),
            "validation_curve": [[r["tasks"], r["validation"]["accuracy"]] for r in log if "validation" in r],
            "seconds": next((r["seconds"] for r in log if r["tasks"] >= metadata["tasks"]), None),
            "seconds_in_all": log[-1]["seconds"] if log else None,
        }


def new_trainer(
    config: Config,
    data: Dataset | RunningText,
    folder: Path,
    *,
    device: torch.device,
    resume: bool = False,
    pretrained: Path | None = None,
    ranks: Ranks = ALONE,
) -> TrainingLoop:
    """A trainer for a new run, or for a run that is resumed.

    A run can be resumed if it stopped before its end, or if it was finished and the new configuration trains longer.

    Args:
        config: The configuration of the run.
        data: Classes for episodes, or running text for a language model.
        folder: The folder of the run.
        device: The device to train on.
        resume: Whether to resume the run in the folder.
        pretrained: Another run, whose pretrained network is the start of this one.
        ranks: The processes that train together. Each of them calls this function; only the first one writes.
    """
    text, data = (data, data.tasks) if isinstance(data, RunningText) else (None, data)
    ranks.first_only(lambda: _check_folder(folder, resume))
    about: dict[str, Any] = {
        "config": json.loads(config.to_json()),
        "input": list(data.splits["train"].x.shape[1:]),
        "version": __version__,
    }
    if data.vocabulary is not None:
        about["vocabulary"] = describe_vocabulary(data.vocabulary)
    if not ranks.is_alone:
        options = {
            f"{section}.{name}": value
            for section, values in about["config"].items()
            if isinstance(values, dict)
            for name, value in values.items()
        }
        ranks.check_same({"csn": __version__, "torch": torch.__version__, **options, "data": _fingerprint(data, text)})
    with ranks.together():
        if config.train.compile != "off" and not ranks.is_alone:
            raise ValueError("train.compile works with one process only: leave it out, or train without --devices")
        trainer = _built(config, data, text, folder, about, device)
    trainer.ranks = ranks
    first = trainer.first
    if first is not None:
        first.ranks = ranks
    elif pretrained is not None:
        raise ValueError(f"{config.preset} ({config.recipe}) has no pretraining: leave out --pretrained")
    trainer.check_shares()
    is_started = ranks.first_only(lambda: _prepare(config, data, trainer, resume, pretrained))
    if ranks.first_only(lambda: is_started and trainer.last.exists()):
        trainer.resume(same_configuration)
        trainer.first = None
    elif first is not None and (is_started or pretrained is not None):
        first.resume(same_configuration)
    if is_started:
        ranks.first_only(lambda: restate(folder, config, about))
    return trainer


def has_run(folder: Path) -> bool:
    """Whether a folder holds a run, perhaps one that was killed before its first checkpoint."""
    return folder.is_dir() and any(folder.iterdir())


def _check_folder(folder: Path, resume: bool) -> None:
    """Raise ValueError unless the folder is empty for a new run, or holds the run that is to be resumed."""
    try:
        str(folder).encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"the name {str(folder)!r} is not UTF-8: choose another folder with --out") from error
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"{folder} is a file: choose a folder with --out")
    if has_run(folder) and not resume:
        raise ValueError(f"{folder} is not empty: resume its run with --resume, or choose another folder with --out")
    if resume and not has_run(folder):
        raise ValueError(f"{folder} holds no run to resume: leave out --resume, or give the folder of a run with --out")


def _built(
    config: Config,
    data: Dataset,
    text: RunningText | None,
    folder: Path,
    about: dict[str, Any],
    device: torch.device,
) -> TrainingLoop:
    """The trainer, with a pretraining before it if the configuration asks for one. Nothing is written yet."""
    training, validation = _sources(config, data, text)
    check_precision(config.precision, device)
    check_size(config, data.input_spec)
    if config.train.precision != "fp32":
        check_mixed(config.learner, device)
    if getattr(config.key, "centred", False) and not config.pretrain.epochs:
        raise ValueError("key.centred subtracts the mean key of the pretraining: set pretrain.epochs, or leave it out")
    torch.manual_seed(config.train.seed)
    learner = build_learner(config, data.input_spec)
    trainer: TrainingLoop
    if text is None:
        frozen = pretraining.frozen_network(learner, config.pretrain)
        trainer = Trainer(
            learner, config.train, training, validation, folder, about=about, device=device, frozen=frozen
        )
    elif isinstance(learner, LanguageModel):
        trainer = LanguageTrainer(learner, config.train, text, validation, folder, about=about, device=device)
    else:
        raise ValueError(f"only learner 'lstm-lm' trains on running text, got {config.learner.name!r}: give it tasks")
    if config.pretrain.epochs:
        trainer.first = PretrainTrainer(
            learner,
            config.key.size if config.key else 0,
            config.pretrain,
            config.train,
            data.splits["train"],
            validation,
            folder / pretraining.FOLDER,
            about=about,
            device=device,
        )
    return trainer


def _prepare(config: Config, data: Dataset, trainer: TrainingLoop, resume: bool, pretrained: Path | None) -> bool:
    """Lock a run's folder, and write the first files of a new run. Returns whether there is a checkpoint to resume."""
    folder, first, taken = trainer.folder, trainer.first, None
    assert first is None or isinstance(first, PretrainTrainer)
    # A run may have been killed before its first checkpoint.
    is_started = resume and (trainer.last.exists() or (first is not None and first.last.exists()))
    if pretrained is not None and first is not None and not is_started:
        taken = pretraining.check_pretrained(pretrained, first, config)
    trainer.lock = lock_folder(folder)
    remove_unfinished(folder)
    remove_unfinished(folder / pretraining.FOLDER)
    if not is_started:
        write_atomically(folder / "config.json", config.to_json().encode())
        write_atomically(folder / "origin.json", (json.dumps(origin(), indent=2) + "\n").encode())
        if data.vocabulary is not None:
            write_atomically(folder / "vocabulary.json", (json.dumps(data.vocabulary) + "\n").encode())
    if taken is not None and first is not None:
        pretraining.copy_pretrained(taken, first)  # after config.json: a run that has checkpoints has everything
    return is_started


def _fingerprint(data: Dataset, text: RunningText | None) -> str:
    """sha256 of all examples and sentences. Ranks compare it, because all of them must read the same data."""
    digest = hashlib.sha256()
    for split in sorted(data.splits):
        digest.update(data.splits[split].fingerprint.encode())
    for sentences in () if text is None else (text.train, text.val):
        digest.update(sentences.contiguous().numpy().tobytes())
    return digest.hexdigest()


def same_configuration(stored: dict[str, Any], wanted: dict[str, Any]) -> bool:
    """Whether two runs have the same configuration, or the stored run is the beginning of the wanted one.

    Options that did not exist when the stored run was made count as their defaults.
    """
    try:
        config = config_from_json(json.dumps(stored["config"]))
    except ValueError:  # an option that no longer exists
        return False
    config = lengthened(config, config_from_json(json.dumps(wanted["config"])))
    return stored | {"config": json.loads(config.to_json())} == wanted


def _sources(
    config: Config, data: Dataset, text: RunningText | None
) -> tuple[EpisodeSource | VariedSource | AheadSource, EpisodeSource]:
    """Training and validation tasks.

    The support of a language model's validation task holds the words themselves. There is one query per word.
    """
    tasks, way, shot = config.data, config.data.way, config.data.shot
    source = VariedSource if tasks.vary else EpisodeSource
    drawn = source(data, "train", way=way, shot=shot, queries=tasks.queries, seed=config.train.seed)
    training = AheadSource(drawn) if isinstance(data.splits["train"], StreamedExamples) else drawn
    validation = EpisodeSource(
        data,
        "val",
        way=way,
        shot=1 if tasks.vary else shot,
        queries=VALIDATION_QUERIES if text is None else 1,
        seed=EVALUATION_SEED,
        support="examples" if text is None else "words",
    )
    return training, validation


def open_run(folder: Path, *, attention: str | None = None) -> TrainedRun:
    """The best model of a run, ready to predict.

    Args:
        folder: The folder of the run.
        attention: "soft" or "hard" attention instead of the one it was trained with.
    """
    learner, config, metadata = open_model(folder / "best.safetensors", attention=attention)
    made = folder / "origin.json"
    try:
        trained_by = json.loads(made.read_text(encoding="utf-8")) if made.exists() else {}
        if not isinstance(trained_by, dict):
            raise ValueError("it is not a JSON object")
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{made} is damaged ({error}): take another copy of it") from error
    return TrainedRun(folder, config, learner, metadata, trained_by, read_log(folder))


def check_vocabulary(run: TrainedRun, data: Dataset) -> None:
    """Raise ValueError unless word ids mean the same words in a run and in a data set."""
    trained = run.metadata["about"].get("vocabulary")
    found = None if data.vocabulary is None else describe_vocabulary(data.vocabulary)
    if trained == found:
        return
    wanted, got = (
        "no words" if each is None else f"{each['size']} words (sha256 {each['sha256'][:12]})"
        for each in (trained, found)
    )
    raise ValueError(
        f"{run.folder} was trained on {run.config.data.name} with {wanted}; {data.name} has {got}, so word ids mean "
        f"other words: evaluate on a text of the same vocabulary, or train on {data.name}"
    )


def check_history(run: TrainedRun) -> None:
    """Raise ValueError unless a run says how it was trained. Every result file must state that."""
    missing = [name for name, there in (("log.jsonl", run.log), ("origin.json", run.origin)) if not there]
    if missing:
        raise ValueError(
            f"{run.folder} has a model but no {' and '.join(missing)}, so a result could not say how it was "
            f"trained: copy the whole folder of the run"
        )
