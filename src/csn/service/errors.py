"""Errors of the service: {"error": {"code", "message", "remedy"}} with a matching HTTP status."""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Iterable, Mapping
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

log = logging.getLogger("csn.service")

REMEDIES = {
    404: ("not_found", "see /docs for the addresses of this server"),
    405: ("method_not_allowed", "see /docs for the methods of this address"),
}


class ServiceError(HTTPException):
    """An error answer: what is wrong, and what to do about it."""

    def __init__(
        self, status: int, code: str, message: str, remedy: str, headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(status, message, dict(headers) if headers else None)
        self.code, self.message, self.remedy = code, message, remedy

    def response(self) -> JSONResponse:
        """The error as a JSON response."""
        content = {"error": {"code": self.code, "message": self.message, "remedy": self.remedy}}
        return JSONResponse(content, self.status_code, self.headers)


def invalid_request(errors: Iterable[Mapping[str, Any]]) -> ServiceError:
    """The errors that pydantic found. The input is not repeated because JSON may not be able to hold it."""
    found = list(errors)
    if any(str(error["type"]).startswith("json_") for error in found):
        return ServiceError(400, "malformed_json", "the body is not JSON", "send a JSON object as /docs describes it")
    places = [
        f"{'.'.join(str(part) for part in error['loc']) or 'body'}: {error['msg']}" for error in found[:5]
    ]  # a long list of bad pixels does not help
    return ServiceError(422, "invalid_request", "; ".join(places), "send what /docs describes")


def add_handlers(app: FastAPI) -> None:
    """Give errors of the framework the same form."""

    @app.exception_handler(HTTPException)
    async def expected(request: Request, error: HTTPException) -> JSONResponse:
        if not isinstance(error, ServiceError):
            code, remedy = REMEDIES.get(error.status_code, ("refused", "see /docs"))
            error = ServiceError(error.status_code, code, str(error.detail), remedy, error.headers)
        return error.response()

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> JSONResponse:
        return invalid_request(error.errors()).response()


def unexpected(method: str, path: str, error: Exception) -> ServiceError:
    """The answer to an unexpected failure. Its details go only to the log."""
    log.error("%s %s failed", method, path, exc_info=error)
    if isinstance(error, sqlite3.Error):  # the transaction was rolled back
        message = "the server cannot use its storage now, and nothing was changed"
        return ServiceError(503, "no_storage", message, "try again; the server's log says why", {"Retry-After": "1"})
    message = "the server failed to answer this request"
    return ServiceError(500, "internal_error", message, "try again; if the error persists, see the server's log")
