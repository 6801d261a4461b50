"""Lists image files with their class and split, from folders, zip archives and CSV lists in the usual layouts.

    train/ val/ test/      a folder (or zip archive) per split with a folder per class
    <class>/ <class>/ ...  a folder per class; the classes are split by a seed
    images/ train.csv ...  one folder of images and a CSV (file, class) per split, as Ravi and Larochelle's lists
    list.csv               one CSV (file, class, split) in the folder of the files

Each of the first three may be a folder or a zip archive. This module decodes no image.
"""

from __future__ import annotations

import csv
import hashlib
import io
import os
import posixpath
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from csn.data.images.decode import Place, close_archives, read_bytes, reason
from csn.data.images.options import TYPES
from csn.data.source import SPLITS, Split

SPLIT_NAMES: dict[str, Split] = {
    "train": "train",
    "training": "train",
    "val": "val",
    "valid": "val",
    "validation": "val",
    "test": "test",
    "testing": "test",
}
SHARES = (0.64, 0.16)  # the parts of the classes for training and validation if a seed splits them, as in Mini-ImageNet
LEAST_CLASSES = 6  # two for each split
SPLIT_SEED = 2018


class Problem(NamedTuple):
    """A problem of a set of images. where: a file, a class or a folder."""

    where: str
    why: str


class Member(NamedTuple):
    """A file of a folder or archive: its name inside it, its place, and a stamp that changes with its content."""

    name: str
    place: Place
    stamp: str


class ImageFile(NamedTuple):
    """An image of a class: the name to show, and its place, stamp, class and split."""

    name: str
    place: Place
    stamp: str
    label: str
    split: Split


@dataclass(frozen=True)
class Listing:
    """The images found, sorted by split, class and name; problems with other images; and files that are not images."""

    images: tuple[ImageFile, ...]
    problems: tuple[Problem, ...]
    ignored: tuple[str, ...]


def list_images(path: Path, *, seed: int = SPLIT_SEED) -> Listing:
    """The images of a folder, a zip archive or a CSV file."""
    if not path.exists():
        raise ValueError(f"there is no file or folder {path}: correct the path")
    if path.is_file() and path.suffix.lower() == ".csv":
        rows = read_csv(path.read_bytes(), path.name, by_split=True)
        return _listing(*_from_rows(rows, named_members(path.parent, rows), path.name), [])
    members, outside = list_members(path)
    wanted = [member for member in members if member.name.lower().endswith((*TYPES, ".csv"))]
    ignored = sorted({member.name for member in members} - {member.name for member in wanted})
    by_name = {member.name: member for member in _without_root(wanted)}
    pictures = [member for member in by_name.values() if not member.name.lower().endswith(".csv")]
    if set(lists := _lists(by_name)) == set(SPLITS):
        rows = [row for split in SPLITS for row in read_csv(_read(by_name[lists[split]]), lists[split], split=split)]
        first = by_name[lists["train"]]
        if first.place.member is None:
            by_name = named_members(Path(first.place.path).parents[first.name.count("/")], rows)
        images, problems = _from_rows(rows, by_name, ", ".join(lists[split] for split in SPLITS))
        # Copies in folders of splits often still contain the lists of the original, but not the files that these name.
        if images or not {SPLIT_NAMES.get(_top(member)) for member in pictures} >= set(SPLITS):
            return _listing(images, problems if first.place.member is None else [*outside, *problems], ignored)
    images, problems = _from_folders(pictures, path, seed)
    return _listing(images, [*outside, *problems], ignored)


def _lists(names: Iterable[str]) -> dict[Split, str]:
    """The CSV of each split, in small letters or capitals. If there are several, the outermost one."""
    found: dict[Split, str] = {}
    for name in sorted(names, key=lambda name: -name.count("/")):
        stem, _, suffix = name.rpartition("/")[2].lower().rpartition(".")
        if suffix == "csv" and stem in SPLIT_NAMES:
            found[SPLIT_NAMES[stem]] = name
    return found


def list_members(path: Path) -> tuple[list[Member], list[Problem]]:
    """Every file of a folder or zip archive; archives `train.zip`, `val.zip` ... in a folder count as folders.

    Other archives in a folder are not opened.
    """
    if path.is_file():
        return _archive_members(path)
    path = path.resolve()
    members: list[Member] = []
    problems: list[Problem] = []
    for file in _files(path, problems):
        if file.suffix.lower() == ".zip" and file.parent == path and file.stem.lower() in SPLIT_NAMES:
            inside, wrong = _archive_members(file)
            members += [_below(file.stem, member) for member in inside]
            problems += wrong
        else:
            members.append(_member(file.relative_to(path).as_posix(), file))
    return members, problems


