"""A local server that behaves like GitHub, with faults on demand."""

import hashlib
import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import quote, unquote, urlsplit

from skypart.datasets.fetch.github import Hosts
from skypart.datasets.fetch.web import RetryPolicy

FAST_RETRIES = RetryPolicy(attempts=3, pause_s=0.0, timeout_s=5.0)


@dataclass
class FakeGitHub:
    """repositories: files by OWNER/NAME@COMMIT and path. The other fields are faults.

    breaks: so many responses end after `break_after` bytes. codes: status codes to send first, by the end of the path.
    altered: paths whose content differs from the listing. requests: (path, Range header) in order.
    """

    repositories: dict[str, dict[str, bytes]] = field(default_factory=dict)
    breaks: int = 0
    break_after: int = 1000
    codes: dict[str, list[int]] = field(default_factory=dict)
    headers: dict[str, str] = field(default_factory=dict)
    altered: set[str] = field(default_factory=set)
    without_ranges: bool = False
    without_length: bool = False
    short_listings: bool = False
    requests: list[tuple[str, str | None]] = field(default_factory=list)
    address: str = ""

    @property
    def hosts(self) -> Hosts:
        return Hosts(f"{self.address}/api", f"{self.address}/raw")

    @property
    def requested_files(self) -> list[str]:
        return [path for path, _ in self.requests if path.startswith("/raw/")]

    def listing(self, repository: str, tree: str, recursive: bool) -> dict[str, object] | None:
        """The response of the trees API; the id of a tree is its commit, a colon and its path."""
        commit, _, prefix = tree.partition(":")
        files = self.repositories.get(f"{repository}@{commit}")
        if files is None:
            return None
        start = f"{prefix}/" if prefix else ""
        inside = {path.removeprefix(start): content for path, content in files.items() if path.startswith(start)}
        entries: dict[str, dict[str, object]] = {}
        for path, content in inside.items():
            parts = path.split("/")
            for depth in range(1, len(parts) if recursive else min(2, len(parts))):
                folder = "/".join(parts[:depth])
                entries[folder] = {"path": folder, "type": "tree", "sha": quote(f"{commit}:{start}{folder}")}
            if recursive or len(parts) == 1:
                blob = hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()
                entries[path] = {"path": path, "type": "blob", "sha": blob, "size": len(content)}
        cut = recursive and self.short_listings and len(entries) > 3
        return {"sha": tree, "tree": list(entries.values())[: 3 if cut else None], "truncated": cut}


def _handler(server: FakeGitHub) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            url = urlsplit(self.path)
            path = unquote(url.path)
            server.requests.append((path, self.headers.get("Range")))
            for ending, codes in server.codes.items():
                if path.endswith(ending) and codes:
                    self.answer(codes.pop(0), b"", server.headers)
                    return
            parts = path.split("/")
            if path.startswith("/api/repos/"):
                listing = server.listing("/".join(parts[3:5]), "/".join(parts[7:]), url.query == "recursive=1")
                self.answer(200 if listing else 404, json.dumps(listing).encode())
                return
            content = server.repositories.get(f"{parts[2]}/{parts[3]}@{parts[4]}", {}).get("/".join(parts[5:]))
            if content is None:
                self.answer(404, b"gone")
            else:
                self.give(bytes(byte ^ 1 for byte in content) if path in server.altered else content)

        def give(self, content: bytes) -> None:
            asked = self.headers.get("Range")
            if not asked or server.without_ranges:
                self.answer(200, content)
                return
            start = int(asked.removeprefix("bytes=").removesuffix("-"))
            if start >= len(content):
                self.answer(416, b"", {"Content-Range": f"bytes */{len(content)}"})
                return
            span = f"bytes {start}-{len(content) - 1}/{len(content)}"
            self.answer(206, content[start:], {"Content-Range": span})

        def answer(self, code: int, body: bytes, headers: dict[str, str] | None = None) -> None:
            self.send_response(code)
            if not server.without_length:
                self.send_header("Content-Length", str(len(body)))
            for name, value in (headers or {}).items():
                self.send_header(name, value)
            self.end_headers()
            if server.breaks and code < 300 and len(body) > server.break_after and "/raw/" in self.path:
                server.breaks -= 1
                self.wfile.write(body[: server.break_after])
                self.wfile.flush()
                self.connection.shutdown(socket.SHUT_RDWR)
                return
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Stay quiet."""

    return Handler


@contextmanager
def serving(server: FakeGitHub) -> Iterator[FakeGitHub]:
    """Let `server` answer on a free port of this machine."""
    real = ThreadingHTTPServer(("127.0.0.1", 0), _handler(server))
    real.daemon_threads = True
    thread = threading.Thread(target=real.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    server.address = f"http://127.0.0.1:{real.server_address[1]}"
    try:
        yield server
    finally:
        real.shutdown()
        real.server_close()
        thread.join()


def parts_left(folder: Path) -> list[str]:
    """Names of unfinished downloads below a folder."""
    return sorted(path.name for path in folder.rglob("*.part") if path.is_file())
