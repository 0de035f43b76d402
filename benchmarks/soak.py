"""Soak the server with the real model: python benchmarks/soak.py --minutes 30 [--index town.skyindex --photos FOLDER]

32 clients send photos to `skypart serve`; one request in ten is hostile. Before the load, every photo is located by the
quiet server; under load each answer must be the same. Fails on a wrong answer, on a 5xx other than a declared 503, on
memory or file handles that grow (see MAX_MB_PER_MINUTE), and if the server ends. Without --index, the town of
`skypart demo` is rendered and indexed in --work, once. Writes the page even when it is interrupted, and the server's
log to --work.
"""

import argparse
import io
import json
import random
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
import zlib
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import httpx
import numpy as np
from benchmarks.page import write_page
from benchmarks.serve_load import free_port
from PIL import Image

ROOT = Path(__file__).resolve().parents[1]
SAMPLE_S = 2.0
WARM_SHARE = 1 / 3
"""Share of the time that is left out of the slopes: caches, thread stacks and the allocator's heaps grow then."""
MAX_MB_PER_MINUTE, MAX_GROWTH_MB = 0.2, 10.0
"""What counts as flat after warming up: the slope of the server's memory, and its growth from first to last. The
allocator takes memory in steps of some MB; a slope that one step makes is no leak, hence a median of slopes."""
WITHIN_LIMITS = "bomb, within limits"
"""Kind of the hostile photo that is located all the same: as many pixels as a photo may have, in a few KB."""
QUIET_ATTEMPTS = 5
"""For the answers of the quiet server: on a crowded machine the limit of seconds may end the decoding of a bomb."""
MAX_HANDLES_GROWTH = 40
"""More than the connections of the clients by which the number of open files may differ between two moments."""


@dataclass
class Log:
    """What was seen. answers: by kind and status. wrong: what must not be. samples: seconds, MB of the server, open
    files, MB of its decoders."""

    answers: Counter[tuple[str, int]] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    samples: list[tuple[float, float, int, float]] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def count(self, kind: str, status: int, problem: str = "") -> None:
        """Count an answer; status 0: the server closed the connection."""
        with self.lock:
            self.answers[kind, status] += 1
            if problem:
                self.wrong.append(f"{kind}, status {status}: {problem[:200]}")


