"""The report of a run: a page with its configuration, its results, its learning curve and one of its episodes."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from csn.data.source import EpisodeSource
from csn.engine.answers import task_in_words
from csn.engine.checkpoint import checkpoint_sha256, write_atomically
from csn.engine.evaluate import Accuracy
from csn.engine.log import read_log
from csn.engine.pretrain import FOLDER as PRETRAIN_FOLDER
from csn.engine.run import TrainedRun
from csn.experiments.markdown import table
from csn.experiments.records.checks import TRAINED
from csn.experiments.records.files import results_in
from csn.learner import FewShotLearner
from csn.plots.drawing import png
from csn.plots.episodes import episode_figure, learning_curve
from csn.plots.sentences import sentence_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def write_report(run: TrainedRun, source: EpisodeSource, index: int, folder: Path) -> list[Path]:
    """Write learning_curve.png, episode.png (episode `index` of `source`) and report.md; the files written.

    After a pretraining, pretraining_curve.png too.
    """
    if not run.log:
        raise ValueError(f"{run.folder / 'log.jsonl'} is missing or empty: there is no training to report")
    data = run.config.data
    title = f"{run.config.preset} ({run.config.recipe}) on {data.name}, {data.way}-way {data.shot}-shot"
    about = f"{source.split.capitalize()} task {index} of {source.data.name}, {source.way}-way {source.shot}-shot"
    curve, episode = learning_curve(run.log, title=title), task_figure(source, index, run.learner, title=about)
    contents = {"learning_curve.png": png(curve), "episode.png": png(episode)}
    if pretraining := read_log(run.folder / PRETRAIN_FOLDER):
        contents["pretraining_curve.png"] = png(
            learning_curve(pretraining, title=f"{title}: pretraining", pretraining=True)
        )
    contents["report.md"] = _markdown(run, title, about, pretrained=bool(pretraining)).encode()
    for name, content in contents.items():
        write_atomically(folder / name, content)
    return [folder / name for name in contents]


def task_figure(source: EpisodeSource, index: int, learner: FewShotLearner[Any] | None, *, title: str) -> Figure:
    """Episode `index` as a picture: of images, or of sentences."""
    if source.data.vocabulary is not None:
        return sentence_figure(task_in_words(source, index, learner), title=title)
    names = source.class_names(index)
    return episode_figure(source.batch(index, 1), names=names, learner=learner, title=title)


def _markdown(run: TrainedRun, title: str, about: str, *, pretrained: bool) -> str:
    config, last = run.config, run.log[-1]
    unit, chosen = "tasks", ""
    if "perplexity" in run.metadata:
        unit, chosen = "sentences", f", validation perplexity {run.metadata['perplexity']:.1f}"
    best = Accuracy(run.metadata["validation"], run.metadata["interval"])
    model = checkpoint_sha256(run.folder)
    rows = [row for path in sorted(run.folder.glob("result-*.json")) for row in _result_rows(path, model)]
    header = ("tasks", "attention", "learner", "accuracy, 95 % interval")
    results = table(header, rows) if rows else f"None yet: `csn evaluate {run.folder}` measures it."
    curve = "![Pretraining on the training classes](pretraining_curve.png)\n\n" if pretrained else ""
    return f"""# {title}

| | |
|---|---|
| preset | {config.preset} |
| recipe | {config.recipe} |
| data | {config.data.name} |
| tasks | {config.data.way}-way {config.data.shot}-shot, {config.data.queries} queries a class |
| trained | {last["tasks"]:,} of {config.train.tasks:,} {unit}, seed {config.train.seed} |
| time (h:mm:ss) | {datetime.timedelta(seconds=round(last["seconds"]))} |
| best model | after {run.metadata["tasks"]:,} {unit}{chosen} |
| validation accuracy | **{best}** (95 % interval, {config.train.validation_tasks:,} tasks) |

## Accuracy on unseen tasks

{results}

## Learning curve

{curve}![Accuracy and loss over training tasks](learning_curve.png)

## A task

![{about}](episode.png)

## Configuration

```json
{config.to_json()}```
"""


def _result_rows(path: Path, model_sha256: str) -> list[tuple[str, ...]]:
    """A row for each learner of a result file of `csn evaluate`."""
    rows: list[tuple[str, ...]] = []
    for result in results_in(path):
        of, learner = result.content["evaluation"], result.learner
        sampling = "" if result.sampling == "random" else f"{result.sampling} "
        split, attention = of.get("split", "test"), of.get("attention", "soft")
        tasks = f"{result.data}, {of['way']}-way {of['shot']}-shot, {of['tasks']:,} {sampling}{split} tasks"
        if learner == TRAINED and result.content["trained"].get("checkpoint_sha256", model_sha256) != model_sha256:
            learner += ", before training went on"
        rows.append((tasks, attention, learner, str(result.accuracy)))
    return rows
