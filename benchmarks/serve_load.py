"""32 parallel clients for 60 s: answers, refusals, times and memory of the server.

    python benchmarks/serve_load.py                          the server over a painted map, without a model
    python benchmarks/serve_load.py --index town.skyindex    `skypart serve` over a real index
        --photos FOLDER                                      every second photo is one of these, of the indexed ground
    python benchmarks/serve_load.py --out docs/results/serve-load.md

Every client sends photos one after the other, some of them under weather or damaged, and asks for tiles and pages in
between, keeping to Retry-After. Fails unless every answer is the expected one or a declared 503, and memory is flat.
"""

import argparse
import datetime
import io
import os
import platform
import random
import re
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import numpy as np
from PIL import Image

from skypart.atomic import write_text
from skypart.images.decode import list_photos

ROOT = Path(__file__).resolve().parents[1]
WARM_SHARE = 0.25
"""Share of the time after which memory counts as begun: caches and thread stacks have grown by then."""


@dataclass
class Log:
    """What the clients saw. answers: by kind and status. seconds: of located photos. fixes: how many of them have a
    position. wrong: what must not be."""

    answers: Counter[tuple[str, int]] = field(default_factory=Counter)
    seconds: list[float] = field(default_factory=list)
    fixes: int = 0
    wrong: list[str] = field(default_factory=list)
    memory: list[tuple[float, float]] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, kind: str, response: httpx.Response, wanted: int, seconds: float) -> None:
        """Count one answer; 503 is right if it says when to come back."""
        status = response.status_code
        declared = status == 503 and response.headers.get("retry-after", "").isdigit()
        with self.lock:
            self.answers[kind, status] += 1
            if status != wanted and not declared:
                self.wrong.append(f"{kind}: {status} {response.text[:120]}")
            elif kind == "locate" and status == 200:
                self.seconds.append(seconds)
                self.fixes += response.json().get("latitude") is not None


def free_port() -> int:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        return int(bound.getsockname()[1])


