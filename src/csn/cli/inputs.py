"""How `csn adapt` and `csn predict` read folders and files of pictures, tables of sentences, and vectors."""

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
    """Examples to learn or to recognise.

    items: paths of pictures, texts or vectors.
    labels: one per item, or none if they are to be recognised.
    names: one per item, for messages and tables.
    """

    items: list[Any]
    labels: list[str]
    names: list[str]


def labelled(source: Path, kind: str, labels: Path | None) -> Rows:
    """Read examples with their labels.

    Args:
        source: A folder, a table or a file of vectors.
        kind: The kind of examples: drawings, photos, text or none (vectors).
        labels: A file with one label per line. Only vectors have one.
    """
    if labels is not None and kind != "none":
        raise ValueError(f"--labels is only for vectors (--encoder none); {source} states its own labels: leave it out")
    if source.is_dir():
        if kind == "none":
            raise ValueError(f"{source} is a folder: give vectors as a .npy file, or a .csv with a column label")
        files = labelled_files(source) if kind != "text" else _labelled_texts(source)
        names = _apart([path for path, _ in files])
        items = [_text(path) if kind == "text" else path for path, _ in files]
        return Rows(items, [label for _, label in files], names)
    if not source.is_file():
        raise ValueError(
            f"{source} is neither a folder nor a file: give a folder with one folder of examples per label"
        )
    if source.suffix.lower() == ".npy":
        if kind != "none" or labels is None:
            raise ValueError(f"{source} holds vectors: use --encoder none and --labels FILE with one label per line")
        vectors, lines = _vectors(source), _lines(labels)
        if len(vectors) != len(lines):
            raise ValueError(
                f"{source} has {len(vectors)} vectors, but {labels} has {len(lines)} labels: give one label per vector"
            )
        return Rows(list(vectors), lines, [f"row {i}" for i in range(len(lines))])
    rows = _table(source)
    label = _column(source, rows, LABEL_COLUMNS)
    names = [row[label].strip() for row in rows]
    if "" in names:
        raise ValueError(f"{source} has no {label} in row {names.index('') + 1} below its header: name its class")
    return _of_table(source, rows, kind, names, label)


def unlabelled(sources: Sequence[str], kind: str) -> Rows:
    """Read examples to recognise, of an encoder's kind: from files, folders, tables, or - for standard input."""
    found = Rows([], [], [])
    for source in sources:
        path = Path(source)
        if source == "-":
            part = _of_lines(_lines_of(_decoded(_standard_input(), "standard input")), kind, "line")
        elif path.is_dir():
            files = sorted(p for p in path.rglob("*") if p.is_file() and p.suffix.lower() in PICTURES)
            if kind in ("text", "none"):
                wanted = "a .csv or .txt file of sentences" if kind == "text" else "a .npy file of vectors"
                raise ValueError(f"{path} is a folder, and the task is not of pictures: give {wanted}")
            if not files:
                raise ValueError(f"{path} has no pictures: give a folder of {', '.join(sorted(PICTURES))} files")
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
        raise ValueError("there is nothing to recognise: the files have no examples")
    return found


def labelled_files(folder: Path) -> list[tuple[Path, str]]:
    """(file, label) of every image of `folder`/LABEL/, sorted by name."""
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
        raise ValueError(f"{folder} has no subfolders with {what}: expected {folder}/LABEL/{pattern} (or {kinds})")
    return files


def _of_table(path: Path, rows: list[dict[str, str]], kind: str, labels: list[str], label: str | None) -> Rows:
    names = [f"{path.name}:{i + 2}" for i in range(len(rows))]  # lines of the file, after the header in line 1
    if kind == "text":
        column = _column(path, rows, TEXT_COLUMNS)
        return Rows([row[column] for row in rows], labels, names)
    if kind == "none":
        columns = [name for name in rows[0] if name != label and name not in LABEL_COLUMNS]
        try:
            return Rows([np.array([float(row[name]) for name in columns]) for row in rows], labels, names)
        except ValueError as error:
            raise ValueError(f"{path} is not a table of numbers ({error}): use --encoder text for sentences") from error
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
            raise ValueError(f"expected a line of numbers per vector ({error})") from error
    return Rows([Path(line) for line in lines], [], list(lines))


def _table(path: Path) -> list[dict[str, str]]:
    """The rows of a CSV file with a header."""
    before = csv.field_size_limit(LONGEST_FIELD)
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            reader = csv.reader(file, strict=True)
            columns = [name.strip().lower() for name in next(reader, [])]
            lines = [(reader.line_num, fields) for fields in reader if fields]
    except (csv.Error, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is not a CSV file in UTF-8 ({error}): save it as one, with a header") from error
    finally:
        csv.field_size_limit(before)
    if not lines:
        raise ValueError(f"{path} has no rows below its header: add one row per example")
    for name in (*TEXT_COLUMNS, *LABEL_COLUMNS, *FILE_COLUMNS):
        if columns.count(name) > 1:
            raise ValueError(f"{path} has {columns.count(name)} columns {name}: rename all but one")
    for number, fields in lines:
        if len(fields) < len(columns):
            raise ValueError(f"{path}, line {number}, has fewer fields than the header: add the missing ones")
        if len(fields) > len(columns):
            remedy = "put quotes around a field that holds a comma"
            raise ValueError(f"{path}, line {number}, has more fields than the header: {remedy}")
    return [dict(zip(columns, fields, strict=True)) for _, fields in lines]


def _column(path: Path, rows: list[dict[str, str]], names: tuple[str, ...]) -> str:
    for name in names:
        if name in rows[0]:
            return name
    raise ValueError(f"{path} has no column {' or '.join(names)}, only {', '.join(rows[0])}: rename one of them")


def _vectors(path: Path) -> np.ndarray:
    try:
        with path.open("rb") as file:
            vectors = np.load(file, allow_pickle=False)
    except Exception as error:  # a damaged header makes numpy raise almost anything
        raise ValueError(f"{path} is not an array that numpy.save wrote ({error})") from error
    if not isinstance(vectors, np.ndarray) or vectors.ndim != 2 or vectors.dtype.kind not in "buif":
        raise ValueError(
            f"{path} must hold numbers of shape (n, d), one vector per row, got {getattr(vectors, 'shape', '')}"
        )
    return vectors


def _lines(path: Path) -> list[str]:
    return _lines_of(_text(path))


def _lines_of(text: str) -> list[str]:
    """The lines that hold something. Only a line feed ends a line: a sentence may hold Unicode's own separators."""
    return [line for line in text.split("\n") if line.strip()]


def _text(path: Path) -> str:
    return _decoded(path.read_bytes(), str(path))


def _standard_input() -> bytes:
    buffer = getattr(sys.stdin, "buffer", None)
    return sys.stdin.read().encode() if buffer is None else buffer.read()


def _decoded(content: bytes, name: str) -> str:
    """Text in UTF-8, with or without a byte order mark, with any line ends."""
    try:
        return content.decode("utf-8-sig").replace("\r\n", "\n").replace("\r", "\n")
    except UnicodeDecodeError as error:
        raise ValueError(f"{name} is not text in UTF-8 ({error}): save it as UTF-8") from error


def _apart(paths: list[Path]) -> list[str]:
    """Names that tell files apart: FOLDER/FILE."""
    return [f"{path.parent.name}/{path.name}" for path in paths]
