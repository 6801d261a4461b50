"""The LSTM-LM oracle: what it says of a sentence, what it is told of a task, how it is trained."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import tensor
from torch.testing import assert_close

from csn.baselines import lstm_lm
from csn.baselines.lstm_lm import LanguageModel
from csn.config import TrainConfig
from csn.data.partition import PartitionSource
from csn.data.source import Dataset, EpisodeSource
from csn.data.text.running import LONGEST, RunningText, running_text
from csn.data.text.sentences import text_dataset
from csn.data.text.toy_language import load_toy_language, toy_text
from csn.engine.checkpoint import load_checkpoint
from csn.engine.language import LanguageTrainer
from csn.engine.reports import StepReport, ValidationReport
from csn.engine.train import model_tensors
from csn.episode import Examples
from csn.networks.sentences import UNKNOWN

VOCABULARY, WAY = 12, 3
QUERIES = tensor(
    [
        [0, 0, 5, 1, 6, 7, 0],  # ends within the window
        [4, 5, 9, 1, 0, 0, 0],  # blank at its end
        [0, 0, 0, 1, 6, 7, 8],  # full to the last step: it may go on
        [3, 4, 5, 1, 6, 2, 8],
    ]
)


def small(seed: int = 0, layers: int = 2) -> LanguageModel:
    torch.manual_seed(seed)
    model = LanguageModel(VOCABULARY, WAY, embedding=5, units=4, layers=layers).eval()
    torch.nn.init.normal_(model.bias)
    return model


def log_probabilities(model: LanguageModel, words: list[int]) -> list[float]:
    """log p of every word after those before it, one word at a time; a sentence begins after PAD (0)."""
    state, before, found = None, 0, []
    for word in words:
        output, state = model.lstm(model.embedding(tensor([[before]])), state)
        logits = model.embedding.weight @ model.projection(output[0, 0]) + model.bias
        found.append(float((logits[word] - logits.exp().sum().log()).detach()))
        before = word
    return found


def told(words: list[list[int]]) -> Examples:
    """A support that tells the words of labels 0, 1, ... of each task."""
    x = tensor(words).unsqueeze(-1)
    return Examples(x, torch.arange(x.shape[1]).repeat(len(x), 1))


def test_the_answer_is_the_word_that_makes_the_sentence_most_probable(float64) -> None:
    model, words = small(), [8, 3, 10]
    scores = model.predict(QUERIES[None], model.describe(told([words])))[0]
    for row, score in zip(QUERIES.tolist(), scores, strict=True):
        ended = row[-1] == 0
        expected = []
        for word in words:
            sentence = [word if w == 1 else w for w in row if w != 0] + [0] * ended
            expected.append(sum(log_probabilities(model, sentence)))
        assert_close(score - score[0], tensor(expected) - expected[0])  # what precedes the blank is common to all


def test_next_words_are_all_words_and_the_end(float64) -> None:
    model = small(layers=1)
    logits, following = model.next_words(tensor([[5, 6, 0, 0], [7, 8, 9, 3]]))
    assert following.tolist() == [5, 6, 0, 7, 8, 9, 3, 0]
    found = logits.log_softmax(-1).gather(1, following[:, None])[:, 0]
    assert_close(found, tensor(log_probabilities(model, [5, 6, 0]) + log_probabilities(model, [7, 8, 9, 3, 0])))


def test_a_query_is_answered_alone_as_among_others(float64, monkeypatch: pytest.MonkeyPatch) -> None:
    model = small()
    task = model.describe(told([[8, 3, 10], [4, 9, 5]]))
    x = torch.stack([QUERIES, QUERIES.flip(0)])
    together = model.predict(x, task)
    for j in range(4):
        assert_close(model.predict(x[:, j : j + 1], task)[:, 0], together[:, j])
    monkeypatch.setattr(lstm_lm, "SENTENCES_AT_ONCE", 1)
    assert_close(model.predict(x, task), together)


def test_the_support_tells_which_word_a_label_stands_for() -> None:
    support = Examples(tensor([[[8], [3], [8], [10]]]), tensor([[1, 0, 1, 2]]))
    assert small().describe(support).tolist() == [[3, 8, 10]]


@pytest.mark.parametrize(
    ("support", "message"),
    [
        (Examples(QUERIES[None], tensor([[0, 1, 2, 0]])), r"must be words.*got \(1, 4, 7\).*support='words'"),
        (Examples(tensor([[[3], [4]]]), tensor([[0, 2]])), r"needs all 3 words, got labels \[0, 2\]"),
        (told([[3, 4, 5, 6]]), "2 to 3 ways, got 4"),
    ],
)
def test_bad_supports_are_refused(support: Examples, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        small().describe(support)


def test_bad_queries_and_networks_are_refused() -> None:
    model = small()
    task = model.describe(told([[8, 3, 10]]))
    with pytest.raises(ValueError, match="exactly one blank"):
        model.predict(tensor([[[3, 4, 5]]]), task)
    with pytest.raises(ValueError, match="another vocabulary"):
        model.predict(tensor([[[3, 1, 99]]]), task)
    with pytest.raises(ValueError, match="1 tasks were described"):
        model.predict(QUERIES[None].repeat(2, 1, 1), task)
    with pytest.raises(ValueError, match="at least one layer"):
        LanguageModel(VOCABULARY, WAY, layers=0)


@pytest.mark.parametrize("kind", [EpisodeSource, PartitionSource])
def test_the_oracle_gets_the_queries_of_everyone_and_the_words_of_the_support(kind: type[EpisodeSource]) -> None:
    options = {"way": 5, "shot": 2, "queries": 1, "seed": 3}
    usual, oracle = load_toy_language(), load_toy_language(vocabulary="all")
    theirs = kind(usual, "test", **options)
    ours = kind(oracle, "test", **options, support="words")
    for index in range(3):
        assert np.array_equal(theirs.rows(index)[0], ours.rows(index)[0])
        episode = ours.batch(index, 1)
        assert episode.support.x.shape == (1, 10, 1)
        shown, asked = ours.rows(index)
        ends = np.cumsum(ours.classes.counts)
        names = [ours.classes.names[int(np.searchsorted(ends, row, side="right"))] for row in shown[:, 0]]
        assert [oracle.vocabulary[i] for i in episode.support.x[0, ::2, 0]] == names
        for a, b in zip(theirs.classes.x[asked[:, 0]], episode.query.x[0], strict=True):
            known = (a >= 0) & (a != UNKNOWN)  # below 0 are words out of vocabulary
            assert [usual.vocabulary[i] for i in a[known]] == [oracle.vocabulary[i] for i in b[known]]


def test_a_vocabulary_without_the_held_out_words_cannot_tell_them() -> None:
    with pytest.raises(
        ValueError, match=r"60 of 60 classes of toy-language are not in its vocabulary.*vocabulary='all'"
    ):
        EpisodeSource(load_toy_language(), "test", way=5, shot=1, queries=1, seed=0, support="words")


def lines(number: int) -> list[list[str]]:
    return [f"w{i} is w{i + 1}".split() for i in range(number)]


def tasks(sentences: list[list[str]]) -> Dataset:
    return text_dataset("lines", sentences, ["w3"], val_words=1, val_range=(2, 2), class_min=2, vocabulary="all")


def test_running_text_is_whole_sentences_in_the_vocabulary_of_the_tasks() -> None:
    sentences = [*lines(40), ["w0"] * 150, ["nowhere", "<unk>", "w0"]]
    data = dataclasses.replace(tasks(lines(41)))
    text = running_text(data, sentences)
    assert text.vocabulary == data.vocabulary
    assert text.train.shape == (40, LONGEST)
    ids = {word: i for i, word in enumerate(text.vocabulary)}
    assert text.train[3, :4].tolist() == [ids["w3"], ids["is"], ids["w4"], 0]  # a test word is there
    assert [row[0] for row in text.val[:, :1].tolist()] == [ids["w19"], ids["w39"]]  # the 20th and the 40th
    assert text.train[-1, :4].tolist() == [2, 2, ids["w0"], 0]
    assert running_text(data, lines(2), lines(1)).val.tolist() == [[ids["w0"], ids["is"], ids["w1"]]]


def test_texts_too_small_for_a_language_model_are_refused() -> None:
    with pytest.raises(ValueError, match="has 7 and 0: bring at least 20 sentences"):
        running_text(tasks(lines(41)), lines(7))
    with pytest.raises(ValueError, match="no words"):
        running_text(dataclasses.replace(tasks(lines(41)), vocabulary=None), lines(30))


TRAIN = TrainConfig(tasks=96, tasks_per_step=8, validate_every=32, validation_tasks=4, learning_rate=0.01, seed=1)


@pytest.fixture(scope="module")
def text() -> RunningText:
    whole = toy_text()
    return dataclasses.replace(whole, train=whole.train[:100], val=whole.val[:20])


def trainer(folder: Path, text: RunningText, config: TrainConfig = TRAIN) -> LanguageTrainer:
    torch.manual_seed(0)
    model = LanguageModel(len(text.vocabulary), 5, embedding=8, units=8, layers=1, dropout=0.2)
    validation = EpisodeSource(text.tasks, "val", way=5, shot=1, queries=1, seed=0, support="words")
    return LanguageTrainer(model, config, text, validation, folder, about={"name": "test"})


def test_a_pass_over_the_text_takes_every_sentence_once_in_batches_of_like_length(tmp_path, text) -> None:
    run = trainer(tmp_path, text)
    batches = run._epoch(0)
    assert [len(batch) for batch in batches] == [8] * 12  # 100 sentences
    assert len(np.unique(np.concatenate(batches))) == 96
    assert not np.array_equal(np.concatenate(batches), np.concatenate(run._epoch(1)))
    lengths = (text.train != 0).sum(1).numpy()
    assert np.mean([np.ptp(lengths[batch]) for batch in batches]) <= 1


def test_resuming_equals_never_having_stopped(tmp_path, text) -> None:
    straight, reports = trainer(tmp_path / "straight", text), []
    assert straight.run(reports.append) == "finished"
    first, found = trainer(tmp_path / "cut", text), []
    assert first.run(found.append, should_stop=lambda: first.tasks >= 40) == "interrupted"
    second = trainer(tmp_path / "cut", text)
    second.resume()
    assert second.run(found.append) == "finished"
    assert found == reports
    for name, expected in model_tensors(straight.learner).items():
        assert torch.equal(model_tensors(second.learner)[name], expected), name


def test_the_model_of_least_perplexity_is_kept(tmp_path, text) -> None:
    run, reports = trainer(tmp_path, text), []
    run.run(reports.append)
    validations = [report for report in reports if isinstance(report, ValidationReport)]
    assert [report.tasks for report in validations] == [32, 64, 96]
    best = min(validations, key=lambda report: report.perplexity or 0)
    _, metadata = load_checkpoint(tmp_path / "best.safetensors")
    assert (metadata["perplexity"], metadata["tasks"]) == (best.perplexity, best.tasks)
    assert metadata["validation"] == best.accuracy
    assert run.standing == f"best validation perplexity {best.perplexity:.1f}"


def test_perplexity_is_that_of_the_validation_sentences(tmp_path, text, float64) -> None:
    run = trainer(tmp_path, text)
    run.learner.double()
    losses: list[float] = []
    for row in text.val.tolist():
        words = [word for word in row if word != 0]
        losses += [-p for p in log_probabilities(run.learner.eval(), [*words, 0])]
    assert run._perplexity() == pytest.approx(float(np.exp(np.mean(losses))))
    assert run.learner.training


def test_it_learns_which_word_follows(tmp_path) -> None:
    """Nouns of one kind follow one article, those of the other the other: half of the answers are then certain."""
    rng = np.random.default_rng(0)
    kinds = {"ta": [f"a{i}" for i in range(12)], "to": [f"o{i}" for i in range(12)]}
    sentences = [[article, str(rng.choice(kinds[article]))] for article in rng.choice(["ta", "to"], 600)]
    sentences = [[str(article), noun, f"x{number}"] for number, (article, noun) in enumerate(sentences)]
    data = text_dataset("kinds", sentences, kinds["ta"][:3] + kinds["to"][:3], val_words=6, vocabulary="all")
    text = running_text(data, sentences)
    config = dataclasses.replace(TRAIN, tasks=1600, validate_every=800, validation_tasks=40, learning_rate=0.02)
    torch.manual_seed(0)
    model = LanguageModel(len(text.vocabulary), 2, embedding=8, units=8, layers=1)
    validation = EpisodeSource(data, "val", way=2, shot=1, queries=2, seed=0, support="words")
    reports: list[StepReport | ValidationReport] = []
    LanguageTrainer(model, config, text, validation, tmp_path).run(reports.append)
    first, last = (report for report in reports if isinstance(report, ValidationReport))
    assert last.perplexity < first.perplexity
    assert last.accuracy > 0.62, last.accuracy  # chance is 0.5; a pair of one kind cannot be told apart: 0.77 at best


def test_more_sentences_a_step_than_there_are_is_refused(tmp_path, text) -> None:
    with pytest.raises(ValueError, match="asks for 101 sentences a step, but the text has only 100"):
        trainer(tmp_path, text, dataclasses.replace(TRAIN, tasks_per_step=101))
