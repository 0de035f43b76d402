"""The nginx file of docs/howto/proxy.md, in front of a server: the page's uploads pass, those of other pages do not."""

import getpass
import os
import re
import shutil
import ssl
import subprocess
from pathlib import Path

import httpx
import pytest

from skypart.serve.options import ServeOptions
from tests.scale.s3_server import free_port
from tests.scale.test_replicas import NGINX, ROOT, process
from tests.serve.fake_service import FakeService
from tests.serve.live import serving, wait_until

PAGE = "https://maps.example.org"


def configuration(folder: Path, server: str, port: int) -> Path:
    """The file of the page, with a certificate, and the address of `server` and a port of this machine."""
    page = (ROOT / "docs" / "howto" / "proxy.md").read_text(encoding="utf-8")
    text = re.findall(r"```nginx\n(.*?)```", page, re.DOTALL)[0]
    for old, new in (
        ("listen 443 ssl;", f"listen 127.0.0.1:{port} ssl;"),
        ("http://127.0.0.1:8000;", f"{server};"),
        ("/etc/ssl/maps.", f"{folder}/maps."),
    ):
        assert old in text
        text = text.replace(old, new)
    make = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=maps.example.org"]
    make += ["-keyout", str(folder / "maps.key"), "-out", str(folder / "maps.pem")]
    subprocess.run(make, check=True, capture_output=True)
    kinds = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    paths = "".join(f"    {kind}_temp_path {folder / kind};\n" for kind in kinds)
    user = f"user {getpass.getuser()};\n" if os.geteuid() == 0 else ""
    file = folder / "nginx.conf"
    file.write_text(
        f"{user}daemon off;\npid {folder / 'nginx.pid'};\nerror_log {folder / 'error.log'};\nevents {{}}\n"
        f"http {{\n    access_log off;\n{paths}{text}}}\n"
    )
    return file


@pytest.mark.slow
@pytest.mark.skipif(NGINX is None or shutil.which("openssl") is None, reason="nginx or openssl is not installed")
def test_uploads_pass_the_proxy_from_its_own_page_only(service: FakeService, photo: bytes, tmp_path: Path) -> None:
    assert NGINX is not None
    with serving(service, ServeOptions(port=0, api_key="secret")) as server:
        port = free_port()
        command = [NGINX, "-p", str(tmp_path), "-c", str(configuration(tmp_path, server, port))]
        trusted = ssl.create_default_context(cafile=str(tmp_path / "maps.pem"))
        trusted.check_hostname = False  # the name is not in any DNS
        with process(command, tmp_path / "nginx.log") as proxy, httpx.Client(verify=trusted, timeout=120) as client:
            url = f"https://127.0.0.1:{port}"

            def answers() -> bool:
                assert proxy.poll() is None, (tmp_path / "nginx.log").read_text() + (tmp_path / "error.log").read_text()
                try:
                    return client.get(f"{url}/healthz").status_code == 200
                except httpx.TransportError:
                    return False

            wait_until(answers)

            def upload(**headers: str) -> int:
                sent = {"Host": "maps.example.org", "X-API-Key": "secret"} | headers
                return client.post(f"{url}/v1/locate", files={"photo": photo}, headers=sent).status_code

            assert upload(Origin=PAGE, **{"Sec-Fetch-Site": "same-origin"}) == 200, "a browser"
            assert upload(Origin=PAGE) == 200, "a browser without Sec-Fetch-Site"
            assert upload() == 200, "a program"
            assert upload(Origin="https://elsewhere.example") == 403
            assert upload(Origin=PAGE, **{"Sec-Fetch-Site": "cross-site"}) == 403
            assert upload(Origin=PAGE, **{"X-API-Key": "wrong"}) == 401
