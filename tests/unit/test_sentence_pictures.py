"""Tasks of blanked words in the terminal and on a page: what is shown is what the task and the learner say."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console, RenderableType
from torch import Tensor, tensor

from csn.cli import main as cli
from csn.cli.sentences import class_table, sentence_tables
from csn.data.source import EpisodeSource
from csn.data.text.toy_language import load_toy_language
from csn.engine.answers import Sentence, SentenceTask, sentence_task
from csn.episode import Episode, Examples
from csn.learner import FewShotLearner
from csn.plots import drawing
from csn.plots.drawing import BLUE, ORANGE, RIGHT, WRONG
from csn.plots.episodes import learning_curve
from csn.plots.sentences import sentence_figure

VOCABULARY = ("<pad>", "<blank>", "<unk>", "the", "cat", "sat", "[red]", "dog")
NAMES = ("mat", "[red]hat")
SUPPORT = tensor([[0, 3, 1, 5, 0], [3, 4, 1, 0, 0], [0, 0, 1, 6, 7]])
QUERIES = tensor([[0, 2, 1, 5, 7], [0, 7, 1, 0, 0]])


class Scripted(FewShotLearner):
    """Answers class 1 at 3/4; its attention is 0.5, 0.3, 0.2."""

    way = 2

    def __init__(self, *, attentive: bool) -> None:
        super().__init__()
        if attentive:
            self.attend = lambda x, task: tensor([0.5, 0.3, 0.2]).expand(1, x.shape[1], 3)

    def describe(self, support: Examples, way: int | None = None) -> None:
        return None

    def predict(self, x: Tensor, task: Any) -> Tensor:
        return tensor([0.25, 0.75]).log().expand(1, x.shape[1], 2)


def episode(tasks: int = 1) -> Episode:
    support = Examples(SUPPORT.repeat(tasks, 1, 1), tensor([[0, 0, 1]]).repeat(tasks, 1))
    return Episode(support, Examples(QUERIES.repeat(tasks, 1, 1), tensor([[1, 0]]).repeat(tasks, 1)), 2)


def task(learner: FewShotLearner | None = None) -> SentenceTask:
    return sentence_task(episode(), VOCABULARY, NAMES, learner)


def printed(renderable: RenderableType, width: int = 100) -> list[str]:
    console = Console(width=width, color_system=None)
    with console.capture() as capture:
        console.print(renderable)
    return [" ".join(line.split()) for line in capture.get().splitlines()]


def test_rows_are_spelled_around_their_blank() -> None:
    shown = task()
    assert shown.support == [Sentence("the", "sat", 0), Sentence("the cat", "", 0), Sentence("", "[red] dog", 1)]
    assert shown.queries == [Sentence("<unk>", "sat dog", 1), Sentence("dog", "", 0)]
    assert shown.answers == []


def test_a_support_of_words_shows_the_words() -> None:
    told = Episode(Examples(tensor([[[4], [7]]]), tensor([[0, 1]])), episode().query, 2)
    assert sentence_task(told, VOCABULARY, NAMES).support[1] == Sentence("", "(the word dog)", 1)


def test_answers_come_with_attention_or_else_probabilities() -> None:
    shown = task(Scripted(attentive=True))
    assert [answer.label for answer in shown.answers] == [1, 1]
    assert shown.answers[0].probability == pytest.approx(0.75)
    assert shown.answers[0].weights == pytest.approx([0.5, 0.3, 0.2])
    assert shown.by_label(shown.answers[0]) == pytest.approx([0.8, 0.2])
    shown = task(Scripted(attentive=False))
    assert shown.by_label(shown.answers[0]) == pytest.approx([0.25, 0.75])
    assert "probability" in shown.weighs


def test_the_terminal_shows_sentences_answers_and_weights() -> None:
    lines = printed(sentence_tables(task(Scripted(attentive=True)), title="A task"))
    assert "A task" in lines
    assert "0 mat the cat ____" in lines
    assert "1 [red]hat ____ [red] dog" in lines  # no markup is read into words
    assert f"{RIGHT} [red]hat 75 % <unk> ____ sat dog 80 20" in lines
    assert f"{WRONG} [red]hat 75 %, is mat dog ____ 80 20" in lines
    assert lines[-1] == "The columns on the right: attention to each sentence of the support, by label, in %."
    assert "mat dog ____" in printed(sentence_tables(task()))


@pytest.mark.parametrize("width", [60, 80, 120])
def test_long_sentences_are_cut_away_from_the_blank(width: int) -> None:
    long = Sentence(" ".join(["before"] * 20), " ".join(["after"] * 20), 0)
    shown = SentenceTask(("a", "b"), [long], [long], [], "")
    console = Console(width=width, color_system=None)
    with console.capture() as capture:
        console.print(sentence_tables(shown, width=width))
    lines = [line for line in capture.get().splitlines() if "____" in line]
    assert len(lines) == 2
    for line in lines:
        assert "before  ____  after" in line
        assert line.count("…") == 2
        assert len(line.rstrip()) <= width


def texts(figure: Any) -> list[tuple[str, str]]:
    return [(text.get_text(), text.get_color()) for text in figure.axes[0].texts]


def test_the_page_shows_sentences_answers_and_bars() -> None:
    figure = sentence_figure(task(Scripted(attentive=True)), title="A task")
    shown = texts(figure)
    for expected in (("A task", "#222222"), (f"{RIGHT} [red]hat", BLUE), (f"{WRONG} [red]hat", ORANGE)):
        assert expected in shown
    words = [text for text, _ in shown]
    assert {"the cat", "[red] dog", "sat dog", "75 %, is mat"} <= set(words)
    assert words.count("____") == 5
    (bars,) = figure.axes[0].collections
    heights = [path.vertices[:, 1].max() - path.vertices[:, 1].min() for path in bars.get_paths()]
    assert heights == pytest.approx([32, 16, 32, 9.6, 32, 6.4] * 2)  # a track, and the weight on it
    plain = sentence_figure(task())
    assert len(plain.axes[0].collections) == 0
    assert drawing.png(plain).startswith(b"\x89PNG")


def test_a_batch_of_tasks_is_refused() -> None:
    with pytest.raises(ValueError, match="one task, got a batch of 2"):
        sentence_task(episode(2), VOCABULARY, NAMES)


def test_words_of_a_split_with_their_first_sentence() -> None:
    data = load_toy_language()
    classes = data.splits["val"]
    lines = printed(class_table(classes, data.vocabulary, 3, title="three words"))
    assert [line.split()[0] for line in lines[2:]] == [classes.names[c] for c in (0, 14, 29)]
    assert [int(line.split()[1]) for line in lines[2:]] == [classes.counts[c] for c in (0, 14, 29)]
    assert all("____" in line for line in lines[2:])
    with pytest.raises(ValueError, match="1 to 30 words of this split, got 31"):
        class_table(classes, data.vocabulary, 31)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A CSN and a language model, barely trained."""
    folder = tmp_path_factory.mktemp("runs")
    options = ["--data", "toy-language", "--threads", "1", "--set", "train.validation_tasks=4"]
    small = ["--set", "network.units=8", "--set", "network.embedding=8"]
    assert cli.main(["train", "lstm-adaffn-df", *options, *small, "--tasks", "4", "--out", str(folder / "csn")]) == 0
    small = [word.replace("network.", "learner.") for word in small]
    assert cli.main(["train", "lstm-lm", *options, *small, "--tasks", "32", "--out", str(folder / "lm")]) == 0
    return folder


