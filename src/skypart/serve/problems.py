"""Refusals: every answer that is not a result is one sentence of JSON."""

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
_LOCAL_PATH = re.compile(r"(?<![\w:/.])/[^\s:;,'\"()]+")
"""An absolute path, and not the end of an address or of a relative path."""


class Problem(BaseModel):
    """Why a request was not answered."""

    detail: str = Field(description="One sentence that says what is wrong and how to mend it.")


class RefusedError(Exception):
    """A request that is not answered: an HTTP status and one sentence."""

    def __init__(self, status: int, detail: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail
        self.headers = dict(headers or {})

    def response(self) -> JSONResponse:
        """The refusal as JSON."""
        return JSONResponse({"detail": self.detail}, self.status, self.headers)


def without_folders(message: str) -> str:
    """A message with the names of this machine's files, but not of the folders they lie in: no client's business."""
    return _LOCAL_PATH.sub(lambda found: found[0].rstrip("/").rpartition("/")[2], message)


def sentence(errors: ValidationError | RequestValidationError) -> str:
    """The first of pydantic's complaints, as one sentence that names the field."""
    first = errors.errors()[0]
    field = ".".join(str(part) for part in first["loc"] if part not in ("query", "path", "body"))
    complaint = str(first["msg"]).removeprefix("Value error, ")
    return f"{field}: {complaint}" if field else complaint


def handle_problems(app: FastAPI) -> None:
    """Give every exception of `app` its answer."""

    @app.exception_handler(RefusedError)
    async def refused(request: Request, error: RefusedError) -> JSONResponse:
        return error.response()

    @app.exception_handler(SkyPartError)
    async def mendable(request: Request, error: SkyPartError) -> JSONResponse:
        told = without_folders(str(error))
        if told != str(error):
            log.error("%s", error)
        return JSONResponse({"detail": told}, 422)

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> JSONResponse:
        return JSONResponse({"detail": sentence(error)}, 422)

    @app.exception_handler(HTTPException)
    async def known(request: Request, error: HTTPException) -> JSONResponse:
        return JSONResponse({"detail": str(error.detail)}, error.status_code, error.headers)
