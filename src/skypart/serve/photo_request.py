"""Read a request that carries a photo: the multipart body within limits, the form fields, the decoded photo.

Nothing is written to disk.
"""

import asyncio
import hashlib
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any, Literal, Self, TypeVar

from fastapi import Request
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator
from starlette.datastructures import UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import ClientDisconnect

from skypart.errors import SkyPartError
from skypart.images.decode import RgbImage
from skypart.images.weather import CONDITIONS, PROFILES, check_condition, check_profile, corrupt
from skypart.position.fix import Hints, Prior
from skypart.serve.decoder import PhotoDecoder, decode
from skypart.serve.errors import HttpError, validation_message
from skypart.serve.options import DISCARD_SECONDS, ServeOptions
from skypart.serve.workers import WorkerPool

DEFAULT_RADIUS_M = 500.0
MAX_FIELD_BYTES = 4096
MAX_FIELDS = 24
MAX_NAME_LENGTH = 120


# --- form fields ----------------------------------------------------------------------------------------------------


class PhotoForm(BaseModel):
    """How the photo is changed before it is used."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    weather: str = Field(
        "normal", description="Weather to apply to the photo first.", json_schema_extra={"enum": list(CONDITIONS)}
    )
    profile: str = Field(
        "paper", description="Published weather parameters to use.", json_schema_extra={"enum": list(PROFILES)}
    )
    seed: int = Field(0, ge=0, le=2**31, description="Random seed of the weather.")

    @field_validator("weather")
    @classmethod
    def _known_weather(cls, value: str) -> str:
        _as_value_error(check_condition, value)
        return value

    @field_validator("profile")
    @classmethod
    def _known_profile(cls, value: str) -> str:
        _as_value_error(check_profile, value)
        return value


class LocateForm(PhotoForm):
    """What is known about a photo. All fields are optional."""

    latitude: float | None = Field(None, ge=-90, le=90, description="Of a point near the photo, WGS 84 degrees.")
    longitude: float | None = Field(None, ge=-180, le=180, description="Of a point near the photo, WGS 84 degrees.")
    radius_m: float | None = Field(
        None, ge=0.1, le=2e7, description=f"Search radius around that point in metres; {DEFAULT_RADIUS_M:g} by default."
    )
    heading_deg: float | None = Field(
        None, ge=-360, le=360, description="Compass direction of the photo's upper edge, degrees."
    )
    altitude_m: float | None = Field(None, ge=0.1, le=20_000, description="Height above ground, metres.")
    tilt_deg: float | None = Field(
        None, ge=0.01, le=90, description="Camera tilt below the horizon, degrees; 90 is straight down."
    )
    fov_deg: float | None = Field(None, ge=0.1, le=179, description="Horizontal field of view, degrees.")
    exif: bool = Field(True, description="Also read heading, altitude, tilt and field of view from the photo's EXIF.")
    format: Literal["json", "geojson"] = Field("json", description="Response format.")

    @model_validator(mode="after")
    def _complete_prior(self) -> Self:
        if (self.latitude is None) != (self.longitude is None):
            raise ValueError("latitude and longitude belong together; send both or neither")
        if self.radius_m is not None and self.latitude is None:
            raise ValueError("radius_m needs latitude and longitude")
        return self

    def prior(self) -> Prior | None:
        """Where to search; None for the whole map."""
        if self.latitude is None or self.longitude is None:
            return None
        return Prior(latitude=self.latitude, longitude=self.longitude, radius_m=self.radius_m or DEFAULT_RADIUS_M)

    def hints(self) -> Hints:
        """What the form says about the camera."""
        return Hints(
            heading_deg=None if self.heading_deg is None else self.heading_deg % 360.0,
            altitude_m=self.altitude_m,
            tilt_deg=self.tilt_deg,
            fov_deg=self.fov_deg,
        )


Form = TypeVar("Form", bound=PhotoForm)


def parse_form(form: type[Form], fields: dict[str, str]) -> Form:
    """Validate the fields of a request; raise a 422 error that names the wrong field."""
    try:
        return form.model_validate(fields)
    except ValidationError as error:
        raise HttpError(422, validation_message(error)) from None


def openapi_request_body(form: type[PhotoForm]) -> dict[str, Any]:
    """The OpenAPI description of a multipart request: the photo and the fields of `form`."""
    schema = form.model_json_schema()
    photo = {"type": "string", "format": "binary", "description": "A JPEG, PNG, WebP or TIFF file."}
    schema["properties"] = {"photo": photo, **schema["properties"]}
    schema["required"] = ["photo"]
    return {"requestBody": {"required": True, "content": {"multipart/form-data": {"schema": schema}}}}


def _as_value_error(check: Callable[[str], None], value: str) -> None:
    """Run `check`, raising its SkyPartError as the ValueError that pydantic expects."""
    try:
        check(value)
    except SkyPartError as error:
        raise ValueError(str(error)) from None


# --- multipart body -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Upload:
    """An uploaded photo. name: for display, never a path. fields: the form fields that are not empty."""

    photo: bytes
    name: str
    fields: dict[str, str]


def display_name(filename: str | None) -> str:
    """The last component of a client's file name, without control characters, shortened; `photo` if nothing is left."""
    last = PurePosixPath((filename or "").replace("\\", "/")).name
    name = "".join(char for char in last if char.isprintable()).strip(" .")
    return name[:MAX_NAME_LENGTH] or "photo"


