"""Text of strangers on a terminal: labels, paths and commands come from files, which anybody may have written."""

from __future__ import annotations

import json
import re
from typing import Any

# All control characters but tab and line feed, half characters, and marks that reverse the text around them.
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\u202a-\u202e]")
FORMULA = ("=", "+", "-", "@", "\t", "\uff1d", "\uff0b", "\uff0d", "\uff20")  # begin what spreadsheets compute


def printable(text: str) -> str:
    r"""A text that a terminal shows and never obeys: its control characters are written as \x1b."""
    return CONTROL.sub(lambda found: _escape(ord(found[0]), r"\x%02x"), text)


def json_text(value: Any) -> str:
    """A value as indented JSON that a terminal shows and never obeys."""
    text = json.dumps(value, ensure_ascii=False, indent=1)
    return CONTROL.sub(lambda found: _escape(ord(found[0]), r"\u%04x"), text)


def cell(value: object) -> str:
    """A cell of a CSV file that a spreadsheet shows and never computes: formulas begin with an apostrophe."""
    text = printable(str(value))
    return "'" + text if text.startswith(FORMULA) and not _is_number(text) else text


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _escape(number: int, short: str) -> str:
    return (short if number < 256 else r"\u%04x") % number
