"""Files on object storage or a web server, read by ranges."""

import hashlib
import os
from typing import Any, NoReturn

from skypart.errors import SkyPartError
from skypart.maps.files import redact_address, redact_message
from skypart.maps.store.manifest import FileRecord

_SCHEMES = ("s3", "https", "http", "file")


class Bucket:
    """Files below one address, through fsspec. Keys come from the usual variables (AWS_ACCESS_KEY_ID, ...)."""

    def __init__(self, address: str) -> None:
        self.address = address.rstrip("/")
        scheme, mark, path = self.address.partition("://")
        if not mark or scheme not in _SCHEMES:
            raise SkyPartError(
                f"the store address remote:{redact_address(address)} has no known scheme; write "
                "remote:s3://BUCKET/FOLDER/store or remote:https://HOST/FOLDER/store"
            )
        self._path = path if scheme == "s3" else self.address
        self._seek = {"seekable": True} if scheme == "s3" else {}  # Arrow's default is a stream
        try:
            self._files = _file_system(scheme)
        except ImportError as error:
            raise SkyPartError(
                f"{redact_address(address)}: needs a reader of object storage; install it with "
                "`pip install 'skypart[s3]'`"
            ) from error

    def place(self, name: str) -> str:
        """The address of a file, as messages show it."""
        return redact_address(f"{self.address}/{name}")

    def damage(self, name: str, how: str) -> SkyPartError:
        """The error that reports a damaged file."""
        return SkyPartError(f"{self.place(name)}: damaged ({how}); publish the folder `store` of the index there again")

    def read_part(self, file: FileRecord, start: int = 0, end: int | None = None) -> bytes:
        """Bytes start..end of a file of the store, by default all of it; raises if it is gone or shorter."""
        end = file.bytes if end is None else end
        try:
            body = self.read(file.name, start, end)
        except FileNotFoundError as error:
            raise self.damage(file.name, "missing") from error
        if len(body) != end - start:
            raise self.damage(file.name, f"{len(body):,} bytes instead of {end - start:,}")
        return body

    def read_whole(self, file: FileRecord) -> bytes:
        """All of a file of the store; raises if its content has changed."""
        body = self.read_part(file)
        if hashlib.sha256(body).hexdigest() != file.sha256:
            raise self.damage(file.name, "its SHA-256 has changed")
        return body

    def read(self, name: str, start: int | None = None, end: int | None = None) -> bytes:
        """Bytes start..end of any file, or all of it. FileNotFoundError passes through."""
        try:
            content: bytes = self._files.cat_file(
                f"{self._path}/{name}", start=start, end=end, **(self._seek if end else {})
            )
            return content
        except FileNotFoundError:
            raise
        except Exception as error:  # fsspec lets the errors of each backend through
            self._fail(name, error)

    def _fail(self, name: str, error: Exception) -> NoReturn:
        reason = " ".join(redact_message(str(error), self.address).split())[:300] or type(error).__name__
        raise SkyPartError(
            f"{self.place(name)}: cannot be read ({reason}); check the address, that the server is up, and the "
            "credentials (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY)"
        ) from error


def _file_system(scheme: str) -> Any:
    """An fsspec file system. S3 is Arrow's, so that no AWS library is needed."""
    import fsspec

    if scheme != "s3":
        return fsspec.filesystem(scheme)
    from fsspec.implementations.arrow import ArrowFSWrapper
    from pyarrow.fs import S3FileSystem

    endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
    more: dict[str, Any] = {"connect_timeout": 10, "request_timeout": 60}
    if endpoint:
        kind, _, host = endpoint.rpartition("://")
        more |= {"endpoint_override": host, "scheme": kind or "https"}
    if os.environ.get("AWS_NO_SIGN_REQUEST", "").upper() in ("YES", "TRUE", "1"):
        more["anonymous"] = True
    return ArrowFSWrapper(S3FileSystem(**more))
