"""The work of one process: load a map, render the images of some of its locations, and record their poses."""

import json
import os
from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol

import cv2
import numpy as np
from PIL import Image

from skypart.atomic import atomic_path, write_text
from skypart.datasets.rendering import Rendering, Shot
from skypart.errors import SkyPartError
from skypart.images.decode import RgbImage
from skypart.worlds.appearance import Appearance, Strengths, sample_appearance
from skypart.worlds.camera import camera_centre
from skypart.worlds.geotiff import write_geotiff
from skypart.worlds.ground import World
from skypart.worlds.lighting import Lighting
from skypart.worlds.render import render_drone, render_map, render_satellite
from skypart.worlds.sites import RASTER_CONTRAST, find_sites, fit_framing, site_seed

POSE_FIELDS = [
    "path",
    "location",
    "altitude_m",
    "tilt_deg",
    "azimuth_deg",
    "fov_deg",
    "lat",
    "lon",
    "target_lat",
    "target_lon",
]


class Source(Hashable, Protocol):
    """Anything that can be loaded as a World: a procedural region or a raster on disk."""

    @property
    def name(self) -> str:
        """Name of its map."""

    @property
    def extent_m(self) -> tuple[float, float]:
        """Width and height in metres."""

    def load(self) -> World:
        """Make the World."""


@dataclass(frozen=True)
class Settings:
    """Settings shared by all jobs of a data set."""

    out: str
    rendering: Rendering
    seed: int
    image_size: int
    views: int
    strengths: Strengths


@dataclass(frozen=True)
class Site:
    """A location: folder name, role, its number in the data set and on its map."""

    name: str
    role: str
    number: int
    on_map: int


@dataclass(frozen=True)
class Job:
    """Some locations of one map. shots_each: images per location. write_map: also write the map's GeoTIFF."""

    source: Source
    source_number: int
    sites: tuple[Site, ...]
    settings: Settings
    spacing: float
    shots_each: int
    write_map: bool

    @property
    def note(self) -> Path:
        """File with the poses of a finished job, until all jobs are finished."""
        return Path(self.settings.out) / ".work" / f"{self.sites[0].name}.json"


@lru_cache(maxsize=2)
def _world(source: Source) -> World:
    return source.load()


def run_job(job: Job, count: Callable[[int], None]) -> list[dict[str, str]]:
    """Render the missing images of a job; returns one row per image (POSE_FIELDS, view, all_paths).

    count: called after each location with the number of finished images.
    """
    cv2.setNumThreads(1)
    settings = job.settings
    out = Path(settings.out)
    rendering = settings.rendering
    map_path = out / "maps" / f"{job.source.name}.tif"
    if job.note.is_file() and (map_path.is_file() or not job.write_map):
        rows: list[dict[str, str]] = json.loads(job.note.read_text(encoding="utf-8"))
        if all((out / path).is_file() for row in rows for path in row["all_paths"].split("|")):
            count(len(rows))
            return rows
    world = _world(job.source)
    framing = fit_framing(rendering.framing, world.extent_m, rendering.highest, world.margin_m)
    sites_m = _find_job_sites(job, world, framing.tile)
    if job.write_map and not map_path.is_file():
        appearance = _sample_appearance(settings, "satellite", 1_000_000 + job.source_number, 0)
        write_geotiff(map_path, render_map(world, appearance), world)
    rows = []
    for site in job.sites:
        rng = np.random.default_rng([settings.seed, 8, site.number])
        shots = rendering.shots(site.name, site.role, settings.views, framing, rng)
        x, y = sites_m[site.on_map]
        rows += _render_site(world, site, (float(x), float(y)), shots, settings)
        count(len(shots))
    write_text(job.note, json.dumps(rows))
    return rows


def _find_job_sites(job: Job, world: World, tile: float) -> np.ndarray:
    """(n, 2) sites of the map, enough for the job; closer together if holes leave too few."""
    spacing, needed = job.spacing, job.sites[-1].on_map + 1
    seed = site_seed(job.settings.seed, job.source.name)
    contrast = RASTER_CONTRAST if world.satellite.baked else 0.0
    for _ in range(12):
        sites_m = find_sites(world, spacing, tile, seed, job.settings.rendering.adjacent, contrast)
        if len(sites_m) >= needed:
            return sites_m
        spacing *= 0.85
    raise SkyPartError(f"map {job.source.name}: too little valid ground for its {needed} locations; use other maps")


