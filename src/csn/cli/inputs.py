"""What `csn adapt` and `csn predict` read: folders and files of pictures, tables of sentences, vectors."""

from __future__ import annotations

import csv
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from csn.classifier.collect import PICTURES

TEXT_COLUMNS, LABEL_COLUMNS, FILE_COLUMNS = ("text", "sentence"), ("label", "class"), ("file", "path", "image")
LONGEST_FIELD = 1_000_000


class Rows(NamedTuple):
    """Examples to learn or to recognise. items: pictures' paths, texts or vectors; names: what to call them."""

    items: list[Any]
    labels: list[str]
    names: list[str]


def labelled(source: Path, kind: str, labels: Path | None) -> Rows:
    """Examples with their labels; kind: of the encoder (drawings, photos, text or none)."""
    if labels is not None and kind != "none":
        raise ValueError(f"--labels goes with vectors, --encoder none; {source} has its labels in itself")
    if source.is_dir():
        if kind == "none":
            raise ValueError(f"{source} is a folder: vectors come as a .npy file, or a .csv with a column label")
        files = labelled_files(source) if kind != "text" else _labelled_texts(source)
        names = _apart([path for path, _ in files])
        items = [_text(path) if kind == "text" else path for path, _ in files]
        return Rows(items, [label for _, label in files], names)
    if not source.is_file():
        raise ValueError(
            f"{source} is no folder and no file: give a folder that holds a folder of examples for each label"
        )
    if source.suffix.lower() == ".npy":
        if kind != "none" or labels is None:
            raise ValueError(f"{source} holds vectors: use --encoder none and --labels FILE, one label a line")
        vectors, lines = _vectors(source), _lines(labels)
        if len(vectors) != len(lines):
            raise ValueError(
                f"{source} has {len(vectors)} vectors, {labels} has {len(lines)} labels: give one for each"
            )
        return Rows(list(vectors), lines, [f"row {i}" for i in range(len(lines))])
    rows = _table(source)
    label = _column(source, rows, LABEL_COLUMNS)
    return _of_table(source, rows, kind, [row[label] for row in rows], label)


def unlabelled(sources: Sequence[str], kind: str) -> Rows:
    """What is to be recognised: files, folders of files, a table, or - for lines of standard input."""
    found = Rows([], [], [])
    for source in sources:
        path = Path(source)
        if source == "-":
            lines = [line.rstrip("\n") for line in sys.stdin]
            part = _of_lines([line for line in lines if line.strip()], kind, "line")
        elif path.is_dir():
            files = sorted(p for p in path.rglob("*") if p.is_file() and p.suffix.lower() in PICTURES)
            if kind in ("text", "none") or not files:
                raise ValueError(f"{path} holds no pictures: give a folder of {', '.join(sorted(PICTURES))} files")
            part = Rows(list(files), [], [str(file) for file in files])
        elif kind in ("drawings", "photos"):
            part = Rows([path], [], [source])
        elif not path.is_file():
            raise ValueError(f"there is no file {path}: give a .csv or .txt file, or - for standard input")
        elif path.suffix.lower() == ".npy":
            vectors = _vectors(path)
            part = Rows(list(vectors), [], [f"row {i}" for i in range(len(vectors))])
        elif path.suffix.lower() == ".csv":
            part = _of_table(path, _table(path), kind, [], None)
        else:
            part = _of_lines(_lines(path), kind, "line")
        found = Rows(found.items + part.items, [], found.names + part.names)
    if not found.items:
        raise ValueError("there is nothing to recognise: the files hold no examples")
    return found


def labelled_files(folder: Path) -> list[tuple[Path, str]]:
    """(file, label) of every image in the folders of `folder`, which are the labels; in the order of their names."""
    return _in_folders(folder, PICTURES, "images", "*.png")


def _labelled_texts(folder: Path) -> list[tuple[Path, str]]:
    return _in_folders(folder, {".txt"}, "texts", "*.txt")


