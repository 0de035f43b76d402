from collections.abc import Callable
from typing import Any

import pytest
from fastapi.testclient import TestClient

from skypart.hosts import host_name, is_foreign_page, is_own_origin
from skypart.serve.options import ServeOptions
from tests.serve.conftest import encoded
from tests.serve.fake_service import FakeService


@pytest.mark.parametrize(
    ("header", "name"),
    [
        ("localhost:8000", "localhost"),
        ("127.0.0.1", "127.0.0.1"),
        ("[::1]:80", "::1"),
        ("Evil.Example", "evil.example"),
        ("[::1]evil.example", ""),
        ("[::1", ""),
        ("user@localhost", ""),
        ("localhost@evil.example", ""),
        ("localhost:80:80", ""),
        ("localhost/evil", ""),
        ("", ""),
    ],
)
def test_names_in_host_headers(header: str, name: str) -> None:
    assert host_name(header) == name


def test_the_default_host_is_loopback() -> None:
    assert ServeOptions().host == "127.0.0.1"


@pytest.mark.parametrize("host", ["localhost:8000", "127.0.0.1:9", "[::1]:8000", "LOCALHOST"])
def test_a_local_server_accepts_local_names(client: TestClient, host: str) -> None:
    assert client.get("/v1/index", headers={"host": host}).status_code == 200


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8000", "127.0.0.1.evil.example", "localhost.evil", ""])
@pytest.mark.parametrize("path", ["/", "/v1/index", "/healthz", "/static/js/main.js"])
def test_a_local_server_rejects_other_names(client: TestClient, host: str, path: str) -> None:
    response = client.get(path, headers={"host": host})
    assert response.status_code == 403
    assert "localhost" in response.json()["detail"]


def test_accepted_hosts_can_be_configured(service: FakeService, open_client: Callable[..., TestClient]) -> None:
    public = open_client(service, host="0.0.0.0")
    assert public.get("/healthz", headers={"host": "any.example"}).status_code == 200
    named = open_client(service, host="0.0.0.0", hosts=("Maps.example",))
    assert named.get("/healthz", headers={"host": "maps.example:8000"}).status_code == 200
    assert named.get("/healthz", headers={"host": "other.example"}).status_code == 403


@pytest.mark.parametrize(
    ("site", "status"), [("cross-site", 403), ("same-site", 403), ("same-origin", 200), (None, 200)]
)
def test_cross_site_uploads_are_rejected(client: TestClient, photo: bytes, site: str | None, status: int) -> None:
    headers = {} if site is None else {"sec-fetch-site": site}
    response = client.post("/v1/parts", files={"photo": ("a.jpg", photo)}, headers=headers)
    assert response.status_code == status


@pytest.mark.parametrize(
    ("origin", "status"),
    [
        ("http://localhost:8000", 200),
        ("HTTP://LOCALHOST:8000", 200),
        ("http://localhost", 403),  # another port
        ("http://localhost:9000", 403),
        ("http://127.0.0.1:8000", 403),  # another name
        ("http://localhost:8000.evil.example", 403),
        ("http://localhost:8000@evil.example", 403),
        ("http://evil.example", 403),
        ("null", 403),
        ("file://", 403),
        ("", 403),
    ],
)
def test_uploads_need_the_origin_of_this_server(client: TestClient, photo: bytes, origin: str, status: int) -> None:
    """Browsers without Sec-Fetch-Site (Safari before 16.4) still send Origin."""
    headers = {"host": "localhost:8000", "origin": origin}
    response = client.post("/v1/parts", files={"photo": ("a.jpg", photo)}, headers=headers)
    assert response.status_code == status


def test_default_ports_may_be_missing() -> None:
    assert is_own_origin("http://maps.example", "maps.example:80")
    assert is_own_origin("https://maps.example:443", "maps.example")
    assert is_own_origin("http://[::1]:8000", "[::1]:8000")
    assert not is_own_origin("https://maps.example", "maps.example:80")


def test_the_key_is_required_except_for_page_and_health(
    service: FakeService, open_client: Callable[..., TestClient]
) -> None:
    client = open_client(service, api_key="schlüssel-7")
    photo = encoded(service.photo(300, 320))
    requests: dict[str, Callable[[dict[str, Any]], Any]] = {
        "index": lambda headers: client.get("/v1/index", headers=headers),
        "metrics": lambda headers: client.get("/metrics", headers=headers),
        "tile": lambda headers: client.get("/tiles/16/34871/22729.png", headers=headers),
        "examples": lambda headers: client.get("/v1/examples", headers=headers),
        "locate": lambda headers: client.post("/v1/locate", files={"photo": ("a", photo)}, headers=headers),
    }
    for name, ask in requests.items():
        for wrong in ({}, {"x-api-key": ""}, {"x-api-key": "schl"}, {"x-api-key": "Schlüssel-7".encode()}):
            refused = ask(wrong)
            assert refused.status_code == 401, name
            assert "X-API-Key" in refused.json()["detail"]
        assert ask({"x-api-key": "schlüssel-7".encode()}).status_code in (200, 204), name
    assert service.calls and len(service.calls) == 1
    for path in ("/", "/static/js/main.js", "/healthz", "/openapi.json"):
        assert client.get(path).status_code == 200


def test_the_key_is_compared_in_constant_time(
    service: FakeService, open_client: Callable[..., TestClient], monkeypatch: pytest.MonkeyPatch
) -> None:
    compared: list[tuple[bytes, bytes]] = []

    def compare(given: bytes, wanted: bytes) -> bool:
        compared.append((given, wanted))
        return given == wanted

    monkeypatch.setattr("skypart.serve.security.hmac.compare_digest", compare)
    client = open_client(service, api_key="right")
    assert client.get("/v1/index", headers={"x-api-key": "wrong"}).status_code == 401
    assert compared == [(b"wrong", b"right")]


@pytest.mark.parametrize("path", ["/", "/static/js/main.js", "/v1/index", "/nothing", "/openapi.json"])
def test_security_headers(client: TestClient, path: str) -> None:
    headers = client.get(path).headers
    policy = dict(part.strip().split(" ", 1) for part in headers["content-security-policy"].split(";"))
    assert policy["default-src"] == "'none'"
    assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == "'self'"
    assert policy["frame-ancestors"] == "'none'"
    assert "unsafe" not in headers["content-security-policy"]
    assert "http" not in headers["content-security-policy"]
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"
    assert headers["cross-origin-resource-policy"] == "same-origin"
    assert "access-control-allow-origin" not in headers


@pytest.mark.parametrize(
    "path", ["/static/../app.py", "/static/%2e%2e/app.py", "/static/..%2fapp.py", "/static//etc/passwd"]
)
def test_files_outside_the_static_folder_are_not_served(client: TestClient, path: str) -> None:
    response = client.get(path)
    assert response.status_code == 404
    assert "import" not in response.text


@pytest.mark.parametrize(
    ("origin", "host", "foreign"),
    [
        (None, "localhost:8765", False),
        ("http://localhost:3000", "localhost:8765", False),
        ("http://[::1]:3000", "[::1]:8765", False),
        ("http://127.0.0.1", "localhost:8765", True),
        ("file://localhost", "localhost:8765", True),
        ("null", "localhost:8765", True),
        (None, "evil.example", True),
        (None, "", True),
    ],
)
def test_pages_of_other_names_are_foreign(origin: str | None, host: str, foreign: bool) -> None:
    assert is_foreign_page(origin, host, frozenset(("localhost", "127.0.0.1", "::1"))) == foreign
