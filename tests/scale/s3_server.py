"""A real S3 server on loopback: moto's, from its own environment, because its AWS library pins an old dateutil."""

import os
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
KEYS = {"AWS_ACCESS_KEY_ID": "testing", "AWS_SECRET_ACCESS_KEY": "testing", "AWS_REGION": "us-east-1"}


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        return int(bound.getsockname()[1])


def find_moto() -> str:
    """The server's program; skips the test if there is none."""
    places = [
        os.environ.get("SKYPART_MOTO_SERVER", ""),
        shutil.which("moto_server") or "",
        str(ROOT / ".venv-s3/bin/moto_server"),
    ]
    found = next((place for place in places if place and Path(place).is_file()), None)
    if found is None:
        pytest.skip("no moto_server; `make s3-server` installs one into .venv-s3")
    return found


class Server:
    """A running server."""

    def __init__(self, port: int) -> None:
        self.host = f"127.0.0.1:{port}"
        self.url = f"http://{self.host}"

    def upload(self, folder: Path, bucket: str, prefix: str = "") -> None:
        """Put all files of a folder, or one file, into a bucket."""
        put(f"{self.url}/{bucket}", b"")
        files = [folder] if folder.is_file() else [path for path in folder.rglob("*") if path.is_file()]
        for path in files:
            name = path.name if folder.is_file() else str(path.relative_to(folder))
            put(f"{self.url}/{bucket}/{prefix}{name}", path.read_bytes())


def put(url: str, body: bytes) -> None:
    request = urllib.request.Request(url, data=body, method="PUT")
    request.add_header("Content-Type", "application/octet-stream")
    request.add_header("Authorization", "AWS4-HMAC-SHA256 Credential=testing/20260101/us-east-1/s3/aws4_request")
    urllib.request.urlopen(request, timeout=30).close()


@contextmanager
def running_server(folder: Path) -> Iterator[Server]:
    """Start the server, wait until it answers, and stop it at the end."""
    port = free_port()
    log = folder / "moto.log"
    with log.open("w") as output:
        process = subprocess.Popen([find_moto(), "-H", "127.0.0.1", "-p", str(port)], stdout=output, stderr=output)
    server = Server(port)
    try:
        for _ in range(600):
            try:
                urllib.request.urlopen(server.url, timeout=5).close()
                break
            except urllib.error.HTTPError:
                break
            except OSError:
                if process.poll() is not None:
                    raise RuntimeError(log.read_text()) from None
                time.sleep(0.1)
        yield server
    finally:
        process.terminate()
        process.wait(30)
