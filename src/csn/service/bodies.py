"""Bodies that are read by hand: a drawing as JSON or as a PNG file."""

from __future__ import annotations

from typing import Any, NamedTuple, TypeVar

from fastapi import Request
from pydantic import ValidationError

from csn.service import schemas
from csn.service.errors import ServiceError, invalid_request
from csn.service.images import from_base64, from_pixels, from_png, unusable
from csn.service.limits import Limits

Body = TypeVar("Body", bound=schemas.Drawing)


def drawing_body(model: type[schemas.Drawing]) -> dict[str, Any]:
    """OpenAPI's description of a body that is JSON or a PNG file."""
    return {
        "requestBody": {
            "required": True,
            "content": {
                "application/json": {"schema": {"$ref": f"#/components/schemas/{model.__name__}"}},
                "image/png": {"schema": {"type": "string", "format": "binary"}},
            },
        }
    }


def file_body(kind: str) -> dict[str, Any]:
    """OpenAPI's description of a body that is a file."""
    return {"requestBody": {"required": True, "content": {kind: {"schema": {"type": "string", "format": "binary"}}}}}


class Sent(NamedTuple):
    """A drawing as it came. To read it takes time, so that is for a worker."""

    content: bytes
    is_png: bool

    @classmethod
    async def of(cls, request: Request) -> Sent:
        """The body of a request, if its type is one that a drawing has."""
        given = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if given not in ("image/png", "application/json"):
            raise ServiceError(415, "wrong_type", "a drawing comes as application/json or image/png", "say which it is")
        return cls(await request.body(), given == "image/png")

    def drawing(self, limits: Limits) -> Any:
        """The picture."""
        if self.is_png:
            return from_png(self.content, limits)
        return _picture(self._json(schemas.Drawing), limits)

    def labelled_drawing(self, limits: Limits, label: str | None) -> tuple[Any, str]:
        """The picture and its label, which stands in the address beside a PNG file."""
        if not self.is_png:
            body = self._json(schemas.LabelledDrawing)
            return _picture(body, limits), body.label
        if label is None:
            raise ServiceError(422, "bad_label", "the drawing has no label", "add ?label=NAME to the address")
        return from_png(self.content, limits), label

    def _json(self, kind: type[Body]) -> Body:
        try:
            return kind.model_validate_json(self.content)
        except ValidationError as error:
            raise invalid_request(error.errors(include_url=False, include_context=False, include_input=False)) from None


def _picture(body: schemas.Drawing, limits: Limits) -> Any:
    if (body.image is None) == (body.pixels is None):
        raise unusable("a drawing comes as image or as pixels, one of the two")
    if body.image is not None:
        return from_base64(body.image, limits)
    return from_pixels(body.pixels or [], limits)
