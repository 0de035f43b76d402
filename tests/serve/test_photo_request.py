import io
import select
import socket
import struct
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import httpx
import numpy as np
import pytest
from fastapi.testclient import TestClient
from PIL import Image

from skypart.serve.options import ServeOptions
from skypart.serve.photo_request import display_name
from tests.serve.conftest import encoded
from tests.serve.fake_service import FakeService
from tests.serve.live import DEADLINE_S, serving

LIMIT = 200_000
HEAD = b'--cut\r\nContent-Disposition: form-data; name="photo"; filename="a.jpg"\r\n\r\n'


@pytest.fixture
def url(service: FakeService) -> Iterator[str]:
    options = ServeOptions(port=0, max_bytes=LIMIT, max_pixels=500_000, upload_seconds=1.5, header_seconds=1.0)
    with serving(service, options) as address:
        yield address


def open_request(url: str, *headers: str) -> socket.socket:
    """A connection that has sent the head of a photo upload."""
    port = int(url.rsplit(":", 1)[1])
    connection = socket.create_connection(("127.0.0.1", port))
    lines = ["POST /v1/locate HTTP/1.1", "Host: 127.0.0.1", "Content-Type: multipart/form-data; boundary=cut", *headers]
    connection.sendall("\r\n".join([*lines, "", ""]).encode())
    return connection


def response_of(connection: socket.socket) -> str:
    """The response, read until it is complete or the server closes the connection."""
    received = b""
    while b"}" not in received:
        piece = connection.recv(4096)
        if not piece:
            break
        received += piece
    return received.decode()


def test_a_large_body_is_rejected_by_its_declared_length(url: str) -> None:
    response = httpx.post(f"{url}/v1/locate", files={"photo": ("a.jpg", b"x" * (LIMIT + 1))})
    assert response.status_code == 413
    assert "limit" in response.json()["detail"]


def test_an_endless_body_without_length_is_cut_off(url: str, service: FakeService) -> None:
    connection = open_request(url, "Transfer-Encoding: chunked")
    sent = 0
    block = b"x" * 16384
    connection.sendall(b"%x\r\n%s\r\n" % (len(HEAD), HEAD))
    try:
        while sent < 50 * LIMIT:
            connection.sendall(b"%x\r\n%s\r\n" % (len(block), block))
            sent += len(block)
    except OSError:
        pass  # the server closed the connection, as expected
    # Twice the limit: the photo and the discarded rest; the remainder is in the buffers of the two sockets.
    assert sent < 50 * LIMIT
    assert not service.calls
    assert httpx.get(f"{url}/healthz").status_code == 200


def test_a_body_longer_than_its_length_is_not_read_as_photo(url: str, service: FakeService) -> None:
    connection = open_request(url, "Content-Length: 100")
    connection.sendall(HEAD + b"x" * 5000)
    assert " 400 " in response_of(connection).splitlines()[0]
    assert not service.calls


def test_a_huge_length_is_rejected_before_the_body(url: str) -> None:
    connection = open_request(url, "Content-Length: 99999999999", "Expect: 100-continue")
    answer = response_of(connection)
    assert " 413 " in answer.splitlines()[0]
    assert "100 Continue" not in answer


def trickle(connection: socket.socket) -> None:
    """Send a byte now and then until the server responds or closes the connection."""
    end = time.monotonic() + DEADLINE_S
    while not select.select([connection], [], [], 0.05)[0]:
        assert time.monotonic() < end, "the server never gave up"
        with suppress(OSError):
            connection.sendall(b"x")


def test_a_slow_upload_times_out(url: str, service: FakeService) -> None:
    connection = open_request(url, "Content-Length: 50000")
    connection.sendall(HEAD)
    trickle(connection)
    response = response_of(connection)
    assert " 408 " in response.splitlines()[0]
    assert "connection: close" in response.lower()
    assert not service.calls


