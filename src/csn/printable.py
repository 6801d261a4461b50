"""Text of strangers on a terminal and in tables: labels, paths and commands come from files that anybody may write."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterable
from typing import Any

# All control characters but tab and line feed, half characters, and marks that reverse the text around them.
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\u202a-\u202e\u2066-\u2069]")
# Begin what spreadsheets compute.
FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")


def printable(text: str) -> str:
    r"""A text that a terminal shows and never obeys: its control characters are written as \x1b."""
    return CONTROL.sub(lambda found: _escape(ord(found[0]), r"\x%02x"), text)


def json_text(value: Any) -> str:
    """A value as indented JSON that a terminal shows and never obeys."""
    text = json.dumps(value, ensure_ascii=False, indent=1)
    return CONTROL.sub(lambda found: _escape(ord(found[0]), r"\u%04x"), text)


def cell(value: object) -> str:
    """A cell of a CSV file that a spreadsheet shows and never computes: formulas begin with an apostrophe."""
    text = "" if value is None else str(value)
    shown = printable(text)
    return "'" + shown if text.startswith(FORMULA) and not _is_number(text) else shown


def csv_text(rows: Iterable[Iterable[object]]) -> str:
    """Rows as the text of a CSV file. Everything that csn writes as CSV goes through here."""
    file = io.StringIO()
    csv.writer(file, lineterminator="\n").writerows(map(cell, row) for row in rows)
    return file.getvalue()


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _escape(number: int, short: str) -> str:
    return (short if number < 256 else r"\u%04x") % number
