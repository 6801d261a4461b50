"""`csn adapt` and `csn predict` as a user meets them."""

from __future__ import annotations

import io
import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from test_encoders import needs_text

from csn.classifier.classifier import FewShotClassifier
from csn.cli import main as cli
from csn.cli.inputs import labelled
from csn.cli.predict import told_apart
from csn.data import registry
from csn.data.images.strokes import load_strokes

TINY = ["--set", "network.filters=8", "--set", "train.validation_tasks=20", "--threads", "1", "--way", "5"]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a trained run and images/LABEL/*.png of three characters."""
    folder = tmp_path_factory.mktemp("adapt")
    small = load_strokes(alphabets=5, characters=8)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(registry.DATASETS, "strokes", registry.DataEntry("a few characters", lambda _: small))
        run = ["train", "adacnn-df", "--recipe", "plus", "--data", "strokes", *TINY, "--tasks", "4"]
        assert cli.main([*run, "--out", str(folder / "run")]) == 0
    classes = small.splits["test"]
    for c, label in enumerate(["alpha", "😀", "שלום"]):
        (folder / "images" / label).mkdir(parents=True)
        for i in range(3):
            drawing = 255 - classes.x[classes.counts[:c].sum() + i, 0].numpy()
            Image.fromarray(np.kron(drawing, np.ones((3, 3), dtype=np.uint8))).save(folder / f"images/{label}/{i}.png")
    return folder


def test_learn_a_folder_and_recognise_files(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    task, run = str(place / "task.csn"), ["--run", str(place / "run")]
    assert cli.main(["adapt", str(place / "images"), "--out", task, *run]) == 0
    assert "9 examples of 3 classes" in capsys.readouterr().out
    files = sorted(map(str, (place / "images").glob("*/0.png")))
    assert cli.main(["predict", task, *files, *run, "--json"]) == 0
    answers = json.loads(capsys.readouterr().out)
    assert [answer["file"] for answer in answers] == files
    for answer in answers:
        probabilities = dict(answer["probabilities"])
        assert set(probabilities) == {"alpha", "😀", "שלום"}
        assert answer["probability"] == max(probabilities.values()) == probabilities[answer["label"]]
        assert sum(example["weight"] for example in answer["examples"]) == pytest.approx(1, abs=1e-4)
        assert answer["examples"][0]["label"] == Path(answer["file"]).parent.name  # it is in memory itself
    assert cli.main(["predict", task, *files, *run]) == 0
    assert "alpha" in capsys.readouterr().out


