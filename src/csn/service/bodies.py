"""Request bodies that FastAPI does not parse: an input as JSON, as a picture file or as plain text."""

from __future__ import annotations

from typing import Any, NamedTuple, TypeVar

from fastapi import Request
from pydantic import ValidationError

from csn.service import schemas
from csn.service.errors import ServiceError, invalid_request
from csn.service.images import Most, from_base64, from_photo, from_pixels, from_png, unusable
from csn.service.kinds import DRAWINGS, PHOTOS, TEXT
from csn.service.limits import Limits

Body = TypeVar("Body", bound=schemas.Input)
JSON = "application/json"
FILES = {DRAWINGS: ("image/png",), PHOTOS: ("image/jpeg", "image/png", "image/webp"), TEXT: ("text/plain",)}
FIELDS = {DRAWINGS: ("image", "pixels"), PHOTOS: ("image",), TEXT: ("text",)}
CALLED = {DRAWINGS: "a drawing", PHOTOS: "a photograph", TEXT: "a sentence"}


def input_body(model: type[schemas.Input]) -> dict[str, Any]:
    """The OpenAPI description of a body that is JSON, a picture file or plain text."""
    content: dict[str, Any] = {JSON: {"schema": {"$ref": f"#/components/schemas/{model.__name__}"}}}
    content |= {name: {"schema": {"type": "string", "format": "binary"}} for name in sorted(FILES[PHOTOS])}
    return {"requestBody": {"required": True, "content": content | {"text/plain": {"schema": {"type": "string"}}}}}


def file_body(kind: str) -> dict[str, Any]:
    """The OpenAPI description of a body that is a file."""
    return {"requestBody": {"required": True, "content": {kind: {"schema": {"type": "string", "format": "binary"}}}}}


class Sent(NamedTuple):
    """An input as it was sent. Decoding takes time, so a worker does it."""

    content: bytes
    media: str

    @classmethod
    async def of(cls, request: Request) -> Sent:
        """The body of a request. Raises ServiceError if no input has its type."""
        given = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if given != JSON and not any(given in types for types in FILES.values()):
            names = ", ".join(dict.fromkeys(name for types in FILES.values() for name in types))
            raise ServiceError(415, "wrong_type", f"an input is sent as {JSON} or as {names}", "set Content-Type")
        return cls(await request.body(), given)

    def input(self, kind: str, limits: Limits) -> Any:
        """The input for the classifier: a picture or a text."""
        return self._read(kind, limits, schemas.Input)[0]

    def labelled(self, kind: str, limits: Limits, label: str | None) -> tuple[Any, str]:
        """The input and its label. With a file, the label is in the address."""
        if self.media != JSON and label is None:
            raise ServiceError(422, "bad_label", "the input has no label", "add ?label=NAME to the address")
        item, body = self._read(kind, limits, schemas.LabelledInput)
        return item, body.label if body is not None else str(label)

    def _read(self, kind: str, limits: Limits, model: type[Body]) -> tuple[Any, Body | None]:
        if self.media == JSON:
            body = self._json(model)
            return _of_json(body, kind, limits), body
        if self.media not in FILES[kind]:
            types = " or ".join((JSON, *FILES[kind]))
            message = f"this task is of {kind}: send {CALLED[kind]} as {types}"
            raise ServiceError(415, "wrong_type", message, "send one of these types, or use a task of another kind")
        if kind == TEXT:
            return _text(self.content, limits), None
        return _picture(self.content, kind, limits), None

    def _json(self, kind: type[Body]) -> Body:
        try:
            return kind.model_validate_json(self.content)
        except ValidationError as error:
            raise invalid_request(error.errors(include_url=False, include_context=False, include_input=False)) from None


def _of_json(body: schemas.Input, kind: str, limits: Limits) -> Any:
    given = [name for name in ("image", "pixels", "text") if getattr(body, name) is not None]
    if len(given) != 1 or given[0] not in FIELDS[kind]:
        came = " and ".join(given) or "nothing"
        message = f"this task is of {kind}: send {CALLED[kind]} as {' or as '.join(FIELDS[kind])}, got {came}"
        raise unusable(message, "text" if kind == TEXT else "image")
    if body.text is not None:
        return _checked(body.text, limits)
    if body.image is not None:
        return _picture(from_base64(body.image), kind, limits)
    return from_pixels(body.pixels or [], Most(limits.side, limits.pixels))


def _picture(content: bytes, kind: str, limits: Limits) -> Any:
    return from_photo(content, limits) if kind == PHOTOS else from_png(content, Most(limits.side, limits.pixels))


def _text(content: bytes, limits: Limits) -> str:
    try:
        return _checked(content.decode(), limits)
    except UnicodeDecodeError as error:
        raise unusable(f"the text is not UTF-8 ({error.reason})", "text") from error


def _checked(text: str, limits: Limits) -> str:
    if len(text) > limits.characters:
        message = f"the text has {len(text):,} characters"
        raise ServiceError(422, "text_too_long", message, f"send at most {limits.characters:,}")
    return text
