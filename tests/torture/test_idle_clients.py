"""Clients that open connections and do nothing cannot stop the server."""

import logging
import socket
import time
from pathlib import Path

import httpx
import pytest

from skypart.serve.connections import LOG_CHARACTERS, LOG_LINES, LOG_SECONDS, LogLimit
from skypart.serve.options import ServeOptions
from tests.serve.conftest import encoded
from tests.serve.fake_service import FakeService
from tests.serve.live import serving, wait_until

UNFINISHED_PHOTO = (
    b"POST /v1/locate HTTP/1.1\r\nHost: localhost\r\nContent-Type: multipart/form-data; boundary=x\r\n"
    b"Content-Length: 1000\r\n\r\n--x"
)
UNFINISHED = b"POST /v1/none HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\nabc"


def connect(url: str, data: bytes = b"") -> socket.socket:
    made = socket.create_connection(("127.0.0.1", httpx.URL(url).port or 80), timeout=30)
    made.sendall(data)
    return made


def open_sockets() -> int:
    """Sockets of this process: of the server and of its clients."""
    found = 0
    for handle in Path("/proc/self/fd").iterdir():
        try:
            found += str(handle.readlink()).startswith("socket:")
        except OSError:
            continue
    return found


def drained(client: socket.socket) -> bytes:
    """Everything until the server closes the connection."""
    client.settimeout(30)
    data = b""
    try:
        while chunk := client.recv(65536):
            data += chunk
    except ConnectionResetError:
        pass
    return data


def test_an_answered_request_with_an_unfinished_body_is_closed() -> None:
    with serving(FakeService()) as url:
        client = connect(url, UNFINISHED)
        assert b" 404 " in drained(client).split(b"\r\n")[0]


@pytest.mark.slow
def test_a_thousand_unfinished_requests_leave_the_server_alive() -> None:
    with serving(FakeService()) as url:
        before = open_sockets()
        clients = []
        for _ in range(1010):
            try:
                clients.append(connect(url, UNFINISHED))
            except OSError:  # refused, or out of handles in this process
                break
        assert len(clients) > 300
        # A busy machine needs a moment to answer and close the connections above; until then it declares 503.
        wait_until(lambda: httpx.get(f"{url}/healthz", timeout=30).status_code == 200)
        for _ in range(5):
            assert httpx.get(f"{url}/healthz", timeout=30).status_code == 200
        for client in clients:
            client.close()
        wait_until(lambda: open_sockets() <= before + 2)


def test_a_new_connection_replaces_the_oldest_idle_one() -> None:
    options = ServeOptions(port=0, max_connections=8, max_client_connections=6, header_seconds=600)
    with serving(FakeService(), options) as url:
        idle = [connect(url) for _ in range(6)]
        assert httpx.get(f"{url}/healthz").status_code == 200
        assert drained(idle[0]) == b""  # closed
        for client in idle:
            client.close()


def test_busy_connections_are_not_replaced() -> None:
    service = FakeService(delay=3.0)
    options = ServeOptions(port=0, max_connections=2, max_client_connections=2)
    body = encoded(service.photo(300, 320))
    with serving(service, options) as url:
        head = (
            b"POST /v1/locate HTTP/1.1\r\nHost: localhost\r\nContent-Type: multipart/form-data; boundary=x\r\n"
            b'Content-Length: %d\r\n\r\n--x\r\nContent-Disposition: form-data; name="photo"; filename="a.jpg"\r\n\r\n'
        )
        end = b"\r\n--x--\r\n"
        size = len(head.partition(b"\r\n\r\n")[2]) + len(body) + len(end)
        busy = [connect(url, head % size + body + end) for _ in range(2)]
        time.sleep(0.5)
        assert b" 503 " in drained(connect(url)).split(b"\r\n")[0]
        for client in busy:
            assert b" 200 " in client.recv(65536).split(b"\r\n")[0]
            client.close()


def test_a_request_that_never_ends_is_dropped() -> None:
    options = ServeOptions(port=0, request_seconds=0.5)
    with serving(FakeService(), options) as url:
        client = connect(url, b"POST /v1/locate HTTP/1.1\r\nHost: localhost\r\nContent-Type: multipart/form-data; ")
        client.sendall(b"boundary=x\r\nContent-Length: 1000\r\n\r\n--x")
        assert drained(client) == b""


@pytest.mark.parametrize("between", ["answered", "pipelined"])
def test_a_later_request_of_a_connection_that_never_ends_is_dropped(between: str) -> None:
    options = ServeOptions(port=0, request_seconds=0.5, upload_seconds=3600)
    first, second = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n", UNFINISHED_PHOTO
    with serving(FakeService(), options) as url:
        client = connect(url, first + second if between == "pipelined" else first)
        if between == "answered":
            assert b" 200 " in client.recv(65536)
            client.sendall(second)
        assert b"HTTP/1.1 200" not in drained(client).removeprefix(b"HTTP/1.1 200")


def test_empty_lines_do_not_keep_a_connection() -> None:
    """h11 skips them before a request: they are no head, and end the wait for one."""
    options = ServeOptions(port=0, header_seconds=0.5)
    with serving(FakeService(), options) as url:
        client = connect(url, b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert b" 200 " in client.recv(65536)
        client.sendall(b"\r\n")
        drained(client)


def test_the_log_is_bounded() -> None:
    now = [0.0]
    limit = LogLimit(lambda: now[0])

    def passed(message: str) -> logging.LogRecord | None:
        record = logging.LogRecord("asyncio", logging.ERROR, "", 0, message, (), None)
        return record if limit.filter(record) else None

    assert sum(passed("no file handles") is not None for _ in range(10_000)) == LOG_LINES
    now[0] += LOG_SECONDS
    record = passed("later")
    assert record is not None and "9950 similar lines" in record.getMessage()
    long = passed("x" * 1_000_000)
    assert long is not None and len(long.getMessage()) <= LOG_CHARACTERS + 3


@pytest.mark.slow
def test_a_connection_outlives_the_idle_time_of_common_clients() -> None:
    """httpx closes idle connections after 5 s. A server that closes at the same time loses requests on their way."""
    request = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"

    def answer(client: socket.socket) -> bytes:
        data = b""
        while not data.endswith(b"}") and (chunk := client.recv(65536)):
            data += chunk
        return data

    with serving(FakeService()) as url:
        client = connect(url, request)
        assert answer(client).startswith(b"HTTP/1.1 200")
        time.sleep(7.0)
        client.sendall(request)
        assert answer(client).startswith(b"HTTP/1.1 200")
        client.close()


def test_a_request_after_a_rejected_upload_is_answered() -> None:
    """The server does not read rejected uploads, so the client must know that the connection ends with the answer."""
    foreign = {"origin": "http://evil.example"}
    with serving(FakeService()) as url, httpx.Client(base_url=url, timeout=30) as client:
        for _ in range(5):
            rejected = client.post("/v1/locate", files={"photo": ("p", bytes(400_000))}, headers=foreign)
            assert rejected.status_code == 403
            assert client.get("/healthz").status_code == 200
