"""Clean labels and names from clients. Any script is allowed, hidden characters are not."""

from __future__ import annotations

import re
import unicodedata

from csn.service.errors import ServiceError

HIDDEN = ("Cc", "Cs", "Zl", "Zp")  # control characters, surrogates, line separators
COMPOSED = 4  # no character of a composed text stands for more characters
OVERRIDES = "\u202a\u202b\u202c\u202d\u202e"  # would also reverse the text next to the label
UNSEEN = re.compile(  # letters, marks and signs
    r"[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]"
)
# Nobody sees these at the ends of a text, and copying brings them along. Within it they join letters and emoji.
JOINERS = (0xAD, 0x61C, 0x180E, *range(0x200B, 0x2010), *range(0x2060, 0x2070), 0xFEFF)
AROUND = "".join(filter(str.isspace, map(chr, range(0x3001)))) + "".join(map(chr, JOINERS))


def clean(text: str, most: int, what: str = "label") -> str:
    """The text in Unicode's composed form, with nothing unseen around it. Raises ServiceError if it is not allowed."""
    text = text.strip(AROUND)
    if len(text) <= COMPOSED * most:  # the time of composing grows with the square of a run of accents
        text = unicodedata.normalize("NFC", text).strip(AROUND)
    if not 1 <= len(text) <= most:
        length = f"{len(text)} characters" if text else "no characters"
        raise ServiceError(422, "bad_label", f"the {what} has {length}", f"give 1 to {most} characters")
    if any(unicodedata.category(letter) in HIDDEN or letter in OVERRIDES for letter in text):
        raise ServiceError(
            422, "bad_label", f"the {what} holds control characters", "give letters, digits, signs and emoji only"
        )
    if not looks(text):
        raise ServiceError(422, "bad_label", f"the {what} has no character that can be seen", "give letters or signs")
    return text


def looks(name: str) -> str:
    """What two names have in common if one may be taken for the other: letters, whatever their case and width.

    Characters that nobody sees, such as joiners and variation selectors, and the number of spaces do not count.
    """
    plain = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", name).casefold())
    seen = "".join(letter for letter in plain if unicodedata.category(letter) != "Cf")
    return " ".join(UNSEEN.sub("", seen).split())
