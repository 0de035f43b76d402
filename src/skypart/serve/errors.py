"""Error responses: an HTTP status and a JSON body with a one-line message."""

import logging
import re
from collections.abc import Mapping

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field, ValidationError
from starlette.exceptions import HTTPException

from skypart.errors import SkyPartError

log = logging.getLogger("skypart.serve")
_ABSOLUTE_PATH = re.compile(r"(?<![\w:/.])/[^\s:;,'\"()]+")
"""A local absolute path, but not the end of a URL or of a relative path."""


class Problem(BaseModel):
    """Why a request failed."""

    detail: str = Field(description="What is wrong and how to fix it, in one line.")


class HttpError(Exception):
    """Ends a request with an HTTP status and a one-line message."""

    def __init__(self, status: int, detail: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail
        self.headers = dict(headers or {})

    def response(self) -> JSONResponse:
        """The error as a JSON response."""
        return JSONResponse({"detail": self.detail}, self.status, self.headers)


def strip_folders(message: str) -> str:
    """Shorten absolute paths in `message` to file names: clients must not learn this machine's folders."""
    return _ABSOLUTE_PATH.sub(lambda found: found[0].rstrip("/").rpartition("/")[2], message)


def validation_message(errors: ValidationError | RequestValidationError) -> str:
    """The first of pydantic's errors in one line that names the field."""
    first = errors.errors()[0]
    field = ".".join(str(part) for part in first["loc"] if part not in ("query", "path", "body"))
    message = str(first["msg"]).removeprefix("Value error, ")
    return f"{field}: {message}" if field else message


def add_error_handlers(app: FastAPI) -> None:
    """Turn every expected exception of `app` into an error response."""

    @app.exception_handler(HttpError)
    async def http_error(request: Request, error: HttpError) -> JSONResponse:
        return error.response()

    @app.exception_handler(SkyPartError)
    async def bad_input(request: Request, error: SkyPartError) -> JSONResponse:
        message = strip_folders(str(error))
        if message != str(error):
            log.error("%s", error)
        return JSONResponse({"detail": message}, 422)

    @app.exception_handler(RequestValidationError)
    async def invalid_request(request: Request, error: RequestValidationError) -> JSONResponse:
        return JSONResponse({"detail": validation_message(error)}, 422)

    @app.exception_handler(HTTPException)
    async def starlette_error(request: Request, error: HTTPException) -> JSONResponse:
        return JSONResponse({"detail": str(error.detail)}, error.status_code, error.headers)
