"""Run code that parses hostile files with as few rights as the kernel can take away: Landlock, seccomp, rlimits.

Linux applies Landlock and seccomp to single threads, so no second process is needed to keep a parser away from files.
Where the kernel has neither (before 5.13, or not Linux) the code runs unconfined; see SECURITY.md.
"""

import ctypes
import os
import platform
import struct
import sys
import sysconfig
import threading
from collections.abc import Callable, Iterable
from functools import lru_cache
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_NO_NEW_PRIVILEGES, _SET_SECCOMP, _FILTER_MODE = 38, 22, 2
_PATH_BENEATH = 1
_READ_FILE, _READ_DIR = 1 << 2, 1 << 3
_RIGHTS = {1: (1 << 13) - 1, 2: (1 << 14) - 1, 3: (1 << 15) - 1, 4: (1 << 15) - 1, 5: (1 << 16) - 1}
"""Landlock version -> the bits of all rights to files that it knows: execute, write, read, ..."""
_NET_TCP = 3
"""The rights to bind and to connect, from version 4."""
_SOCKET_CALL = {"x86_64": (0xC000003E, 41), "aarch64": (0xC00000B7, 198)}
"""Machine -> its number in seccomp, and the number of its system call `socket`."""
_libc = ctypes.CDLL(None, use_errno=True)


@lru_cache(maxsize=1)
def landlock_version() -> int:
    """The version of Landlock that the kernel supports; 0 for none."""
    if not sys.platform.startswith("linux"):
        return 0
    return max(0, int(_libc.syscall(_CREATE_RULESET, None, 0, 1)))


@lru_cache(maxsize=1)
def _python_folders() -> tuple[str, ...]:
    """Folders of the installation, which late imports and PROJ read: packages, standard library, shared libraries."""
    named = ("stdlib", "platstdlib", "purelib", "platlib")
    paths = {Path(sysconfig.get_path(name)).resolve() for name in named} | {Path(__file__).resolve().parents[1]}
    # Environment variables of GDAL and PROJ may name folders of data.
    paths |= {Path(os.environ[name]) for name in ("GDAL_DATA", "PROJ_DATA", "PROJ_LIB") if os.environ.get(name)}
    return tuple(str(path) for path in (*paths, Path("/usr/lib"), Path("/lib"), Path("/usr/share/proj")))


def confine_thread(files: Iterable[Path] = (), folders: Iterable[Path] = ()) -> bool:
    """Take away from this thread, for ever, all files but `files` and Python's own, and all sockets.

    folders: may be listed, but the files in them stay closed. Returns whether the kernel could do it.
    """
    version = landlock_version()
    if not version or _libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0):
        return False
    handled = _RIGHTS[min(version, 5)]
    attributes = struct.pack("QQ", handled, _NET_TCP) if version >= 4 else struct.pack("Q", handled)
    ruleset = int(_libc.syscall(_CREATE_RULESET, attributes, len(attributes), 0))
    if ruleset < 0:
        return False
    try:
        for own in _python_folders():
            _allow(ruleset, own, _READ_FILE | _READ_DIR)
        for file in files:
            _allow(ruleset, str(file), _READ_FILE)
        for folder in folders:
            _allow(ruleset, str(folder), _READ_DIR)
        confined = not _libc.syscall(_RESTRICT_SELF, ruleset, 0)
    finally:
        os.close(ruleset)
    _refuse_sockets()
    return bool(confined)


def _allow(ruleset: int, path: str, rights: int) -> None:
    """Add a right to a ruleset; paths that do not exist are skipped."""
    try:
        handle = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return
    try:
        _libc.syscall(_ADD_RULE, ruleset, _PATH_BENEATH, struct.pack("=Qi", rights, handle), 0)
    finally:
        os.close(handle)


def _refuse_sockets() -> None:
    """Let `socket` fail with EACCES in this thread: Landlock knows TCP only, and name servers use UDP."""
    known = _SOCKET_CALL.get(platform.machine())
    if known is None:
        return
    machine, number = known
    program = b"".join(
        struct.pack("HBBI", *line)
        for line in (
            (0x20, 0, 0, 4),  # load the machine
            (0x15, 0, 3, machine),  # another one: allow
            (0x20, 0, 0, 0),  # load the number of the call
            (0x15, 0, 1, number),  # not `socket`: allow
            (0x06, 0, 0, 0x00050000 | 13),  # EACCES
            (0x06, 0, 0, 0x7FFF0000),  # allow
        )
    )
    buffer = ctypes.create_string_buffer(program, len(program))
    header = struct.pack("HxxxxxxQ", len(program) // 8, ctypes.addressof(buffer))
    _libc.prctl(_SET_SECCOMP, _FILTER_MODE, header, 0, 0)


def run_confined(work: Callable[[], T], files: Iterable[Path] = (), folders: Iterable[Path] = ()) -> T:
    """The result of `work`, called in a new thread that can read nothing but `files`, and opens no connection.

    What `work` raises is raised here. A thread costs about a tenth of a millisecond.
    """
    result: list[T] = []
    failure: list[BaseException] = []

    def confined() -> None:
        try:
            confine_thread(files, folders)
            result.append(work())
        except BaseException as error:
            failure.append(error)

    thread = threading.Thread(target=confined, name="skypart-confined", daemon=True)
    thread.start()
    thread.join()
    if failure:
        raise failure[0]
    return result[0]


FOLLOWING_DRIVERS = (
    "VRT GTI WMS WMTS WCS HTTP PLMOSAIC EEDA EEDAI DAAS STACTA STACIT MRF TIL KMLSUPEROVERLAY DERIVED ECRGTOC RPFTOC "
    "Zarr GNMFile GNMDatabase"
)
"""Formats of GDAL that consist of references to other files or addresses."""


def skip_following_drivers() -> None:
    """Let GDAL forget the formats that refer to others. Call this before rasterio is used for the first time."""
    os.environ.setdefault("GDAL_SKIP", FOLLOWING_DRIVERS)