def test_unknown_files(place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run, task = ["--run", str(place / "run")], str(tmp_path / "task.csn")
    assert cli.main(["adapt", str(place / "images"), "--out", task, *run, "--unknown-threshold", "1.1"]) == 0
    capsys.readouterr()
    assert cli.main(["predict", task, str(place / "images/alpha/0.png"), *run, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["label"] is None


def test_bad_input_exits_with_2(place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run, out = ["--run", str(place / "run")], str(tmp_path / "out.csn")
    (tmp_path / "none").mkdir()
    blank = tmp_path / "blank/a/x.png"
    blank.parent.mkdir(parents=True)
    Image.new("L", (30, 30), 255).save(blank)
    task = str(tmp_path / "good.csn")
    assert cli.main(["adapt", str(place / "images"), "--out", task, *run]) == 0
    Path(tmp_path / "short.csn").write_bytes(Path(task).read_bytes()[:-9])
    drawing = str(place / "images/alpha/0.png")
    for arguments, message in (
        (["adapt", "nowhere", "--out", out, *run], "is neither a folder nor a file"),
        (["adapt", str(tmp_path / "none"), "--out", out, *run], "has no subfolders with images"),
        (["adapt", str(tmp_path / "blank"), "--out", out, *run], "the drawing is empty"),
        (["adapt", str(place / "images"), "--out", out, "--model", "nothing"], "no weights named 'nothing'"),
        (["adapt", str(place / "images"), "--out", out, "--run", "nowhere"], "no checkpoint"),
        (["predict", "nowhere.csn", drawing, *run], "no checkpoint"),
        (["predict", str(tmp_path / "short.csn"), drawing, *run], "truncated"),
        (["predict", str(place / "run/best.safetensors"), drawing, *run], "is not a task file"),
        (["predict", task, drawing], "run= or learner="),
        (["predict", task, drawing, "nowhere.png", *run, "--bad-files", "stop"], "no file nowhere.png"),
        (["predict", task, str(blank), *run], "empty"),
    ):
        assert cli.main(arguments) == 2, arguments
        assert message in capsys.readouterr().err
    assert not Path(out).exists()


def test_no_threads_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["predict", "task.csn", "drawing.png", "--threads", "0"]) == 2
    assert "--threads must be at least 1, got 0" in capsys.readouterr().err


def vectors(folder: Path) -> Path:
    """Three classes of five vectors each, and their labels."""
    rows = np.random.default_rng(0).normal(size=(15, 8)) + 4 * np.eye(8)[np.repeat(np.arange(3), 5)]
    np.save(folder / "v.npy", rows)
    (folder / "labels.txt").write_text("\n".join(np.repeat(["a", "b", "ü"], 5)))
    return folder / "v.npy"


def test_vectors_with_labels_and_all_forms_of_answers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, task = str(vectors(tmp_path)), str(tmp_path / "task.csn")
    adapt = ["adapt", source, "--labels", str(tmp_path / "labels.txt"), "--out", task, "--unknown-threshold", "own"]
    assert cli.main(adapt) == 0
    assert "15 examples of 3 classes" in capsys.readouterr().out
    assert cli.main(["predict", task, source, "--csv", "--top", "2"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "file,label,probability,similarity,most_like,label_2,probability_2"
    assert len(lines) == 16
    assert lines[1].startswith("row 0,a,")
    assert cli.main(["predict", task, source, "--json", "--top", "2"]) == 0
    first = json.loads(capsys.readouterr().out)[0]
    assert first["top"][0] == ["a", first["probability"]]
    assert first["examples"][0]["name"].startswith("row ")
    assert cli.main(["predict", task, source, "--top", "0"]) == 2


def test_lines_of_standard_input(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    source, task = str(vectors(tmp_path)), str(tmp_path / "task.csn")
    assert cli.main(["adapt", source, "--labels", str(tmp_path / "labels.txt"), "--out", task]) == 0
    monkeypatch.setattr("sys.stdin", io.StringIO("4 0 0 0 0 0 0 0\n0,4,0,0,0,0,0,0\n"))
    capsys.readouterr()
    assert cli.main(["predict", task, "-", "--json"]) == 0
    assert [answer["label"] for answer in json.loads(capsys.readouterr().out)] == ["a", "b"]


def test_a_csv_of_numbers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = tmp_path / "t.csv"
    table.write_text("label,x,y\nup,0,1\nup,0.1,1\nright,1,0\nright,1,0.1\n")
    task = str(tmp_path / "task.csn")
    assert cli.main(["adapt", str(table), "--encoder", "none", "--out", task]) == 0
    assert cli.main(["predict", task, str(table), "--json"]) == 0
    answers = json.loads(capsys.readouterr().out.partition("\n")[2])
    assert [(answer["file"], answer["label"]) for answer in answers][::2] == [("t.csv:2", "up"), ("t.csv:4", "right")]


def test_one_bad_file_does_not_lose_the_answers(
    place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    task = str(tmp_path / "task.csn")
    assert cli.main(["adapt", str(place / "images"), "--out", task]) == 0  # the package's weights
    (place / "images/alpha/broken.png").write_bytes(b"no picture")
    files = [str(place / "images")]
    capsys.readouterr()
    try:
        assert cli.main(["predict", task, *files, "--json"]) == 1
        said = capsys.readouterr()
        assert len(json.loads(said.out)) == 9
        assert "broken.png: " in said.err
        assert cli.main(["predict", task, *files, "--json", "--bad-files", "skip"]) == 0
        assert "broken.png" in capsys.readouterr().err
        assert cli.main(["predict", task, *files, "--bad-files", "stop"]) == 2
        assert cli.main(["adapt", str(place / "images"), "--out", task]) == 2
        assert "broken.png" in capsys.readouterr().err
        assert cli.main(["adapt", str(place / "images"), "--out", task, "--bad-files", "skip"]) == 0
        assert "learned 9 examples" in capsys.readouterr().out
    finally:
        (place / "images/alpha/broken.png").unlink()


@pytest.mark.parametrize("encoder", ["text", "none"])
@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"text,label\n" + b"a" * 100_000_000 + b",x\n", "field larger than field limit"),
        (b'text,label\n"' + b"a,\n" * 10_000_000, "field larger than field limit"),
        (b"text,label\n\xff\xfe,x\n", "is not a CSV file in UTF-8"),
    ],
    ids=["100 MB in one cell", "a quote that is never closed", "no UTF-8"],
)
def test_hostile_tables_are_refused(content: bytes, message: str, encoder: str, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_bytes(content)
    with pytest.raises(ValueError, match=message):
        labelled(tmp_path / "t.csv", encoder, None)


def test_a_terminal_is_shown_what_strangers_wrote_and_never_obeys_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Labels of a task file and names of files may hold escape sequences, which set titles and clipboards."""
    clear, vectors = "\x1b[2J\x9bx", np.eye(3, 4, dtype=np.float32)
    np.save(tmp_path / "vectors.npy", vectors)
    FewShotClassifier(encoder=None).fit(vectors, [clear, "b", "c"]).save(tmp_path / "task.csn")
    bad = tmp_path / "a\x1b]0;title\x07.npy"
    bad.write_bytes(b"no vectors")
    assert cli.main(["predict", str(tmp_path / "task.csn"), str(tmp_path / "vectors.npy")]) == 0
    assert cli.main(["predict", str(tmp_path / "task.csn"), str(bad)]) == 2
    said = capsys.readouterr()
    assert r"\x1b[2J\x9bx" in said.out
    assert r"a\x1b]0;title\x07.npy" in said.err
    assert not any(letter in said.out + said.err for letter in "\x1b\x9b\x07")


def test_names_are_told_apart_in_a_narrow_table(
    place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert told_apart(["/a/very/long/folder/x/1.png", "/a/very/long/folder/y/1.png"], 30) == ["x/1.png", "y/1.png"]
    cut = told_apart(["f" * 50 + "1.png", "f" * 50 + "2.png"], 20)
    assert len(set(cut)) == 2
    assert all(len(name) == 20 for name in cut)
    assert told_apart(["a.png"], 20) == ["a.png"]
    alike = [f"{'f' * 30}{i}{'g' * 30}.png" for i in (1, 2, 1)]
    cut = told_apart(alike, 20)
    assert cut[0] == cut[2] != cut[1]
    assert max(map(len, cut)) <= 20
    task = str(tmp_path / "task.csn")
    assert cli.main(["adapt", str(place / "images"), "--out", task]) == 0
    capsys.readouterr()
    assert cli.main(["predict", task, str(place / "images"), "--top", "2"]) == 0
    said = capsys.readouterr().out
    assert "alpha/1.png" in said
    assert said.count("alpha/1.png") == 2  # its row, and as what it is most like


@pytest.mark.parametrize(
    ("content", "arguments", "message"),
    [
        ("a,b\n1,2\n", [], "no column label or class"),
        ("label,b\n1,2\n", [], "no column text or sentence"),
        ("label,text\n", [], "no rows"),
        ("label,text\nx\n", [], "line 2"),
        ("label,text\na,b\n", ["--encoder", "none"], "is not a table of numbers"),
        ("label,text\na,\x00\n", ["--encoder", "none"], "t.csv"),
        ("label,text\na,b\n", ["--run", "x"], "--run"),
        ("label,text\na,b\n", ["--labels", "x"], "--labels"),
    ],
)
def test_bad_tables_are_refused(
    content: str, arguments: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "t.csv").write_text(content)
    assert cli.main(["adapt", str(tmp_path / "t.csv"), "--out", str(tmp_path / "o.csn"), *arguments]) == 2
    assert message in capsys.readouterr().err
    (tmp_path / "t.csv").write_bytes(b"label,text\na,\xff\n")
    assert cli.main(["adapt", str(tmp_path / "t.csv"), "--out", str(tmp_path / "o.csn")]) == 2
    assert "UTF-8" in capsys.readouterr().err


def test_bad_vectors_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    labels, out = tmp_path / "labels.txt", ["--out", str(tmp_path / "o.csn")]
    labels.write_text("a\nb")
    np.save(tmp_path / "objects.npy", np.array([{}, 1], dtype=object), allow_pickle=True)
    np.save(tmp_path / "flat.npy", np.zeros(3))
    np.save(tmp_path / "three.npy", np.zeros((3, 2)))
    for name, message in (("objects", "numpy.save"), ("flat", "one vector per row"), ("three", "3 vectors")):
        assert cli.main(["adapt", str(tmp_path / f"{name}.npy"), "--labels", str(labels), *out]) == 2
        assert message in capsys.readouterr().err
    assert cli.main(["adapt", str(tmp_path / "three.npy"), *out]) == 2
    assert "--labels" in capsys.readouterr().err


HEADER = b"{'descr': '<f8', 'fortran_order': False, 'shape': %s, }"
DAMAGED = {
    "an archive that is none": b"PK\x03\x04 and no more",
    "more than memory holds": b"\x93NUMPY\x01\x00\x76\x00" + (HEADER % b"(99999999999, 4)").ljust(117) + b"\n",
    "brackets without an end": b"\x93NUMPY\x01\x00\x10\x27" + b"(" * 9999 + b"\n",
}


@pytest.mark.parametrize("what", DAMAGED)
def test_damaged_vectors_are_named(what: str, tmp_path: Path) -> None:
    path, labels = tmp_path / "x.npy", tmp_path / "labels.txt"
    path.write_bytes(DAMAGED[what])
    labels.write_text("a\n")
    with pytest.raises(ValueError, match=r"x\.npy is not an array that numpy\.save wrote"):
        labelled(path, "none", labels)


def test_a_text_that_is_no_utf_8_is_named(tmp_path: Path) -> None:
    (tmp_path / "label").mkdir()
    (tmp_path / "label" / "latin.txt").write_bytes(b"caf\xe9")
    with pytest.raises(ValueError, match=r"latin\.txt is not text in UTF-8"):
        labelled(tmp_path, "text", None)


@needs_text
def test_a_folder_where_vectors_are_expected(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    np.save(tmp_path / "x.npy", np.eye(4))
    (tmp_path / "y.txt").write_text("a\na\nb\nb\n")
    (tmp_path / "pictures").mkdir()
    Image.new("L", (9, 9)).save(tmp_path / "pictures" / "one.png")
    task = str(tmp_path / "task.csn")
    assert cli.main(["adapt", str(tmp_path / "x.npy"), "--labels", str(tmp_path / "y.txt"), "--out", task]) == 0
    assert cli.main(["predict", task, str(tmp_path / "pictures")]) == 2
    assert "is a folder, and the task is not of pictures: give a .npy file of vectors" in capsys.readouterr().err


def test_a_table_of_sentences(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = ["book a flight,fly", "a plane ticket please,fly", "what is my balance,money", "how much have i saved,money"]
    (tmp_path / "t.csv").write_text("text,label\n" + "\n".join(rows) + "\n")
    task = str(tmp_path / "task.csn")
    assert cli.main(["adapt", str(tmp_path / "t.csv"), "--out", task]) == 0
    (tmp_path / "new.txt").write_text("fly me to the moon\n\nshow my account\n")
    capsys.readouterr()
    assert cli.main(["predict", task, str(tmp_path / "new.txt"), "--csv"]) == 0
    assert [line.split(",")[1] for line in capsys.readouterr().out.splitlines()[1:]] == ["fly", "money"]
