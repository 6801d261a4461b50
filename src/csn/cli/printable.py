"""Text of strangers on a terminal: labels, paths and commands come from files, which anybody may have written."""

from __future__ import annotations

import re

CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")  # all but tab and line feed


def printable(text: str) -> str:
    r"""A text that a terminal shows and never obeys: its control characters are written as \x1b."""
    return CONTROL.sub(lambda found: rf"\x{ord(found[0]):02x}", text)
