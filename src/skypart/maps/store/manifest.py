"""The manifest of an embedded store: the list of files that make it up. Files it does not name do not count."""

import hashlib
import json
from dataclasses import asdict
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from skypart.atomic import sync_folder, write_text
from skypart.errors import SkyPartError
from skypart.maps.files import read_file
from skypart.maps.store.interface import StoreModel, StoreStats

MANIFEST = "manifest.json"
MODEL = "model.json"
"""Name and digest of the model; stores of versions before 0.3 have none."""
VECTORS = ".vectors.npy"
FOOTPRINTS = ".footprints.npy"
FORMAT = 1
MAX_BYTES = 1 << 30
"""Of the manifest: more than a million segments."""
BLOCK_BYTES = 1 << 20
"""Vectors are hashed in blocks of this size too, so that a part of a file can be checked by itself."""
_BLOCK_DIGITS = 32
_HASH = r"^[0-9a-f]{64}$"


class _Record(BaseModel):
    """Base of all parts of the manifest; validated when read."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class FileRecord(_Record):
    """A file in the store's folder; its size is in bytes.

    blocks: hash of each BLOCK_BYTES of it, see `block_hash`. Empty for footprints, and in stores from before 0.3.
    """

    name: str = Field(pattern=r"^[\w-][\w.-]*$")  # no path: a manifest must not reach outside its folder
    bytes: int = Field(ge=0)
    sha256: str = Field(pattern=_HASH)
    blocks: tuple[str, ...] = ()


class SegmentRecord(_Record):
    """Views of one map that share two files. rows: ranges (first, count) of row numbers, in file order."""

    map_name: str
    rows: tuple[tuple[int, int], ...]
    vectors: FileRecord
    footprints: FileRecord

    @property
    def views(self) -> int:
        """Number of views."""
        return sum(count for _, count in self.rows)

    @property
    def files(self) -> tuple[FileRecord, FileRecord]:
        """Both files."""
        return self.vectors, self.footprints


class StoreManifest(_Record):
    """All segments, ordered by their first row. next_row: number of the next view; numbers are never reused."""

    format: int = FORMAT
    dimension: int = Field(default=0, ge=0)
    next_row: int = Field(default=0, ge=0)
    segments: tuple[SegmentRecord, ...] = ()

    @property
    def views(self) -> int:
        """Number of views in all segments."""
        return sum(segment.views for segment in self.segments)

    def stats(self, recall: float | None = None) -> StoreStats:
        """What the store holds. recall: of its approximate index."""
        maps: dict[str, int] = {}
        for segment in self.segments:
            maps[segment.map_name] = maps.get(segment.map_name, 0) + segment.views
        return StoreStats(
            views=self.views,
            dimension=self.dimension,
            segments=len(self.segments),
            bytes=sum(file.bytes for segment in self.segments for file in segment.files),
            maps=maps,
            recall=recall,
        )

    @property
    def file_names(self) -> set[str]:
        """Names of all files that belong to the store."""
        return {file.name for segment in self.segments for file in segment.files}

    @property
    def content_hash(self) -> str:
        """Changes whenever a vector or the order of vectors changes."""
        listed = "\n".join(segment.vectors.sha256 for segment in self.segments)
        return hashlib.sha256(listed.encode()).hexdigest()


def block_hash(block: bytes | memoryview) -> str:
    """The first half of the SHA-256 of a block."""
    return hashlib.sha256(block).hexdigest()[:_BLOCK_DIGITS]


def write_manifest(folder: Path, manifest: StoreManifest) -> None:
    """Make `manifest` the state of the store. The files it names must be in the folder and flushed."""
    _sync_folder(folder)
    body = manifest.model_dump(mode="json")
    write_text(folder / MANIFEST, json.dumps({"sha256": _body_hash(body), **body}, indent=1) + "\n")
    _sync_folder(folder)


def read_manifest(folder: Path) -> StoreManifest:
    """The state of the store in `folder`; an empty one if there is no store yet."""
    file = folder / MANIFEST
    try:
        content = _read(file)
    except FileNotFoundError as error:
        if any(folder.glob(f"*{VECTORS}")):  # a new store writes its manifest before its first segment
            raise SkyPartError(f"{file}: missing; restore it from a backup or index the maps again") from error
        return StoreManifest()
    return parse_manifest(content, str(file))


def parse_manifest(content: bytes, file: str) -> StoreManifest:
    """A manifest from the bytes of its file; `file` names it in error messages."""
    try:
        body = json.loads(content)
        if body["format"] != FORMAT:
            raise SkyPartError(
                f"{file}: has format {body['format']!r}, this version of SkyPart reads {FORMAT}; index the maps again"
            )
        if body.pop("sha256") != _body_hash(body):
            raise ValueError("its SHA-256 does not match")
        return StoreManifest.model_validate_json(json.dumps(body))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        reason = "its content is invalid" if isinstance(error, ValidationError) else error
        raise SkyPartError(f"{file}: damaged ({reason}); restore it from a backup or index the maps again") from error


def write_model(folder: Path, model: StoreModel) -> None:
    """Record the model of the views in `folder`."""
    body = asdict(model)
    write_text(folder / MODEL, json.dumps({**body, "sha256": _body_hash(body)}) + "\n", durable=True)


def read_model(folder: Path) -> StoreModel | None:
    """The recorded model of the store in `folder`; None if there is none."""
    file = folder / MODEL
    try:
        return parse_model(_read(file), str(file))
    except FileNotFoundError:
        return None


def parse_model(content: bytes, file: str) -> StoreModel:
    """A model from the bytes of its file; `file` names it in error messages."""
    try:
        body = json.loads(content)
        if "sha256" in body or len(body) > 2:  # versions before 0.4 wrote none
            checksum = body.pop("sha256")
            if checksum != _body_hash(body):
                raise ValueError("its SHA-256 does not match")
        return StoreModel(digest=str(body["digest"]), name=str(body["name"]))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise SkyPartError(f"{file}: damaged ({error!r}); restore it from a backup or index the maps again") from error


def _read(file: Path) -> bytes:
    """The content of a small file of the store. FileNotFoundError passes through."""
    try:
        return read_file(file, MAX_BYTES)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise SkyPartError(
            f"cannot read {file}: {error.strerror or error}; check the path and its permissions"
        ) from error


def _body_hash(body: dict[str, object]) -> str:
    """SHA-256 of the manifest's content, independent of whitespace."""
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()


def _sync_folder(folder: Path) -> None:
    """Flush the folder's directory entries, so that a power cut cannot undo a rename."""
    try:
        sync_folder(folder)
    except OSError as error:
        raise SkyPartError(
            f"cannot write {folder}: {error.strerror or error}; free disk space or choose another folder"
        ) from error
