"""Decode uploads in a child process with limits of memory and time, which can open no file and no connection.

    python -m skypart.serve.decoder BYTES SECONDS      the child: requests on standard input, answers on output

A request is a line of JSON, then the encoded photo. An answer is a line of JSON, then the pixels.
"""

import io
import json
import os
import resource
import select
import subprocess
import sys
import threading
import time
from dataclasses import asdict
from datetime import datetime
from typing import IO, Any

import numpy as np

from skypart.confine import confine_thread
from skypart.errors import SkyPartError
from skypart.images.decode import RgbImage, read_photo, read_rgb
from skypart.images.exif import CameraFacts, read_camera_facts

PATIENCE = 5.0
"""Seconds to wait for a child, per second of the processor that it may use: the machine may be busy."""
_TOO_MUCH = "decoding it takes too much memory or time; scale it down or save it as JPEG"


class PhotoDecoder:
    """A child process that decodes one photo at a time. It is started when first needed, and again after it died.

    memory_bytes: of its address space. seconds: of the processor, for one photo. Thread-safe: callers take turns.
    """

    def __init__(self, memory_bytes: int, seconds: float) -> None:
        self._memory_bytes = memory_bytes
        self._seconds = seconds
        self._lock = threading.Lock()
        self._child: subprocess.Popen[bytes] | None = None

    def decode(self, photo: bytes, max_pixels: int, edge: int | None = None) -> RgbImage:
        """The pixels of an encoded photo, as `decode` gives them. Raises SkyPartError if it cannot be decoded."""
        answer, content = self._ask({"max_pixels": max_pixels, "edge": edge, "bytes": len(photo)}, photo)
        pixels: RgbImage = np.frombuffer(content, dtype=np.uint8).reshape(answer["shape"])
        return pixels

    def camera_facts(self, photo: bytes) -> CameraFacts:
        """What EXIF and XMP of an encoded photo say; nothing if they cannot be read within the limits."""
        try:
            answer, _ = self._ask({"facts": True, "bytes": len(photo)}, photo)
        except SkyPartError:
            return CameraFacts()
        facts: dict[str, Any] = answer["facts"]
        time_text = facts.pop("time")
        return CameraFacts(time=None if time_text is None else datetime.fromisoformat(time_text), **facts)

    def close(self) -> None:
        """End the child."""
        with self._lock:
            self._stop()

    def _ask(self, request: dict[str, Any], photo: bytes) -> tuple[dict[str, Any], bytearray]:
        with self._lock:
            try:
                child = self._start()
                end = time.monotonic() + PATIENCE * self._seconds
                pipe = _Pipe(child, end)
                pipe.write(json.dumps(request).encode() + b"\n")
                pipe.write(photo)
                answer: dict[str, Any] = json.loads(pipe.read_line())
                content = pipe.read(int(answer.get("bytes", 0)))
            except (OSError, EOFError, ValueError, TimeoutError) as error:
                self._stop()
                raise SkyPartError(f"the uploaded image: {_TOO_MUCH}") from error
            except BaseException:
                self._stop()  # in the middle of an answer
                raise
        if "error" in answer:
            raise SkyPartError(answer["error"])
        return answer, content

    def _start(self) -> "subprocess.Popen[bytes]":
        if self._child is None or self._child.poll() is not None:
            self._stop()
            command = [sys.executable, "-m", "skypart.serve.decoder", str(self._memory_bytes), str(self._seconds)]
            package = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))  # noqa: PTH100,PTH120
            paths = [package, *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
            self._child = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env=os.environ | {"PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1"},
                start_new_session=True,  # Ctrl-C is for the server, which then ends the child
            )
            os.set_blocking(_file(self._child.stdin).fileno(), False)
            os.set_blocking(_file(self._child.stdout).fileno(), False)
            ready = _Pipe(self._child, time.monotonic() + 60.0)
            ready.read_line()
        return self._child

    def _stop(self) -> None:
        if self._child is not None:
            self._child.kill()
            self._child.wait()
            _file(self._child.stdin).close()
            _file(self._child.stdout).close()
            self._child = None


def decode(photo: bytes, max_pixels: int, edge: int | None = None) -> RgbImage:
    """The pixels of an encoded photo. edge: of the square that it will be resized to at most; None: all pixels."""
    source = io.BytesIO(photo)
    return read_rgb(source, max_pixels) if edge is None else read_photo(source, edge, max_pixels)


def _file(pipe: IO[bytes] | None) -> IO[bytes]:
    assert pipe is not None
    return pipe


class _Pipe:
    """Both pipes of a child, with a deadline (of `time.monotonic`) for everything."""

    def __init__(self, child: "subprocess.Popen[bytes]", end: float) -> None:
        self._input, self._output = _file(child.stdin).fileno(), _file(child.stdout).fileno()
        self._end = end
        self._rest = bytearray()

    def _wait(self, reading: bool) -> None:
        left = self._end - time.monotonic()
        waiting: tuple[list[int], list[int], list[int]] = (
            ([self._output], [], []) if reading else ([], [self._input], [])
        )
        if left <= 0 or not any(select.select(*waiting, left)):
            raise TimeoutError

    def write(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            self._wait(reading=False)
            view = view[os.write(self._input, view[: 1 << 16]) :]

    def _more(self, most: int) -> bytes:
        self._wait(reading=True)
        found = os.read(self._output, most)
        if not found:
            raise EOFError
        return found

    def read_line(self) -> bytes:
        while b"\n" not in self._rest:
            self._rest += self._more(1 << 16)
        line, _, rest = self._rest.partition(b"\n")
        self._rest = bytearray(rest)
        return bytes(line)

    def read(self, count: int) -> bytearray:
        found = self._rest
        while len(found) < count:
            found += self._more(min(count - len(found), 1 << 20))
        self._rest = bytearray()
        return found


def _answer(request: dict[str, Any], photo: bytes) -> tuple[dict[str, Any], bytes | memoryview]:
    """What the child answers to one request."""
    try:
        if request.get("facts"):
            facts = asdict(read_camera_facts(io.BytesIO(photo)))
            facts["time"] = None if facts["time"] is None else facts["time"].isoformat()
            return {"facts": facts}, b""
        pixels = np.ascontiguousarray(decode(photo, request["max_pixels"], request["edge"]))
        return {"shape": pixels.shape, "bytes": pixels.nbytes}, pixels.data.cast("B")
    except SkyPartError as error:
        return {"error": str(error)}, b""
    except MemoryError:
        return {"error": f"the uploaded image: {_TOO_MUCH}"}, b""
    except Exception as error:  # of a decoder, on a file it was not written for
        return {"error": f"the uploaded image: cannot be decoded ({type(error).__name__}); save it again as JPEG"}, b""


def main() -> None:
    """The child: give up rights, then answer until standard input ends."""
    memory, seconds = int(sys.argv[1]), float(sys.argv[2])
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    source, sink = sys.stdin.buffer, sys.stdout.buffer
    confine_thread()
    sink.write(b"ready\n")
    sink.flush()
    while line := source.readline():
        used = sum(resource.getrusage(resource.RUSAGE_SELF)[:2])
        limit = int(used + seconds) + 1  # the parent may be gone when a photo takes too long
        resource.setrlimit(resource.RLIMIT_CPU, (limit, resource.RLIM_INFINITY))
        request = json.loads(line)
        answer, content = _answer(request, source.read(request["bytes"]))
        sink.write(json.dumps(answer).encode() + b"\n")
        sink.write(content)
        sink.flush()


if __name__ == "__main__":
    main()