def test_a_connection_that_never_completes_its_head_is_closed(url: str) -> None:
    port = int(url.rsplit(":", 1)[1])
    with socket.create_connection(("127.0.0.1", port)) as silent:
        assert silent.recv(10) == b""
    with socket.create_connection(("127.0.0.1", port)) as slow:
        slow.sendall(b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: ")
        trickle(slow)
        with suppress(ConnectionResetError):
            assert slow.recv(10) == b""
    with socket.create_connection(("127.0.0.1", port)) as good:
        for _ in range(2):
            good.sendall(b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
            assert " 200 OK" in response_of(good)


def test_uploads_that_wait_share_a_limit(service: FakeService, open_client: Callable[..., TestClient]) -> None:
    client = open_client(service, max_bytes=LIMIT, max_waiting_bytes=LIMIT // 2)
    response = client.post("/v1/locate", files={"photo": ("a.jpg", b"x" * (LIMIT - 1000))})
    assert response.status_code == 503
    assert int(response.headers["retry-after"]) >= 1
    assert client.post("/v1/locate", files={"photo": ("a.png", encoded(service.photo(300, 300, 64)))}).json()["found"]
    assert "skypart_upload_bytes 0\n" in client.get("/metrics").text


def png_of_size(width: int, height: int) -> bytes:
    """A small PNG file whose header claims any size."""
    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    chunks = [(b"IHDR", head), (b"IDAT", zlib.compress(b"\0" * 4096)), (b"IEND", b"")]
    body = b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in chunks
    )
    return b"\x89PNG\r\n\x1a\n" + body


def test_pixels_are_counted_before_they_are_decoded(client: TestClient) -> None:
    response = client.post("/v1/locate", files={"photo": ("bomb.png", png_of_size(60_000, 60_000))})
    assert response.status_code == 422
    assert "60000 x 60000 pixels" in response.json()["detail"]


@pytest.mark.parametrize("form", ["JPEG", "PNG", "WEBP", "TIFF"])
def test_four_formats_are_taken(client: TestClient, service: FakeService, form: str) -> None:
    response = client.post("/v1/locate", files={"photo": ("photo", encoded(service.photo(300, 320), form))})
    assert response.json()["found"] is True


def test_no_other_format_is_taken(client: TestClient) -> None:
    others = [encoded(np.zeros((20, 20, 3), np.uint8), form) for form in ("GIF", "BMP", "PPM", "JPEG2000")]
    for data in (*others, b"<svg xmlns='http://www.w3.org/2000/svg'/>", b"%PDF-1.4", b"", b"RIFF1234WAVE"):
        response = client.post("/v1/locate", files={"photo": ("photo.jpg", data, "image/jpeg")})
        assert response.status_code == 415, data[:8]
        assert "JPEG, PNG, WebP or TIFF" in response.json()["detail"]


def test_a_damaged_photo_is_rejected(client: TestClient, photo: bytes) -> None:
    for data in (photo[: len(photo) // 3], photo[:10]):
        response = client.post("/v1/locate", files={"photo": ("a.jpg", data)})
        assert response.status_code == 422
        assert "the uploaded image" in response.json()["detail"]


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("../../etc/passwd", "passwd"),
        ("..\\..\\windows\\system.ini", "system.ini"),
        ("/root/.ssh/id_rsa", "id_rsa"),
        ("..", "photo"),
        ("", "photo"),
        ("a\x00b\r\n.jpg", "ab.jpg"),
        ("x" * 500 + ".jpg", "x" * 120),
        ("Überflug 3.jpg", "Überflug 3.jpg"),
    ],
)
def test_display_names_are_never_paths(name: str, shown: str) -> None:
    assert display_name(name) == shown


def test_uploads_are_never_written_to_disk(
    client: TestClient, photo: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inside = tmp_path / "a" / "b"
    inside.mkdir(parents=True)
    monkeypatch.chdir(inside)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    for name in ("../../escaped.jpg", str(tmp_path / "absolute.jpg"), "plain.jpg"):
        answer = client.post("/v1/locate", files={"photo": (name, photo)}).json()
        assert answer["photo"] == Path(name).name
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_malformed_forms_are_rejected(client: TestClient, photo: bytes) -> None:
    cases = {
        "json": client.post("/v1/locate", json={"photo": "x"}),
        "nothing": client.post("/v1/locate"),
        "another field": client.post("/v1/locate", files={"image": ("a.jpg", photo)}),
        "text": client.post("/v1/locate", files={"photo": (None, "text")}),
        "two files": client.post("/v1/locate", files=[("photo", ("a.jpg", photo)), ("photo", ("b.jpg", photo))]),
        "long field": client.post("/v1/locate", files={"photo": ("a.jpg", photo)}, data={"weather": "x" * 9000}),
        "many fields": client.post(
            "/v1/locate", files={"photo": ("a.jpg", photo)}, data={f"f{i}": "1" for i in range(99)}
        ),
        "no boundary": client.post("/v1/locate", content=b"x", headers={"content-type": "multipart/form-data"}),
        "cut": client.post("/v1/locate", content=HEAD, headers={"content-type": "multipart/form-data; boundary=cut"}),
    }
    for name, response in cases.items():
        assert response.status_code in (400, 415), name
        assert set(response.json()) == {"detail"}, name


def test_photos_are_turned_upright_before_they_are_located(client: TestClient, service: FakeService) -> None:
    turned = Image.fromarray(np.rot90(service.photo(300, 320), 1).copy())
    exif = Image.Exif()
    exif[0x0112] = 6
    out = io.BytesIO()
    turned.save(out, "JPEG", exif=exif, quality=95)
    assert client.post("/v1/locate", files={"photo": ("a.jpg", out.getvalue())}).json()["found"] is True
