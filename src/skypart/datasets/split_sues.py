"""Convert raw SUES-200 to its official split form, with links instead of copies."""

import os
from pathlib import Path

from skypart.atomic import write_text
from skypart.datasets.records import Record
from skypart.datasets.rendering import WORLD_FILE, is_rendered
from skypart.datasets.sues200 import Sues200, raw_folders
from skypart.errors import SkyPartError
from skypart.progress import with_progress


def split_sues(raw: str | Path, out: str | Path) -> int:
    """Link the images of raw SUES-200 in `raw` into the official folders in `out`; returns the number of links.

    Symbolic links are relative, so that both folders can be moved together. If the file system does not support them,
    hard links are created. Existing links are kept, so a stopped run can be resumed.
    """
    raw, out = Path(raw), Path(out)
    if raw_folders(raw) is None:
        raise SkyPartError(f"{raw}: not raw SUES-200 (drone_view_512/<id>/<150|200|250|300>/ and satellite-view/<id>/)")
    if out.exists() and not out.is_dir():
        raise SkyPartError(f"{out}: is a file; choose a folder to write to")
    links = _links(raw, out)
    if is_rendered(raw):  # the split form is marked as rendered, too
        write_text(out / WORLD_FILE, (raw / WORLD_FILE).read_text(encoding="utf-8"))
    for source, target in with_progress(links, "linking"):
        _link(source, target)
    return len(links)


def _links(raw: Path, out: Path) -> list[tuple[Path, Path]]:
    """(existing image, path of its link) for every folder of the split form."""
    dataset = Sues200().read(raw)
    satellite = [record for record in dataset.train if record.view == "satellite"]
    links: list[tuple[Path, Path]] = []

    def add(records: list[Record], folder: str) -> None:
        links.extend((r.path, out / folder / r.location / r.path.name) for r in records)

    for h in dataset.altitudes:
        name = f"{h:g}"
        add([r for r in dataset.train if r.altitude == h], f"Training/{name}/drone")
        add(satellite, f"Training/{name}/satellite")
        for split in dataset.tests:
            if split.altitude == h:
                add(
                    list(split.query),
                    f"Testing/{name}/query_{split.query[0].view if split.query else 'drone'}",
                )
                add(
                    list(split.gallery),
                    f"Testing/{name}/gallery_{split.gallery[0].view if split.gallery else 'drone'}",
                )
    return links


def _link(source: Path, target: Path) -> None:
    if target.exists():
        return
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        target.unlink(missing_ok=True)  # a link to an image that no longer exists
        try:
            target.symlink_to(os.path.relpath(source.resolve(), target.parent.resolve()))
        except OSError:
            os.link(source.resolve(), target)
    except OSError as error:
        raise SkyPartError(
            f"cannot write {target}: {error.strerror or error}; free the disk or choose another folder"
        ) from error