class UploadReader:
    """Reads uploads: each one within its own limits, all together within `max_waiting_bytes`."""

    def __init__(self, options: ServeOptions) -> None:
        self.options = options
        self.held_bytes = 0  # of all uploads being read or waiting for a worker

    @asynccontextmanager
    async def receive(self, request: Request, workers: WorkerPool) -> AsyncIterator[Upload]:
        """Read a request. Its bytes count as held until the block ends. Raises at once if `workers` are full."""
        body = _Body(self, request, workers)
        seconds = self.options.upload_seconds
        try:
            try:
                async with asyncio.timeout(seconds):
                    upload = await _read(request, workers, body)
            except TimeoutError:
                raise HttpError(
                    408, f"the photo did not arrive within {seconds:g} s; send a smaller one", {"Connection": "close"}
                ) from None
            except MultiPartException as error:
                raise await body.discard_rest(HttpError(400, f"malformed form: {error.message}")) from error
            except ClientDisconnect as error:
                raise HttpError(400, "the client disconnected") from error
            except HttpError as error:
                raise await body.discard_rest(error) from None
            yield upload
        finally:
            body.release()


async def _read(request: Request, workers: WorkerPool, body: "_Body") -> Upload:
    """Parse the form, unless its headers already show that it must be rejected."""
    if not request.headers.get("content-type", "").lower().startswith("multipart/form-data"):
        raise HttpError(415, "send the photo as multipart/form-data, in a field called photo")
    workers.check_capacity()
    declared = request.headers.get("content-length", "")
    if declared.isdigit() and int(declared) > body.max_bytes:
        raise body.too_large_error()
    async with aclosing(body.limited_stream()) as stream:
        parser = MultiPartParser(
            request.headers, stream, max_files=1, max_fields=MAX_FIELDS, max_part_size=MAX_FIELD_BYTES
        )
        parser.spool_max_size = body.max_bytes + 1  # in memory, never on disk
        form = await parser.parse()
    try:
        photo = form.get("photo")
        if not isinstance(photo, UploadFile):
            raise HttpError(400, "there is no photo in the form; send the file in a field called photo")
        fields = {key: value for key, value in form.items() if isinstance(value, str) and value.strip()}
        return Upload(await photo.read(), display_name(photo.filename), fields)
    finally:
        await form.close()


class _Body:
    """The body of one request. Its bytes are added to the sum of all uploads."""

    def __init__(self, reader: UploadReader, request: Request, workers: WorkerPool) -> None:
        self._reader = reader
        self._request = request
        self._workers = workers
        self._bytes = 0
        self._complete = False
        self.max_bytes = reader.options.max_bytes

    async def _chunks(self) -> AsyncGenerator[bytes, None]:
        while not self._complete:
            message = await self._request.receive()
            if message["type"] == "http.disconnect":
                raise ClientDisconnect
            self._complete = not message.get("more_body", False)
            yield message.get("body", b"")

    async def limited_stream(self) -> AsyncGenerator[bytes, None]:
        """The body chunk by chunk; raises when a limit is exceeded, whatever length was declared."""
        async for chunk in self._chunks():
            self._bytes += len(chunk)
            self._reader.held_bytes += len(chunk)
            if self._bytes > self.max_bytes:
                raise self.too_large_error()
            if self._reader.held_bytes > self._reader.options.max_waiting_bytes:
                raise self._workers.busy_error()
            yield chunk

    def too_large_error(self) -> HttpError:
        """The 413 error for a body over the limit."""
        return HttpError(413, f"more than the limit of {self.max_bytes / 1024**2:.3g} MB; send a smaller photo")

    def release(self) -> None:
        """Remove this body's bytes from the sum of all uploads."""
        self._reader.held_bytes -= self._bytes
        self._bytes = 0

    async def discard_rest(self, error: HttpError) -> HttpError:
        """Read and drop the rest of the body, for clients that send everything before they read; return `error`.

        A client that waits for `100 Continue` gets the error at once. For others, at most one upload's worth of bytes
        and `DISCARD_SECONDS` are spent; after that the connection is closed.
        """
        self.release()
        if "100-continue" not in self._request.headers.get("expect", "").lower():
            dropped = 0
            with suppress(TimeoutError, ClientDisconnect):
                async with asyncio.timeout(min(DISCARD_SECONDS, self._reader.options.upload_seconds)):
                    async for chunk in self._chunks():
                        dropped += len(chunk)
                        if dropped > self.max_bytes:
                            break
        if not self._complete:
            error.headers["Connection"] = "close"
        return error


# --- pixels ---------------------------------------------------------------------------------------------------------


def is_supported(photo: bytes) -> bool:
    """Whether the first bytes are those of a JPEG, PNG, WebP or TIFF file; no other decoder is tried."""
    if photo.startswith((b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n", b"II*\x00", b"MM\x00*")):
        return True
    return photo[:4] == b"RIFF" and photo[8:12] == b"WEBP"


def decode_photo(
    photo: bytes, form: PhotoForm, max_pixels: int, decoder: PhotoDecoder | None = None, edge: int | None = None
) -> RgbImage:
    """Decode an upload of at most `max_pixels` and apply the weather of `form`. Runs in a worker thread.

    decoder: a process to decode it in; without one it is decoded here. edge: of the square that it will be resized to
    at most, so that a large JPEG can be decoded at a fraction of its size. Weather is applied to the whole photo.
    The random weather depends on the photo's bytes, not on its name: the same photo always gets the same weather.
    """
    if not is_supported(photo):
        raise HttpError(415, "this is not a JPEG, PNG, WebP or TIFF file; convert the photo to one of them")
    edge = edge if form.weather == "normal" else None
    try:
        image = (decoder.decode if decoder else decode)(photo, max_pixels, edge)
    except SkyPartError as error:
        raise HttpError(422, str(error)) from None
    if form.weather == "normal":
        return image
    key = hashlib.sha256(photo).hexdigest()
    return corrupt(image, form.weather, form.profile, form.seed, key)
