"""Labels and names from clients: any script, no trickery."""

from __future__ import annotations

import unicodedata

from csn.service.errors import ServiceError

HIDDEN = ("Cc", "Cs", "Zl", "Zp")  # control characters, halves of characters, line separators
OVERRIDES = "\u202a\u202b\u202c\u202d\u202e"  # would turn round the text beside the label too


def clean(text: str, most: int, what: str = "label") -> str:
    """The text in Unicode's composed form without spaces around it, or a ServiceError."""
    text = unicodedata.normalize("NFC", text).strip()
    if not 1 <= len(text) <= most:
        length = f"{len(text)} characters" if text else "nothing"
        raise ServiceError(422, "bad_label", f"a {what} was given {length}", f"give 1 to {most} characters")
    if any(unicodedata.category(letter) in HIDDEN or letter in OVERRIDES for letter in text):
        raise ServiceError(
            422, "bad_label", f"the {what} holds control characters", "give letters, digits, signs and emoji only"
        )
    return text
