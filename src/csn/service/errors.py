"""Every error of the service, as {"error": {"code", "message", "remedy"}} and with the HTTP status that fits."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

log = logging.getLogger("csn.service")

REMEDIES = {
    404: ("not_found", "see /docs for what there is"),
    405: ("method_not_allowed", "see /docs for the methods of this address"),
}


class ServiceError(HTTPException):
    """An answer that is not the one asked for: what is wrong, and what to do about it."""

    def __init__(
        self, status: int, code: str, message: str, remedy: str, headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(status, message, dict(headers) if headers else None)
        self.code, self.message, self.remedy = code, message, remedy

    def response(self) -> JSONResponse:
        """As JSON."""
        content = {"error": {"code": self.code, "message": self.message, "remedy": self.remedy}}
        return JSONResponse(content, self.status_code, self.headers)


def invalid_request(errors: Iterable[Mapping[str, Any]]) -> ServiceError:
    """What pydantic found wrong. The input itself is not repeated: it may hold what JSON cannot carry."""
    found = list(errors)
    if any(str(error["type"]).startswith("json_") for error in found):
        return ServiceError(400, "malformed_json", "the body is no JSON", "send a JSON object as /docs describes it")
    places = [
        f"{'.'.join(str(part) for part in error['loc']) or 'body'}: {error['msg']}" for error in found[:5]
    ]  # a long list of bad pixels helps nobody
    return ServiceError(422, "invalid_request", "; ".join(places), "send what /docs describes")


def add_handlers(app: FastAPI) -> None:
    """Also errors of the framework, and those that nobody expected, have the one form."""

    @app.exception_handler(HTTPException)
    def expected(request: Request, error: HTTPException) -> JSONResponse:
        if not isinstance(error, ServiceError):
            code, remedy = REMEDIES.get(error.status_code, ("refused", "see /docs"))
            error = ServiceError(error.status_code, code, str(error.detail), remedy, error.headers)
        return error.response()

    @app.exception_handler(RequestValidationError)
    def invalid(request: Request, error: RequestValidationError) -> JSONResponse:
        return invalid_request(error.errors()).response()

    @app.exception_handler(Exception)
    def unexpected(request: Request, error: Exception) -> JSONResponse:
        log.error("%s %s failed", request.method, request.url.path, exc_info=error)
        message = "the server failed at this request; nothing was changed that it did not report"
        return ServiceError(500, "internal_error", message, "try again; if it stays, report it").response()
