import socket
from typing import Any

import httpx
import pytest

from skypart.errors import SkyPartError
from skypart.serve import server
from skypart.serve.options import ServeOptions
from skypart.serve.server import listen, page_url, run_server
from tests.serve.fake_service import FakeService
from tests.serve.live import serving


def test_a_taken_port_raises() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(SkyPartError, match=f"port {port}.*--port"):
            listen(ServeOptions(port=port))


def test_an_invalid_address_raises() -> None:
    for options in (ServeOptions(host="no such host", port=0), ServeOptions(port=99999)):
        with pytest.raises(SkyPartError, match="cannot listen"):
            listen(options)


def test_the_page_url_works_in_a_browser() -> None:
    for host, shown in (("127.0.0.1", "127.0.0.1"), ("0.0.0.0", "127.0.0.1")):
        options = ServeOptions(host=host, port=0)
        with listen(options) as bound:
            assert page_url(options, bound) == f"http://{shown}:{bound.getsockname()[1]}/"


def test_the_server_starts_and_stops(service: FakeService) -> None:
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
def test_the_url_and_a_warning_are_printed(
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