@pytest.mark.parametrize(("name", "unit"), [("csn", "tasks"), ("lm", "sentences")])
def test_show_and_report_of_a_run(
    runs: Path,
    name: str,
    unit: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.setattr(drawing, "SCALE", 1)
    picture = tmp_path / "task.png"
    assert cli.main(["show", "--run", str(runs / name), "--episode", "2", "--out", str(picture)]) == 0
    assert picture.read_bytes().startswith(b"\x89PNG")
    output = capsys.readouterr().out
    source = EpisodeSource(load_toy_language(), "test", way=5, shot=1, queries=2, seed=2018)
    row = source.classes.x[source.rows(2)[1][0, 0]]
    after = row[torch.nonzero(row == 1)[0, 0] + 1]
    assert load_toy_language().vocabulary[int(after)] in output or int(after) in (0, 2)
    assert output.count("____") == 15

    assert cli.main(["report", str(runs / name)]) == 0
    page = (runs / name / "report" / "report.md").read_text(encoding="utf-8")
    tasks = json.loads((runs / name / "log.jsonl").read_text().splitlines()[-1])["tasks"]
    assert f"{tasks} of {tasks} {unit}" in page
    assert ("validation perplexity" in page) == (name == "lm")
    assert (runs / name / "report" / "episode.png").read_bytes().startswith(b"\x89PNG")


def test_show_of_words_and_of_another_text(runs: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert cli.main(["show", "--data", "toy-language", "--classes", "4"]) == 0
    assert capsys.readouterr().out.count("____") == 4
    assert cli.main(["show", "--run", str(runs / "csn"), "--data", "strokes", "--out", str(tmp_path / "x.png")]) == 2
    assert "word ids mean other words" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_the_curve_of_a_language_model_counts_sentences_and_marks_the_least_perplexity() -> None:
    log = [
        {"tasks": 32, "train": {"loss": 6.0, "accuracy": 0.05}},
        {"tasks": 32, "validation": {"accuracy": 0.5, "interval": 0.1, "best": True, "perplexity": 300.0}},
        {"tasks": 64, "validation": {"accuracy": 0.4, "interval": 0.1, "best": True, "perplexity": 200.0}},
        {"tasks": 96, "validation": {"accuracy": 0.6, "interval": 0.1, "best": False, "perplexity": 250.0}},
    ]
    above, below = learning_curve(log).axes
    assert below.get_xlabel() == "training sentences"
    labels = [text.get_text() for text in above.get_legend().get_texts()]
    assert "training, next word" in labels
    assert "best: 40.00 ± 10.00 % after 64 sentences" in labels
