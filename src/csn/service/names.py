"""Clean labels and names from clients. Any script is allowed, hidden characters are not."""

from __future__ import annotations

import re
import unicodedata

from csn.service.errors import ServiceError

HIDDEN = ("Cc", "Cs", "Zl", "Zp")  # control characters, surrogates, line separators
COMPOSED = 4  # no character of a composed text stands for more characters
OVERRIDES = "\u202a\u202b\u202c\u202d\u202e"  # would also reverse the text next to the label
UNSEEN = re.compile(r"[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u3164\ufe00-\ufe0f\uffa0]")  # letters and marks


def clean(text: str, most: int, what: str = "label") -> str:
    """The text in Unicode's composed form without surrounding spaces. Raises ServiceError if it is not allowed."""
    text = text.strip()
    if len(text) <= COMPOSED * most:  # the time of composing grows with the square of a run of accents
        text = unicodedata.normalize("NFC", text).strip()
    if not 1 <= len(text) <= most:
        length = f"{len(text)} characters" if text else "no characters"
        raise ServiceError(422, "bad_label", f"the {what} has {length}", f"give 1 to {most} characters")
    if any(unicodedata.category(letter) in HIDDEN or letter in OVERRIDES for letter in text):
        raise ServiceError(
            422, "bad_label", f"the {what} holds control characters", "give letters, digits, signs and emoji only"
        )
    return text


def looks(name: str) -> str:
    """What two names have in common if one may be taken for the other: letters, whatever their case and width.

    Characters that nobody sees, such as joiners and variation selectors, and the number of spaces do not count.
    """
    plain = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", name).casefold())
    seen = "".join(letter for letter in plain if unicodedata.category(letter) != "Cf")
    return " ".join(UNSEEN.sub("", seen).split())