def png_bomb(width: int, height: int, palette: bool = False) -> bytes:
    """A small PNG that decodes to many pixels: black and white, or of a palette with transparency."""

    def chunk(name: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    row = width + 1 if palette else width // 8 + 1
    rows = zlib.compress(bytes(min(row * height, 1 << 26)), 9)
    header = struct.pack(">IIBBBBB", width, height, 8 if palette else 1, 3 if palette else 0, 0, 0, 0)
    tables = chunk(b"PLTE", bytes(range(6))) + chunk(b"tRNS", b"\x80\xff") if palette else b""
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + tables + chunk(b"IDAT", rows) + chunk(b"IEND", b"")


def raw(url: httpx.URL, data: bytes, wait_s: float) -> int:
    """Send bytes to the server and read what comes; the status, 0 if the server only closed the connection."""
    with socket.create_connection((url.host, url.port or 80), timeout=wait_s) as connection:
        try:
            connection.sendall(data)
            answer = connection.recv(4096)
        except OSError:  # closed, or nothing within the time: both are fine for a request that never ends
            return 0
    parts = answer.split(b" ", 2)
    return int(parts[1]) if len(parts) > 1 and parts[1].isdigit() else 0


def hostile_requests(photo: bytes) -> dict[str, Callable[[httpx.Client], int]]:
    """Hostile requests by kind; each returns the status of its answer."""
    bombs = [png_bomb(60_000, 60_000), png_bomb(1, 60_000_000), png_bomb(8_100, 8_000, palette=True)]

    def post(data: bytes, **fields: str) -> Callable[[httpx.Client], int]:
        return lambda client: client.post("/v1/locate", files={"photo": ("p", data)}, data=fields).status_code

    def get(path: str, **headers: str) -> Callable[[httpx.Client], int]:
        return lambda client: client.get(path, headers=headers).status_code

    head = b"POST /v1/locate HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: multipart/form-data; boundary=x\r\n"
    return {
        "truncated photo": post(photo[: len(photo) // 3]),
        "no photo": post(b"not an image"),
        "bomb, large": post(bombs[0]),
        "bomb, thin": post(bombs[1]),
        "bomb, palette": post(bombs[2]),
        "odd numbers": post(photo, tilt_deg="1e-300", fov_deg="nan", altitude_m="1e308"),
        "odd place": post(photo, latitude="91", longitude="inf", radius_m="-1"),
        "traversal": get("/examples/..%2f..%2f..%2fetc%2fpasswd"),
        "other host": get("/v1/index", host="evil.example"),
        "other origin": lambda client: (
            client.post(
                "/v1/locate", files={"photo": ("p", photo)}, headers={"origin": "http://evil.example"}
            ).status_code
        ),
        "no HTTP": lambda client: raw(client.base_url, b"\x16\x03\x01\x02\0" * 200 + b"\r\n\r\n", 15),
        "body never ends": lambda client: raw(client.base_url, head + b"Content-Length: 999999\r\n\r\n--x", 2),
        "body too long": lambda client: raw(client.base_url, head + b"Content-Length: 99999999999\r\n\r\n--x", 15),
        "broken form": lambda client: (
            client.post(
                "/v1/locate",
                content=b"--x\r\n\xff\xff\r\n",
                headers={"content-type": "multipart/form-data; boundary=x"},
            ).status_code
        ),
    }


def comparable(answer: dict[str, Any]) -> str:
    """An answer without its time."""
    return json.dumps({key: value for key, value in answer.items() if key != "seconds"}, sort_keys=True)


def ask(client: httpx.Client, photo: tuple[str, bytes], expected: str, log: Log, kind: str = "locate") -> float:
    """Locate a photo and compare; the seconds to wait before the next request."""
    response = client.post("/v1/locate", files={"photo": photo})
    problem = ""
    if response.status_code == 200:
        problem = "" if comparable(response.json()) == expected else f"{photo[0]}: not the answer of the quiet server"
    elif kind == WITHIN_LIMITS and response.status_code == 422 and "too much memory or time" in response.text:
        pass  # the limit of seconds, on a busy machine
    elif response.status_code != 503 or not response.headers.get("retry-after", "").isdigit():
        problem = response.text
    log.count(kind, response.status_code, problem)
    return float(response.headers.get("retry-after", 0)) if response.status_code == 503 else 0.0


def visit(url: str, seed: int, until: float, photos: dict[str, bytes], expected: dict[str, str], log: Log) -> None:
    """One client, until the time is over."""
    rng = random.Random(seed)
    usual = [name for name in photos if name != WITHIN_LIMITS]
    hostile = hostile_requests(photos[usual[0]])
    with httpx.Client(base_url=url, timeout=300) as client:
        while time.monotonic() < until:
            pause, kind = 0.0, "locate"
            try:
                if rng.random() < 0.1:
                    kind = rng.choice([*hostile, WITHIN_LIMITS])
                    if kind == WITHIN_LIMITS:
                        pause = ask(client, (kind, photos[kind]), expected[kind], log, kind)
                        continue
                    status = hostile[kind](client)
                    refused = status in (0, 503) or 400 <= status < 500
                    log.count(kind, status, "" if refused else "a hostile request was answered")
                else:
                    name = rng.choice(usual)
                    pause = ask(client, (name, photos[name]), expected[name], log)
            except (httpx.HTTPError, OSError) as error:
                closed = kind not in (
                    "locate",
                    WITHIN_LIMITS,
                )  # the server may close the connection of a hostile client
                log.count(kind, 0, "" if closed else f"{type(error).__name__}: {error}")
                pause = 0.5
            finally:
                time.sleep(max(0.0, min(pause, until - time.monotonic())))


def children(process: int) -> list[int]:
    """The children of all threads of a process: the decoders."""
    found: list[int] = []
    for task in Path(f"/proc/{process}/task").iterdir():
        try:
            found += [int(child) for child in (task / "children").read_text().split()]
        except OSError:  # a thread that has just ended
            continue
    return found


def resident_mb(process: int) -> float:
    """Resident memory of a process; 0 if it has just ended."""
    try:
        return int(Path(f"/proc/{process}/statm").read_text().split()[1]) * 4096 / 1e6
    except OSError:
        return 0.0


def measure(process: int) -> tuple[float, int, float]:
    """Resident MB of the server, its open files, and resident MB of its decoders."""
    handles = sum(1 for _ in Path(f"/proc/{process}/fd").iterdir())
    return resident_mb(process), handles, sum(resident_mb(child) for child in children(process))


def watch(server: subprocess.Popen[bytes], begun: float, until: float, log: Log) -> None:
    """Sample memory and open files."""
    while time.monotonic() < until:
        if server.poll() is not None:
            log.wrong.append(f"the server ended with exit code {server.returncode}")
            return
        log.samples.append((time.monotonic() - begun, *measure(server.pid)))
        time.sleep(SAMPLE_S)


@dataclass(frozen=True)
class Trend:
    """What changes after warming up.

    slope: of the server's memory, MB per minute. growth: of it, from first to last, MB.
    early, late: median open files of the first and of the last quarter.
    """

    slope: float
    growth: float
    early: float
    late: float


def trend(samples: Sequence[tuple[float, float, int, float]]) -> Trend:
    """The trend of samples after warming up.

    Memory is the lowest of each twelfth of the time: photos in work take memory for a moment. The slope is the median
    of the slopes between all twelfths (Theil and Sen).
    """
    end = samples[-1][0]
    table = np.array([row for row in samples if row[0] >= WARM_SHARE * end])
    parts = [part for part in np.array_split(table, 12) if len(part)]
    times = np.array([part[:, 0].mean() / 60 for part in parts])
    lowest = np.array([part[:, 1].min() for part in parts])
    slope = float("nan")
    if len(parts) > 2:
        first, second = np.triu_indices(len(parts), 1)
        slope = float(np.median((lowest[second] - lowest[first]) / (times[second] - times[first])))
    quarter = max(1, len(table) // 4)
    handles = float(np.median(table[:quarter, 2])), float(np.median(table[-quarter:, 2]))
    return Trend(slope, float(lowest[-1] - lowest[0]), *handles)


JUDGED_MINUTES = 20.0
"""Shorter runs are warming up; their memory is not judged."""


def verdicts(log: Log, minutes: float) -> list[str]:
    """What is not as it should be."""
    seen, found = trend(log.samples), []
    if log.wrong:
        found.append(f"{len(log.wrong)} wrong answers, the first: {log.wrong[0]}")
    if minutes >= JUDGED_MINUTES and not seen.slope <= MAX_MB_PER_MINUTE:
        found.append(f"memory grows by {seen.slope:.2f} MB per minute")
    if minutes >= JUDGED_MINUTES and not seen.growth <= MAX_GROWTH_MB:
        found.append(f"memory grew by {seen.growth:.1f} MB after warming up")
    if seen.late > seen.early + MAX_HANDLES_GROWTH:
        found.append(f"open files grow from {seen.early:.0f} to {seen.late:.0f}")
    return found


def page(log: Log, minutes: float, clients: int, photos: int) -> list[str]:
    """The page as lines of Markdown."""
    seen = trend(log.samples)
    memory, decoders = [row[1] for row in log.samples], [row[3] for row in log.samples]
    found = verdicts(log, minutes)
    judged = "" if minutes >= JUDGED_MINUTES else f" Runs of less than {JUDGED_MINUTES:.0f} minutes are not judged."
    return [
        "# The server under attack",
        "",
        f"{clients} clients for {log.samples[-1][0] / 60:.1f} minutes against `skypart serve` with its model. "
        f"They sent {photos} photos again and again, one request in ten was hostile.",
        "",
        "| request | status | answers |",
        "|---|---|---|",
        *(f"| {kind} | {status or 'closed'} | {count:,} |" for (kind, status), count in sorted(log.answers.items())),
        "",
        f"Wrong answers, undeclared errors and broken connections: **{len(log.wrong)}**. "
        "An answer is right if it equals that of the quiet server.",
        "",
        f"Memory of the server: {min(memory):.0f} to {max(memory):.0f} MB. "
        f"After the first third of the time: slope {seen.slope:+.2f} MB per minute, growth {seen.growth:+.1f} MB."
        f"{judged}",
        f"Flat means a slope of at most {MAX_MB_PER_MINUTE:g} MB per minute and a growth of at most "
        f"{MAX_GROWTH_MB:g} MB.",
        "The slope is the median of those between all twelfths of the time, each with its lowest memory.",
        "",
        f"Memory of the decoders, which are replaced when a photo takes too much: at most {max(decoders):.0f} MB.",
        f"Open files: median {seen.early:.0f} at first, {seen.late:.0f} at last.",
        "",
        *(["**Passed.**"] if not found else [f"**Failed:** {problem}." for problem in found]),
    ]


def demo_index(work: Path) -> tuple[Path, Path]:
    """The index and the photos of `skypart demo`, made once."""
    from skypart.demo import TOWN_VIEWS
    from skypart.demo_town import make_town
    from skypart.embedding import load
    from skypart.maps.build import build_index

    files = make_town(work / "town")
    index = work / "town.skyindex"
    build_index([str(path) for path in files.maps], index, load("default"), "default", TOWN_VIEWS)
    return index, files.photos


def start_server(index: Path, log: Path) -> tuple[subprocess.Popen[bytes], str]:
    """`skypart serve`, answering. log: what it prints."""
    port = free_port()
    code = "import sys; from skypart.cli import main; sys.exit(main())"
    command = [sys.executable, "-c", code, "serve", str(index), "--port", str(port)]
    with log.open("wb") as output:
        server = subprocess.Popen(command, cwd=ROOT, stdout=output, stderr=output)
    url = f"http://127.0.0.1:{port}"
    while server.poll() is None:
        try:
            httpx.get(f"{url}/healthz", timeout=30)
            return server, url
        except httpx.HTTPError:
            time.sleep(0.5)
    raise SystemExit(f"the server did not start: try `skypart serve {index}`")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--clients", type=int, default=32)
    parser.add_argument("--index", type=Path, default=None)
    parser.add_argument("--photos", type=Path, default=None, help="folder of photos for the index")
    parser.add_argument("--most", type=int, default=12, help="photos to send, at most")
    parser.add_argument("--work", type=Path, default=Path("soak-out"))
    parser.add_argument("--out", type=Path, default=Path("docs/results/soak.md"))
    given = parser.parse_args()
    index, folder = (given.index, given.photos) if given.index else demo_index(given.work)
    if folder is None:
        raise SystemExit("--index needs --photos FOLDER")
    files = [file for file in sorted(folder.iterdir()) if file.suffix.lower() in (".jpg", ".jpeg", ".png")]
    given.work.mkdir(parents=True, exist_ok=True)
    photos = {file.name: file.read_bytes() for file in files[: given.most]}
    for data in photos.values():
        Image.open(io.BytesIO(data)).verify()
    photos[WITHIN_LIMITS] = png_bomb(8_000, 8_000, palette=True)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # ends the server, too
    server, url = start_server(index.resolve(), given.work / "server.log")
    log = Log()
    try:
        expected = {}
        with httpx.Client(base_url=url, timeout=300) as client:
            for name, data in photos.items():
                for attempt in range(QUIET_ATTEMPTS):
                    start = time.monotonic()
                    answer = client.post("/v1/locate", files={"photo": (name, data)})
                    print(f"{name}: {answer.status_code} after {time.monotonic() - start:.1f} s", flush=True)
                    if answer.status_code == 200 or attempt + 1 == QUIET_ATTEMPTS:
                        break
                expected[name] = comparable(answer.raise_for_status().json())
        print(f"{len(photos) - 1} photos located by the quiet server; {given.clients} clients start", flush=True)
        begun = time.monotonic()
        until = begun + 60 * given.minutes
        threads = [
            threading.Thread(target=visit, args=(url, seed, until, photos, expected, log), daemon=True)
            for seed in range(given.clients)
        ]
        for thread in threads:
            thread.start()
        try:
            watch(server, begun, until, log)
            for thread in threads:
                thread.join(300 if server.poll() is None else 1)
        except KeyboardInterrupt:
            log.wrong.append("stopped before the end")
    finally:
        server.terminate()
        server.wait()
    write_page(given.out, page(log, given.minutes, given.clients, len(photos) - 1))
    sys.exit(1 if verdicts(log, given.minutes) else 0)


if __name__ == "__main__":
    main()
