"""What happens around a command: standard output that ignores a closed pipe, errors in one line, exit codes."""

import io
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import typer

from skypart.cli.app import app
from skypart.confine import skip_following_drivers
from skypart.errors import SkyPartError

if TYPE_CHECKING:
    from typing_extensions import Buffer

_RESUMABLE = {
    "demo",
    "evaluate",
    "experiment",
    "index",
    "train",
    "weather",
    "data fetch",
    "data split-sues",
    "world make",
}
"""Commands that resume when they are run again."""


class _PipeOutput(io.FileIO):
    """Standard output that ignores a closed pipe, so that `skypart evaluate ... | head` still finishes its work."""

    def write(self, data: "Buffer") -> int:
        """Write, or drop what nobody reads any more."""
        try:
            return super().write(data)
        except BrokenPipeError:
            return memoryview(data).nbytes


def _tolerate_closed_pipe() -> None:
    """Replace the process's standard output by one that ignores a closed pipe; leave replaced ones as they are."""
    output = sys.stdout
    if output is not None and output is sys.__stdout__ and isinstance(output, io.TextIOWrapper):
        raw = _PipeOutput(output.fileno(), "wb", closefd=False)
        sys.stdout = io.TextIOWrapper(
            io.BufferedWriter(raw), output.encoding, output.errors, line_buffering=output.line_buffering
        )


_GLOBAL_FLAGS = {"-v", "--verbose", "-q", "--quiet"}


def _flags_first(arguments: Sequence[str]) -> list[str]:
    """The arguments with -v and -q first, so that they work after the command, too. Nothing after `--` is moved."""
    end = arguments.index("--") if "--" in arguments else len(arguments)
    flags = [each for each in arguments[:end] if each in _GLOBAL_FLAGS]
    return [*flags, *(each for each in arguments[:end] if each not in _GLOBAL_FLAGS), *arguments[end:]]


_LOCATING = {"calibrate", "demo", "fly", "locate", "serve", "track"}
"""Commands whose matrix products are so small that threads of BLAS would wait for each other longer than they work."""


def _limit_blas(arguments: Sequence[str]) -> None:
    """One thread for the matrix products of NumPy, which is imported later. The inference engine has its own."""
    if _LOCATING.intersection(arguments):
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


def main() -> None:
    """Run the command line. Bad input ends in a one-line error message and a non-zero exit code."""
    skip_following_drivers()
    _limit_blas(sys.argv[1:])
    _tolerate_closed_pipe()
    try:
        app(_flags_first(sys.argv[1:]))
    except SkyPartError as error:
        error.__cause__ = error.__context__ = error.__traceback__ = None  # releases progress bars that are still drawn
        typer.echo(f"skypart: {error}", err=True)
        sys.exit(error.exit_code)
    except ModuleNotFoundError as error:
        from skypart.embedding.runtimes import TORCH_PACKAGES, install_torch

        if error.name not in TORCH_PACKAGES:
            raise
        extra = next((each for each in ("train", "export") if each in sys.argv[1:]), "torch")
        typer.echo(f"skypart: this command needs PyTorch; {install_torch(extra)}", err=True)
        sys.exit(SkyPartError.exit_code)
    except OSError as error:
        if error.filename is None:  # a defect: what failed should have been named
            raise
        problem = f"{error.filename}: {error.strerror or error}; fix its permissions, free disk space, or close files"
        typer.echo(f"skypart: {problem}", err=True)
        sys.exit(SkyPartError.exit_code)
    except SystemExit as exiting:
        if exiting.code == 130:  # Ctrl-C
            words = [each for each in sys.argv[1:] if each not in _GLOBAL_FLAGS]
            resumes = not _RESUMABLE.isdisjoint((" ".join(words[:1]), " ".join(words[:2])))
            typer.echo(f"skypart: stopped{'; start the same command again to resume' if resumes else ''}", err=True)
        raise