def _sample_appearance(settings: Settings, view: str, location: int, flight: int) -> Appearance:
    rng = np.random.default_rng([settings.seed, 7, location, flight])
    return sample_appearance(rng, "drone" if view == "drone" else "satellite", settings.strengths)


def _render_site(
    world: World, site: Site, centre: tuple[float, float], shots: list[Shot], settings: Settings
) -> list[dict[str, str]]:
    """Render all missing images of one location; returns one row per image."""
    rows, lighting = [], {}
    out = Path(settings.out)
    for index, shot in enumerate(shots):
        if shot.pose is not None:
            dx, dy = shot.pose.target
            shot = replace(shot, pose=replace(shot.pose, target=(centre[0] + dx, centre[1] + dy)))
        rows.append(_row(world, site, centre, shot))
        missing = [out / path for path in shot.paths if not (out / path).is_file()]
        if not missing:
            continue
        appearance = _sample_appearance(settings, shot.view, site.number, shot.flight)
        ground = {"drone": world.drone, "satellite": world.satellite, "old": world.old_satellite}[shot.view]
        if (shot.flight, shot.view) not in lighting:
            lighting = {(shot.flight, shot.view): Lighting(ground, appearance)}
        light = lighting[shot.flight, shot.view]
        rng = np.random.default_rng([settings.seed, 9, site.number, index])
        if shot.pose is not None:
            image = render_drone(world, shot.pose, settings.image_size, appearance, rng, light)
        else:
            image = render_satellite(world, centre, shot.metres, settings.image_size, appearance, rng, ground, light)
        _save_image(image, missing, shot, out, appearance.jpeg)
    return rows


def _save_image(image: RgbImage, missing: list[Path], shot: Shot, out: Path, quality: int) -> None:
    """Write an image once and link it to its other paths."""
    first = out / shot.paths[0]
    if first in missing:
        suffix = first.suffix.lower()
        if suffix in (".png", ".tif"):
            # These formats are lossless; simulate the JPEG artefacts of the camera first.
            coded = cv2.imencode(".jpg", image[:, :, ::-1], [cv2.IMWRITE_JPEG_QUALITY, quality])[1]
            image = np.asarray(cv2.imdecode(coded, cv2.IMREAD_COLOR), dtype=np.uint8)[:, :, ::-1]
        lossless: dict[str, dict[str, Any]] = {".png": {"compress_level": 4}, ".tif": {"compression": "tiff_lzw"}}
        options = lossless.get(suffix, {"quality": quality})
        with atomic_path(first) as temporary:
            Image.fromarray(np.ascontiguousarray(image)).save(temporary, **options)
    for other in missing:
        if other != first:
            with atomic_path(other) as temporary:
                try:
                    os.link(first, temporary)
                except OSError:
                    temporary.write_bytes(first.read_bytes())


def _row(world: World, site: Site, centre: tuple[float, float], shot: Shot) -> dict[str, str]:
    """The pose of an image as text, with the positions of the camera and of its target."""
    row = {"path": shot.paths[0], "location": site.name, "view": shot.view, "all_paths": "|".join(shot.paths)}
    lon, lat = world.lonlat(*centre)
    row |= {"target_lat": f"{lat:.8f}", "target_lon": f"{lon:.8f}", "altitude_m": f"{shot.metres:.2f}"}
    if shot.pose is not None:
        x, y, _ = camera_centre(shot.pose, world)
        lon, lat = world.lonlat(x, y)
        aim_lon, aim_lat = world.lonlat(*shot.pose.target)
        row |= {
            "altitude_m": f"{shot.pose.altitude:.2f}",
            "tilt_deg": f"{shot.pose.tilt:.3f}",
            "azimuth_deg": f"{shot.pose.azimuth:.3f}",
            "fov_deg": f"{shot.pose.fov:.3f}",
            "lat": f"{lat:.8f}",
            "lon": f"{lon:.8f}",
            "target_lat": f"{aim_lat:.8f}",
            "target_lon": f"{aim_lon:.8f}",
        }
    return row