def _in_folders(folder: Path, suffixes: set[str], what: str, pattern: str) -> list[tuple[Path, str]]:
    files = [
        (path, label.name)
        for label in sorted(folder.iterdir())
        if label.is_dir() and not label.name.startswith(".")
        for path in sorted(label.iterdir())
        if path.is_file() and path.suffix.lower() in suffixes
    ]
    if not files:
        kinds = ", ".join(sorted(suffixes))
        raise ValueError(
            f"{folder} holds no {what} in folders of its own: expected {folder}/LABEL/{pattern} (or {kinds})"
        )
    return files


def _of_table(path: Path, rows: list[dict[str, str]], kind: str, labels: list[str], label: str | None) -> Rows:
    names = [f"{path.name}:{i + 2}" for i in range(len(rows))]  # the lines of the file, the header being the first
    if kind == "text":
        column = _column(path, rows, TEXT_COLUMNS)
        return Rows([row[column] for row in rows], labels, names)
    if kind == "none":
        columns = [name for name in rows[0] if name != label and name not in LABEL_COLUMNS]
        try:
            return Rows([np.array([float(row[name]) for name in columns]) for row in rows], labels, names)
        except ValueError as error:
            raise ValueError(f"{path} holds no table of numbers ({error}): use --encoder text for sentences") from error
    column = _column(path, rows, FILE_COLUMNS)
    return Rows([path.parent / row[column] for row in rows], labels, [row[column] for row in rows])


def _of_lines(lines: list[str], kind: str, name: str) -> Rows:
    names = [f"{name} {i + 1}" for i in range(len(lines))]
    if kind == "text":
        return Rows(list(lines), [], names)
    if kind == "none":
        try:
            return Rows([np.array([float(x) for x in line.replace(",", " ").split()]) for line in lines], [], names)
        except ValueError as error:
            raise ValueError(f"expected a line of numbers for each vector ({error})") from error
    return Rows([Path(line) for line in lines], [], list(lines))


def _table(path: Path) -> list[dict[str, str]]:
    """The rows of a CSV file with a header."""
    before = csv.field_size_limit(LONGEST_FIELD)
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            reader = csv.DictReader(file, strict=True)
            rows = [{(k or "").strip().lower(): v for k, v in row.items() if isinstance(k, str)} for row in reader]
    except (csv.Error, UnicodeDecodeError, ValueError) as error:
        raise ValueError(f"{path} is no CSV file in UTF-8 ({error}): save it as one, with a header") from error
    finally:
        csv.field_size_limit(before)
    if not rows:
        raise ValueError(f"{path} holds no rows below its header")
    for i, row in enumerate(rows):
        if any(value is None for value in row.values()):
            raise ValueError(f"{path}, line {i + 2}, has fewer fields than the header: repair it")
    return rows


def _column(path: Path, rows: list[dict[str, str]], names: tuple[str, ...]) -> str:
    for name in names:
        if name in rows[0]:
            return name
    raise ValueError(f"{path} has no column {' or '.join(names)}, it has: {', '.join(rows[0])}. Name one of them so")


def _vectors(path: Path) -> np.ndarray:
    try:
        with path.open("rb") as file:
            vectors = np.load(file, allow_pickle=False)
    except Exception as error:  # a damaged header makes numpy raise almost anything
        raise ValueError(f"{path} is no file of numbers that numpy.save wrote ({error})") from error
    if not isinstance(vectors, np.ndarray) or vectors.ndim != 2 or vectors.dtype.kind not in "buif":
        raise ValueError(
            f"{path} must hold vectors, one a row, (n, d) numbers; it holds {getattr(vectors, 'shape', '')}"
        )
    return vectors


def _lines(path: Path) -> list[str]:
    return [line for line in _text(path).splitlines() if line.strip()]


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is no text in UTF-8 ({error}): save it as one") from error


def _apart(paths: list[Path]) -> list[str]:
    """Names by which files can be told apart: their folder and their own."""
    return [f"{path.parent.name}/{path.name}" for path in paths]
