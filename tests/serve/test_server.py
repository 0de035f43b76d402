import socket
from typing import Any

import httpx
import pytest

from skypart.errors import SkyPartError
from skypart.serve import server
from skypart.serve.options import ServeOptions
from skypart.serve.server import address, listen, run_server
from tests.serve.fake_service import FakeService
from tests.serve.live import serving


def test_a_port_that_is_taken_is_told() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(SkyPartError, match=f"port {port}.*--port"):
            listen(ServeOptions(port=port))


def test_an_address_that_is_none_is_told() -> None:
    for options in (ServeOptions(host="no such host", port=0), ServeOptions(port=99999)):
        with pytest.raises(SkyPartError, match="cannot listen"):
            listen(options)


def test_the_address_is_one_a_browser_can_open() -> None:
    for host, shown in (("127.0.0.1", "127.0.0.1"), ("0.0.0.0", "127.0.0.1")):
        options = ServeOptions(host=host, port=0)
        with listen(options) as bound:
            assert address(options, bound) == f"http://{shown}:{bound.getsockname()[1]}/"


def test_it_serves_and_ends(service: FakeService) -> None:
    with serving(service) as url:
        assert httpx.get(f"{url}/healthz").json() == {"status": "ok"}
        assert "server" not in httpx.get(f"{url}/healthz").headers
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{url}/healthz")


@pytest.mark.parametrize(
    ("options", "word"),
    [
        (ServeOptions(port=0), "painted town [old]"),
        (ServeOptions(port=0, host="0.0.0.0"), "--api-key"),
    ],
)
def test_the_address_and_what_is_unsafe_are_printed(
    service: FakeService,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    options: ServeOptions,
    word: str,
) -> None:
    class Silent:
        def run(self, sockets: list[Any]) -> None:
            sockets[0].close()

    monkeypatch.setattr(server, "build_server", lambda service, options: Silent())
    monkeypatch.setattr(service, "info", lambda: {"name": "painted town [old]"})
    run_server(service, options)
    printed = capsys.readouterr().err
    assert "http://127.0.0.1:" in printed and word in printed
    assert ("--api-key" in printed) == (options.host == "0.0.0.0")
