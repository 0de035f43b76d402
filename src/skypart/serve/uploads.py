"""Reading a multipart request within limits of size and time; nothing is written to disk."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import PurePosixPath

from fastapi import Request
from starlette.datastructures import UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import ClientDisconnect

from skypart.serve.lanes import Lane
from skypart.serve.options import ServeOptions
from skypart.serve.problems import RefusedError

FIELD_BYTES = 4096
FIELDS = 24
NAME_LENGTH = 120
DISCARD_SECONDS = 5.0


@dataclass(frozen=True)
class Upload:
    """A photo as it was sent. name: to be shown, never a path. fields: those of the form that are not empty."""

    photo: bytes
    name: str
    fields: dict[str, str]


def shown_name(sent: str | None) -> str:
    """The last part of a file name, without control characters and not too long, to call the photo by."""
    last = PurePosixPath((sent or "").replace("\\", "/")).name
    name = "".join(sign for sign in last if sign.isprintable()).strip(" .")
    return name[:NAME_LENGTH] or "photo"


class Uploads:
    """All uploads of a server: each within its own limits, together within `max_waiting_bytes`."""

    def __init__(self, options: ServeOptions) -> None:
        self.options = options
        self.held_bytes = 0  # of those that are being read or wait for a worker

    @asynccontextmanager
    async def receive(self, request: Request, lane: Lane) -> AsyncIterator[Upload]:
        """Read a request; its bytes count until the block ends. A full `lane` refuses before anything is kept."""
        body = _Body(self, request, lane)
        seconds = self.options.upload_seconds
        try:
            try:
                async with asyncio.timeout(seconds):
                    upload = await _read(request, lane, body)
            except TimeoutError:
                raise RefusedError(
                    408, f"the photo did not arrive within {seconds:g} s; send a smaller one", {"Connection": "close"}
                ) from None
            except MultiPartException as error:
                raise await body.discarded(RefusedError(400, f"not a proper form: {error.message}")) from error
            except ClientDisconnect as error:
                raise RefusedError(400, "the client went away") from error
            except RefusedError as refusal:
                raise await body.discarded(refusal) from None
            yield upload
        finally:
            body.release()


async def _read(request: Request, lane: Lane, body: "_Body") -> Upload:
    """Parse the form, unless its headers tell that it is not to be read."""
    if not request.headers.get("content-type", "").lower().startswith("multipart/form-data"):
        raise RefusedError(415, "send the photo as multipart/form-data, in a field called photo")
    lane.check_room()
    declared = request.headers.get("content-length", "")
    if declared.isdigit() and int(declared) > body.max_bytes:
        raise body.too_large()
    async with aclosing(body.limited()) as stream:
        parser = MultiPartParser(request.headers, stream, max_files=1, max_fields=FIELDS, max_part_size=FIELD_BYTES)
        parser.spool_max_size = body.max_bytes + 1  # in memory, never on disk
        form = await parser.parse()
    try:
        photo = form.get("photo")
        if not isinstance(photo, UploadFile):
            raise RefusedError(400, "there is no photo in the form; send the file in a field called photo")
        fields = {key: value for key, value in form.items() if isinstance(value, str) and value.strip()}
        return Upload(await photo.read(), shown_name(photo.filename), fields)
    finally:
        await form.close()


class _Body:
    """The body of one request, its bytes counted in the sum of all uploads."""

    def __init__(self, uploads: Uploads, request: Request, lane: Lane) -> None:
        self._uploads = uploads
        self._request = request
        self._lane = lane
        self._bytes = 0
        self._ended = False
        self.max_bytes = uploads.options.max_bytes

    async def _pieces(self) -> AsyncGenerator[bytes, None]:
        while not self._ended:
            message = await self._request.receive()
            if message["type"] == "http.disconnect":
                raise ClientDisconnect
            self._ended = not message.get("more_body", False)
            yield message.get("body", b"")

    async def limited(self) -> AsyncGenerator[bytes, None]:
        """The body piece by piece, cut off where it exceeds a limit, whatever length was declared."""
        async for piece in self._pieces():
            self._bytes += len(piece)
            self._uploads.held_bytes += len(piece)
            if self._bytes > self.max_bytes:
                raise self.too_large()
            if self._uploads.held_bytes > self._uploads.options.max_waiting_bytes:
                raise self._lane.busy()
            yield piece

    def too_large(self) -> RefusedError:
        """The refusal of a body that is too large."""
        return RefusedError(413, f"more than the limit of {self.max_bytes / 1024**2:.3g} MB; send a smaller photo")

    def release(self) -> None:
        """Count these bytes no longer."""
        self._uploads.held_bytes -= self._bytes
        self._bytes = 0

    async def discarded(self, refusal: RefusedError) -> RefusedError:
        """Read on and throw away, for clients that read no answer before they have sent all; then the refusal.

        A client that waits for `100 Continue` is refused at once. Others get as much patience as one upload deserves;
        after that the connection is closed.
        """
        self.release()
        if "100-continue" not in self._request.headers.get("expect", "").lower():
            thrown = 0
            with suppress(TimeoutError, ClientDisconnect):
                async with asyncio.timeout(min(DISCARD_SECONDS, self._uploads.options.upload_seconds)):
                    async for piece in self._pieces():
                        thrown += len(piece)
                        if thrown > self.max_bytes:
                            break
        if not self._ended:
            refusal.headers["Connection"] = "close"
        return refusal