def named_members(folder: Path, rows: Iterable[tuple[str, str, Split]]) -> dict[str, Member]:
    """The files that a list names, in its folder or in archives there. No other file of the folder is read."""
    folder = folder.resolve()
    found: dict[str, Member] = {}
    archives: set[str] = set()
    for name in {posixpath.normpath(file) for file, _, _ in rows if not leads_outside(file)}:
        candidates = [where for where in (name, f"images/{name}") if os.path.isfile(folder / where)]
        found |= {where: _member(where, folder / where) for where in candidates[:1]}
        if not candidates:
            archives |= {name.partition("/")[0], "images"}
    for archive in sorted(archives):
        if os.path.isfile(file := folder / f"{archive}.zip"):
            found |= {inside.name: inside for inside in (_below(archive, m) for m in _archive_members(file)[0])}
    return found


def _files(folder: Path, problems: list[Problem], above: tuple[Path, ...] = ()) -> Iterator[Path]:
    """The files below a folder in order, without hidden ones. Links to folders are followed.

    Args:
        problems: A list to which folders that cannot be read are added.
        above: The folders above this one, with links resolved. A link back to one of them is not followed.
    """
    here = folder.resolve()
    if here in above:
        return
    try:
        entries = sorted(folder.iterdir())
    except OSError as error:
        problems.append(Problem(str(folder), f"the folder cannot be read: {error.strerror}"))
        return
    for entry in entries:
        if _is_hidden(entry.name):
            continue
        if entry.is_dir():
            yield from _files(entry, problems, (*above, here))
        elif entry.is_file():
            yield entry


def _member(name: str, file: Path) -> Member:
    stat = file.stat()
    return Member(name, Place(str(file), None), f"{stat.st_size}-{stat.st_mtime_ns}")


def _archive_members(path: Path) -> tuple[list[Member], list[Problem]]:
    """The files of a zip archive. Nothing is extracted, but a name that leads out of the archive is refused."""
    members, problems = [], []
    try:
        with zipfile.ZipFile(path) as archive:
            entries = archive.infolist()
    except Exception as error:  # damaged archives can raise almost any error in zipfile
        raise ValueError(
            f"{path} is not a zip archive, or damaged: {reason(error)}. Give a folder, a zip archive or a CSV file"
        ) from error
    place = str(path.resolve())
    for entry in entries:
        if entry.filename.endswith("/") or _is_hidden(entry.filename):
            continue
        if leads_outside(entry.filename):
            problems.append(Problem(f"{path.name}:{entry.filename}", "the path leads out of the archive"))
        else:
            stamp = f"{entry.file_size}-{entry.CRC:08x}"
            members.append(Member(entry.filename, Place(place, entry.filename), stamp))
    return sorted(members), problems


def leads_outside(name: str) -> bool:
    """Whether a relative path is absolute or empty, has a drive letter, or climbs up."""
    parts = name.replace("\\", "/").split("/")
    return parts[0] == "" or ":" in parts[0] or ".." in parts


def read_csv(
    content: bytes, name: str, *, split: Split | None = None, by_split: bool = False
) -> list[tuple[str, str, Split]]:
    """Return (file, class, split) of every line. The first line names the columns."""
    try:
        rows = list(csv.DictReader(io.StringIO(content.decode("utf-8-sig"))))
    except (UnicodeDecodeError, csv.Error) as error:
        raise ValueError(f"{name} should be a CSV file in UTF-8: {error}") from error
    columns = {str(column).strip().lower(): column for column in (rows[0] if rows else {})}

    def column(*names: str) -> str:
        for wanted in names:
            if wanted in columns:
                return columns[wanted]
        raise ValueError(
            f"{name} should begin with a line that names its columns (file, class{', split' if by_split else ''}), but "
            f"no column is called {' or '.join(names)}; got {', '.join(columns) or 'an empty file'}"
        )

    file, label = column("file", "filename", "path", "image"), column("class", "label", "category")
    found: list[tuple[str, str, Split]] = []
    for number, row in enumerate(rows, start=2):
        part = split or SPLIT_NAMES.get((row[column("split", "set")] or "").strip().lower())
        if part is None or not row[file] or not row[label]:
            wanted = "a file, a class and train, val or test"
            raise ValueError(f"line {number} of {name} should hold {wanted}; got {str(row)[:200]}")
        found.append((row[file].strip(), row[label].strip(), part))
    return found


def _from_rows(
    rows: Iterable[tuple[str, str, Split]], by_name: Mapping[str, Member], list_name: str
) -> tuple[list[ImageFile], list[Problem]]:
    """The images that a CSV names, in its folder or in `images`. If two lines name a file, the first counts."""
    images, problems = [], []
    seen: set[Place] = set()
    for file, label, split in rows:
        if leads_outside(file):
            problems.append(Problem(f"{list_name}: {file}", "the path leads out of the folder"))
            continue
        name = posixpath.normpath(file)  # ./a.png is a.png
        member = by_name.get(name) or by_name.get(f"images/{name}")
        if member is None:
            problems.append(Problem(f"{list_name}: {file}", "there is no such file"))
        elif member.place in seen:  # it could be both support and query of a task
            problems.append(Problem(f"{list_name}: {file}", f"it is listed again, as {label} of {split}"))
        else:
            seen.add(member.place)
            images.append(ImageFile(member.name, member.place, member.stamp, label, split))
    return images, problems


