"""The connection to Milvus. Its errors become one sentence that says what to do."""

import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from skypart.errors import SkyPartError
from skypart.maps.store.milvus.address import TOKEN, MilvusAddress

_TIMEOUT_S = 30.0
_NO_PINGS = {"grpc.keepalive_time_ms": 2**31 - 1, "grpc.keepalive_permit_without_calls": False}
"""For Milvus Lite, which closes a connection that is idle for long: the client's pings are too many for it."""
T = TypeVar("T")


class Connection:
    """A client of the server or the file at an address."""

    def __init__(self, address: MilvusAddress) -> None:
        self.address = address
        try:
            from pymilvus import MilvusClient  # takes a second, so it is imported when a store is opened

            for name in ("pymilvus", "milvus_lite"):
                logging.getLogger(name).setLevel(logging.CRITICAL)  # we report errors ourselves, once
            if address.is_file:
                import milvus_lite  # noqa: F401
        except ImportError as error:
            raise SkyPartError(
                f"{address.shown}: needs the Milvus client; install it with `pip install 'skypart[milvus]'`"
            ) from error
        if address.is_file:
            file = Path(address.uri).expanduser()
            _make_folder(file.parent)
            self.client: Any = self._guarded(lambda: MilvusClient(str(file), grpc_options=_NO_PINGS))
        else:
            more = {"token": os.environ.get(TOKEN, ""), "db_name": address.database, "timeout": _TIMEOUT_S}
            self.client = self._guarded(lambda: MilvusClient(address.uri, **more))

    def call(self, name: str, *arguments: Any, **more: Any) -> Any:
        """Call a method of the client; its errors become SkyPartError."""
        return self._guarded(lambda: getattr(self.client, name)(*arguments, **more))

    def has(self, collection: str) -> bool:
        """Whether there is a collection of that name."""
        return bool(self.call("has_collection", collection))

    def load(self, collection: str) -> None:
        """Make a collection searchable; raises if Milvus is still loading it."""
        state = str(self.call("get_load_state", collection).get("state", ""))  # `Loaded`, `NotLoad`, `Loading`
        if state.endswith("Loading"):
            raise SkyPartError(
                f"{self.address.shown}: Milvus is still loading the collection; try again when it has finished"
            )
        if not state.endswith("Loaded"):
            self.call("load_collection", collection)

    def close(self) -> None:
        """Disconnect."""
        self.client.close()

    def _guarded(self, call: Callable[[], T]) -> T:
        """The result of `call`."""
        from grpc import RpcError
        from pymilvus.exceptions import MilvusException

        try:
            return call()
        except (MilvusException, RpcError) as error:
            reason = _reason(error)
            raise SkyPartError(f"{self.address.shown}: Milvus reports: {reason}; {_remedy(reason)}") from error


def _make_folder(folder: Path) -> None:
    """Create the folder of a file of Milvus Lite."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SkyPartError(
            f"cannot write to {folder}: {error.strerror or error}; check its permissions or choose another folder"
        ) from error


def _reason(error: BaseException) -> str:
    """What went wrong, in one line. The client reports refused credentials as a server that is down, with a cause."""
    from grpc import RpcError

    cause = error.__cause__ or error.__context__
    if isinstance(cause, RpcError) and hasattr(cause, "details"):
        text = f"{cause.code().name.lower()}: {cause.details()}"
    else:
        text = str(getattr(error, "message", "") or error)
    return _without_token(" ".join(text.split()))[:300]


def _remedy(reason: str) -> str:
    """What to do about it."""
    lowered = reason.lower()
    if "open local milvus" in lowered:
        return "Milvus Lite serves one process at a time: end the other one, or use a server; else the file is damaged"
    if "unauthenticated" in lowered or ("auth" in lowered and "fail" in lowered) or "permission" in lowered:
        given = "correct" if os.environ.get(TOKEN) else "set"
        return f"{given} the environment variable {TOKEN}: a token, or USER:PASSWORD, that may use this database"
    if any(word in lowered for word in ("connect", "unavailable", "deadline", "timeout")):
        return "start Milvus, or correct the address"
    if "index" in lowered:
        return "correct the index type and its parameters in the store address"
    return "look into Milvus's log, and run the same command again"


def _without_token(text: str) -> str:
    """A message without the credentials of the environment, should Milvus repeat them."""
    token = os.environ.get(TOKEN, "")
    for secret in (token, token.partition(":")[2]):
        text = text.replace(secret, "***") if secret else text
    return text
