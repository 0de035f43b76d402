"""Requests that proxies and servers may read differently, or that break off: one answer, no traceback."""

import logging
import socket

import httpx
import pytest

from tests.serve.fake_service import FakeService
from tests.serve.live import serving

SECOND = b"GET /v1/index HTTP/1.1\r\nHost: localhost\r\n\r\n"
POST = b"POST /v1/none HTTP/1.1\r\nHost: localhost\r\n"
CHUNKED = b"Transfer-Encoding: chunked\r\n"


def answers(data: bytes) -> list[int]:
    """The statuses of all answers to what one connection sends, until the server closes it."""
    with serving(FakeService()) as url:
        with socket.create_connection(("127.0.0.1", httpx.URL(url).port or 80), timeout=60) as client:
            client.sendall(data)
            found = b""
            while chunk := client.recv(65536):
                found += chunk
        assert httpx.get(f"{url}/healthz", timeout=60).status_code == 200
    return [int(line.split(b" ")[1]) for line in found.split(b"\r\n") if line.startswith(b"HTTP/1.1 ")]


@pytest.mark.parametrize(
    "head",
    [
        POST + b"Content-Length: 6\r\n" + CHUNKED + b"\r\n0\r\n\r\n",
        POST + CHUNKED + b"Content-Length: 6\r\n\r\n0\r\n\r\n",
        POST + CHUNKED + b"Transfer-Encoding: identity\r\n\r\n0\r\n\r\n",
        POST + b"Transfer-Encoding: xchunked\r\nContent-Length: 3\r\n\r\nabc",
        POST + b"Content-Length: 0\r\nContent-Length: 44\r\n\r\n",
        POST + b"Content-Length: +5\r\n\r\nabcde",
        POST + b"Content-Length : 5\r\n\r\nabcde",
    ],
)
def test_no_second_request_is_smuggled_behind_the_first(head: bytes) -> None:
    assert answers(head + SECOND) == [400]


def test_a_body_that_breaks_off_into_nonsense_is_no_traceback(caplog: pytest.LogCaptureFixture) -> None:
    """The server has answered 400 by itself when the application answers."""
    with caplog.at_level(logging.WARNING):
        assert answers(POST + CHUNKED + b'\r\n5;a="\n"\r\nabcde\r\n0\r\n\r\n' + SECOND) == [400]
        upload = (
            POST.replace(b"/v1/none", b"/v1/locate") + b"Content-Type: multipart/form-data; boundary=x\r\n" + CHUNKED
        )
        assert answers(upload + b"\r\n3\r\n--x\r\nnonsense\r\n") == [400]
    assert not [record for record in caplog.records if record.exc_info or record.levelno >= logging.ERROR]


@pytest.mark.parametrize("host", [b"localhost\xa0", b"localhost\x85", b"localhost:\xb2", b"evil@localhost", b"[::1]x"])
def test_host_names_with_more_around_them_are_refused(host: bytes) -> None:
    request = b"GET /v1/index HTTP/1.1\r\nHost: " + host + b"\r\nConnection: close\r\n\r\n"
    assert answers(request) == [403]
