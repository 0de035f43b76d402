"""Three replicas of `skypart serve` behind nginx or Caddy share one index; one is killed under load."""

import getpass
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from PIL import Image

import skypart
from skypart.embedding import load
from skypart.maps.build import build_index
from skypart.model import SkyPart, VisionTransformer
from tests.model.builders import TINY_HEAD, TINY_VIT, scramble
from tests.position.stand_in import OPTIONS, Shot, quilt, write_quilt
from tests.scale.s3_server import free_port

ROOT = Path(__file__).resolve().parents[2]
NGINX = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin:/sbin")
CADDY = shutil.which("caddy")
CLIENTS, REQUESTS, KILL_AFTER = 4, 24, 6


@contextmanager
def process(command: list[str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A program that is stopped at the end of the block."""
    environment = os.environ | {"PYTHONPATH": f"{ROOT / 'src'}:{ROOT}", "OMP_NUM_THREADS": "1"}
    with log.open("wb") as output:
        started = subprocess.Popen(command, stdout=output, stderr=output, env=environment)
    try:
        yield started
    finally:
        if started.poll() is None:
            started.terminate()
        started.wait(60)


def wait_for(url: str, started: subprocess.Popen[bytes], log: Path) -> None:
    end = time.monotonic() + 180
    while True:
        try:
            if httpx.get(f"{url}/healthz", timeout=5).status_code == 200:
                return
        except httpx.HTTPError:
            pass
        assert started.poll() is None and time.monotonic() < end, log.read_text(errors="replace")
        time.sleep(0.2)


def nginx_configuration(folder: Path, port: int, replicas: list[int]) -> Path:
    """The configuration of deploy/, with ports of this machine."""
    text = (ROOT / "deploy" / "nginx.conf").read_text()
    assert text.count("listen 8080;") == 1
    text = text.replace("listen 8080;", f"listen 127.0.0.1:{port};")
    for number, replica in enumerate(replicas, 1):
        assert text.count(f"replica{number}:8000") == 1
        text = text.replace(f"replica{number}:8000", f"127.0.0.1:{replica}")
    paths = "".join(
        f"    {name}_temp_path {folder / name};\n" for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    text = text.replace("http {\n", f"http {{\n{paths}", 1)
    file = folder / "nginx.conf"
    user = f"user {getpass.getuser()};\n" if os.geteuid() == 0 else ""  # so that its workers may write to the folder
    file.write_text(f"{user}daemon off;\npid {folder / 'nginx.pid'};\nerror_log {folder / 'error.log'};\n{text}")
    return file


def caddy_configuration(folder: Path, port: int, replicas: list[int]) -> Path:
    """The configuration of deploy/, with ports of this machine."""
    text = (ROOT / "deploy" / "Caddyfile").read_text()
    assert text.count("\n:8080 {") == 1
    text = text.replace("\n:8080 {", f"\n:{port} {{\n\tbind 127.0.0.1")
    for number, replica in enumerate(replicas, 1):
        assert text.count(f"replica{number}:8000") == 1
        text = text.replace(f"replica{number}:8000", f"127.0.0.1:{replica}")
    file = folder / "Caddyfile"
    file.write_text(f"{{\n\tadmin off\n}}\n{text}")
    return file


def proxy_command(name: str, folder: Path, port: int, replicas: list[int]) -> list[str]:
    """Starts the proxy called `name` in the foreground."""
    if name == "nginx":
        return [str(NGINX), "-p", str(folder), "-c", str(nginx_configuration(folder, port, replicas))]
    configuration = caddy_configuration(folder, port, replicas)
    folders = [f"{name}={folder / 'caddy'}" for name in ("XDG_CONFIG_HOME", "XDG_DATA_HOME")]
    return ["env", *folders, str(CADDY), "run", "--adapter", "caddyfile", "--config", str(configuration)]


def locate(url: str, photo: Path, tries: int = 1) -> dict[str, Any]:
    """The answer to a photo, apart from the time it took. tries: how often to ask while the answer is 502."""
    for _ in range(tries):
        with photo.open("rb") as file:
            answer = httpx.post(f"{url}/v1/locate", files={"photo": (photo.name, file, "image/png")}, timeout=120)
        if answer.status_code != 502:
            break
    assert answer.status_code == 200, answer.text
    content: dict[str, Any] = answer.json()
    del content["seconds"]
    return content


@pytest.mark.slow
@pytest.mark.parametrize(
    "proxy_name",
    [
        pytest.param("nginx", marks=pytest.mark.skipif(NGINX is None, reason="nginx is not installed")),
        pytest.param("caddy", marks=pytest.mark.skipif(CADDY is None, reason="caddy is not installed")),
    ],
)
def test_killing_one_of_three_replicas_under_load_gives_no_wrong_answer(proxy_name: str, tmp_path: Path) -> None:
    tiny = SkyPart(VisionTransformer(TINY_VIT), TINY_HEAD)
    scramble(tiny, 1)
    model = tmp_path / "tiny.safetensors"
    skypart.save(tiny.eval(), model)
    town = write_quilt(tmp_path / "town.tif", seed=1)
    build_index([str(town)], tmp_path / "town.skyindex", load(model), str(model), OPTIONS)
    before = {file: file.stat().st_mtime_ns for file in (tmp_path / "town.skyindex").rglob("*")}
    photos = []
    for number, shot in enumerate([Shot(30, -40, 20), Shot(-90, 80, 200), Shot(0, 0), Shot(100, 100, 90)]):
        photos.append(tmp_path / f"photo{number}.png")
        Image.fromarray(shot.photo(quilt(1))).save(photos[-1])
    with ExitStack() as stack:
        ports = [free_port() for _ in range(3)]
        replicas = []
        for port in ports:
            log = tmp_path / f"{port}.log"
            command = [
                sys.executable,
                "-m",
                "skypart.cli",
                "serve",
                str(tmp_path / "town.skyindex"),
                "--port",
                str(port),
            ]
            replicas.append(stack.enter_context(process(command, log)))
        for port, replica in zip(ports, replicas, strict=True):
            wait_for(f"http://127.0.0.1:{port}", replica, tmp_path / f"{port}.log")
        proxy_port = free_port()
        command = proxy_command(proxy_name, tmp_path, proxy_port, ports)
        proxy = stack.enter_context(process(command, tmp_path / "proxy.log"))
        url = f"http://127.0.0.1:{proxy_port}"
        wait_for(url, proxy, tmp_path / "proxy.log")
        expected = [locate(f"http://127.0.0.1:{ports[0]}", photo) for photo in photos]
        assert expected[0]["candidates"] != expected[1]["candidates"], "photos have answers of their own"
        with ThreadPoolExecutor(CLIENTS) as pool:
            tries = 1 if proxy_name == "nginx" else 4  # Caddy 2.6 cannot send an upload again
            answers = [pool.submit(locate, url, photos[number % len(photos)], tries) for number in range(REQUESTS)]
            answers[KILL_AFTER].result()
            replicas[1].send_signal(signal.SIGKILL)
            for number, answer in enumerate(answers):
                assert answer.result() == expected[number % len(photos)]
        assert replicas[1].wait(10) == -signal.SIGKILL
        assert all(replica.poll() is None for replica in (replicas[0], replicas[2]))
    after = {file: file.stat().st_mtime_ns for file in (tmp_path / "town.skyindex").rglob("*")}
    assert after == before, "replicas only read the index"