def photos(number: int = 24) -> list[bytes]:
    """Photos of several sizes up to 12 million pixels, so that memory has something to grow by."""
    rng = np.random.default_rng(0)
    found = []
    for index in range(number):
        width, height = ((640, 480), (1280, 960), (1920, 1080), (4000, 3000))[index % 4]
        small = rng.integers(0, 256, (height // 40, width // 40, 3), dtype=np.uint8)
        out = io.BytesIO()
        Image.fromarray(small).resize((width, height), Image.Resampling.BICUBIC).save(out, "JPEG", quality=85)
        found.append(out.getvalue())
    return found


def ask(client: httpx.Client, rng: random.Random, pictures: list[bytes], log: Log) -> float:
    """One request of a client; the seconds to wait before the next."""
    start = time.perf_counter()
    draw = rng.random()
    if draw < 0.7:
        form = {"weather": rng.choice(("fog", "rain", "dark"))} if rng.random() < 0.2 else {}
        kind, wanted = "locate", 200
        response = client.post("/v1/locate", files={"photo": ("p.jpg", rng.choice(pictures))}, data=form)
    elif draw < 0.8:
        kind, wanted = "damaged", 422
        response = client.post("/v1/locate", files={"photo": ("p.jpg", rng.choice(pictures)[:5000])})
    elif draw < 0.95:
        kind, wanted = "index", 200
        response = client.get("/v1/index")
    else:
        kind, wanted = "page", 200
        response = client.get("/")
    log.add(kind, response, wanted, time.perf_counter() - start)
    return float(response.headers.get("retry-after", 0)) if response.status_code == 503 else 0.0


def visit(url: str, seed: int, until: float, pictures: list[bytes], log: Log) -> None:
    """One client: asks until the time is over, never gives up."""
    rng = random.Random(seed)
    with httpx.Client(base_url=url, timeout=120) as client:
        while time.perf_counter() < until:
            try:
                pause = ask(client, rng, pictures, log)
            except httpx.HTTPError as error:
                with log.lock:
                    log.wrong.append(f"{type(error).__name__}: {error}")
                pause = 0.2
            time.sleep(min(pause, max(0.0, until - time.perf_counter())))


def memory_mb(url: str) -> float:
    """Resident memory as the server itself tells it."""
    text = httpx.get(f"{url}/metrics", timeout=60).text
    found = re.search(r"^process_resident_memory_bytes (\S+)$", text, re.M)
    return float(found.group(1)) / 1e6 if found else float("nan")


def watch(url: str, begun: float, until: float, log: Log) -> None:
    """Note the server's memory every half second."""
    while time.perf_counter() < until:
        log.memory.append((time.perf_counter() - begun, memory_mb(url)))
        time.sleep(0.5)


def load(url: str, clients: int, seconds: float, pictures: list[bytes]) -> Log:
    """Let `clients` loose on the server for `seconds`."""
    log = Log()
    begun = time.perf_counter()
    until = begun + seconds
    threads = [threading.Thread(target=visit, args=(url, n, until, pictures, log)) for n in range(clients)]
    threads.append(threading.Thread(target=watch, args=(url, begun, until, log)))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return log


def levels(log: Log, seconds: float) -> tuple[float, float]:
    """Lowest memory in MB of the second and of the last quarter of the time.

    The lowest, because a photo in work may take hundreds of megabytes for a moment; what leaks is never given back.
    """
    early = [mb for at, mb in log.memory if WARM_SHARE * seconds <= at < 2 * WARM_SHARE * seconds]
    late = [mb for at, mb in log.memory if at >= (1 - WARM_SHARE) * seconds]
    return min(early), min(late)


def is_flat(early: float, late: float) -> bool:
    """Whether memory stayed where it was, but for what the allocator keeps."""
    return late <= 1.1 * early + 20


def report(log: Log, arguments: argparse.Namespace, before: float) -> str:
    """The result in words and a table."""
    early, late = levels(log, arguments.seconds)
    times = np.asarray(log.seconds or [float("nan")])
    shown = ", ".join(f"{name} {np.percentile(times, share):.2f} s" for name, share in (("median", 50), ("99 %", 99)))
    what = f"`skypart serve {Path(arguments.index).name}`" if arguments.index else "a painted map without a model"
    lines = [
        "# The server under load",
        "",
        f"{arguments.clients} parallel clients for {arguments.seconds:g} s against {what}, one inference thread.",
        *(["Half of the photos are of that ground, half are noise, up to 12 megapixels."] if arguments.photos else []),
        "",
        "| request | status | answers |",
        "|---|---|---|",
        *(f"| {kind} | {status} | {count:,} |" for (kind, status), count in sorted(log.answers.items())),
        "",
        f"Photos located: {len(log.seconds)}, {log.fixes} of them with a position.",
        f"Wrong answers and broken connections: **{len(log.wrong)}**. Time of a located photo: {shown}.",
        f"Resident memory: {before:.0f} MB at the start; lowest in the second quarter of the time {early:.0f} MB, in "
        f"the last {late:.0f} MB; highest {max(mb for _, mb in log.memory):.0f} MB: "
        f"{'flat' if is_flat(early, late) else 'NOT FLAT'}.",
        "",
        f"Made by `python {' '.join(sys.argv)}` on {datetime.date.today().isoformat()}, {platform.machine()}, "
        f"{os.cpu_count()} cores shared with the clients, load {os.getloadavg()[0]:.1f} at the end.",
        "",
    ]
    return "\n".join(lines)


def start_server(arguments: argparse.Namespace) -> tuple[subprocess.Popen[bytes], str]:
    """The server in a process of its own, answering."""
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    call = [sys.executable, "-m", "tests.serve.live"]
    if arguments.index:
        call = [str(Path(sys.executable).with_name("skypart")), "serve", str(Path(arguments.index).resolve())]
    server = subprocess.Popen([*call, "--port", str(port)], cwd=ROOT)
    while server.poll() is None:
        try:
            httpx.get(f"{url}/healthz")
            return server, url
        except httpx.HTTPError:
            time.sleep(0.2)
    raise SystemExit("the server did not start")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, default=32)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--index", default="", help="an index to serve with its model")
    parser.add_argument("--photos", type=Path, help="a folder of photos of the indexed ground")
    parser.add_argument("--out", default="", help="Markdown file to write")
    arguments = parser.parse_args()
    server, url = start_server(arguments)
    try:
        pictures = photos()
        if arguments.photos:
            real = [file.read_bytes() for file in list_photos([arguments.photos])]
            pictures += [real[number % len(real)] for number in range(len(pictures))]
        before = memory_mb(url)
        log = load(url, arguments.clients, arguments.seconds, pictures)
    finally:
        server.terminate()
        server.wait()
    text = report(log, arguments, before)
    print(text)
    for line in log.wrong[:10]:
        print(line)
    if arguments.out:
        write_text(arguments.out, text)
    if log.wrong or not is_flat(*levels(log, arguments.seconds)):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