def _from_folders(pictures: list[Member], path: Path, seed: int) -> tuple[list[ImageFile], list[Problem]]:
    """Images of train/<class>/, val/<class>/ and test/<class>/, or of <class>/ with a split by seed."""
    layouts = "train/, val/ and test/ with a folder per class in each, or a folder per class"
    folders = {member.name: member.name.split("/")[:-1] for member in pictures}
    if not any(folders.values()):
        raise ValueError(f"{path} holds no folders of {', '.join(TYPES)} files: expected {layouts}")
    found = {SPLIT_NAMES.get(_top(member)) for member in pictures}
    if found & set(SPLITS):
        if missing := [split for split in SPLITS if split not in found]:
            raise ValueError(
                f"{path} has folders of some splits but none of {' and '.join(missing)}: expected {layouts}"
            )
        labels = {name: "/".join(parts[1:]) for name, parts in folders.items()}
        splits = {member.name: SPLIT_NAMES.get(_top(member)) for member in pictures}
    else:
        labels = {name: "/".join(parts) for name, parts in folders.items()}
        by_class = split_classes({label for label in labels.values() if label}, path, seed)
        splits = {name: by_class.get(label) for name, label in labels.items()}
    images, problems = [], []
    for name, place, stamp in pictures:
        split = splits[name]
        if split is None or not labels[name]:
            problems.append(Problem(name, "the file is not in the folder of a class"))
        else:
            images.append(ImageFile(name, place, stamp, labels[name], split))
    return images, problems


def split_classes(classes: set[str], where: object, seed: int = SPLIT_SEED) -> dict[str, Split]:
    """Split the classes: 64 % train, 16 % val and 20 % test. The same names and seed give the same split."""
    if len(classes) < LEAST_CLASSES:
        raise ValueError(
            f"{where} has {len(classes)} folders of classes, but a split by seed needs {LEAST_CLASSES} or more, two "
            f"each for training, validation and test: add classes, or make folders train, val and test"
        )

    def drawn_by(name: str) -> bytes:
        return hashlib.sha256(f"{seed}/{name}".encode(errors="surrogateescape")).digest()

    order = sorted(classes, key=drawn_by)
    train, val = (max(2, round(share * len(order))) for share in SHARES)
    train = min(train, len(order) - 2 - val)
    sizes = {"train": train, "val": val, "test": len(order) - train - val}
    drawn = [split for split in SPLITS for _ in range(sizes[split])]
    return dict(zip(order, drawn, strict=True))


def _listing(images: list[ImageFile], problems: list[Problem], ignored: list[str]) -> Listing:
    shown = [image._replace(name=_printable(image.name), label=_printable(image.label)) for image in images]
    shown.sort(key=lambda image: (SPLITS.index(image.split), image.label, image.name))
    wrong = tuple(Problem(_printable(where), why) for where, why in problems)
    return Listing(tuple(shown), wrong, tuple(map(_printable, ignored)))


def _printable(name: str) -> str:
    """A name that a terminal can show: bytes that are not UTF-8 become escapes such as \\xe9."""
    return name.encode(errors="surrogateescape").decode(errors="backslashreplace")


def _is_hidden(name: str) -> bool:
    """Whether the system made this file: .DS_Store, ._x.jpg, __MACOSX/."""
    return any(part.startswith((".", "__MACOSX")) for part in name.split("/") if part != "..")


def _top(member: Member) -> str:
    """The outermost folder of a file."""
    return member.name.lower().partition("/")[0]


def _below(folder: str, member: Member) -> Member:
    """A member of folder.zip as a file of that folder, even if its name in the archive does not begin with it."""
    return member if member.name.startswith(f"{folder}/") else member._replace(name=f"{folder}/{member.name}")


def _without_root(members: list[Member]) -> list[Member]:
    """Remove the outermost folder if everything is inside it. Archives often have such a folder with their own name."""
    while members and all("/" in member.name for member in members):
        root = members[0].name.partition("/")[0]
        if any(not member.name.startswith(f"{root}/") for member in members) or root.lower() in SPLIT_NAMES:
            break
        rest = [member._replace(name=member.name.removeprefix(f"{root}/")) for member in members]
        if not any("/" in member.name for member in rest):
            break  # the folder of the only class
        members = rest
    return members


def _read(member: Member) -> bytes:
    """The bytes of a list, which may be as large as an image file."""
    try:
        return read_bytes(member.place)
    except Exception as error:  # damaged archives can raise almost any error in zipfile
        raise ValueError(f"{member.name} cannot be read: {reason(error)}. Take another copy") from error
    finally:
        close_archives()
