"""What one worker does: load a map, draw the pictures of some of its locations, and note their poses."""

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
from skypart.worlds.camera import camera_centre
from skypart.worlds.geotiff import write_geotiff
from skypart.worlds.ground import World
from skypart.worlds.look import Look, Strengths, draw_look
from skypart.worlds.render import render_drone, render_map, render_satellite
from skypart.worlds.shade import Lighting
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
    """What all jobs of a data set share."""

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
    """Some locations of one map. shots_each: pictures a location. write_map: also write the map's GeoTIFF."""

    source: Source
    source_number: int
    sites: tuple[Site, ...]
    settings: Settings
    spacing: float
    shots_each: int
    write_map: bool

    @property
    def note(self) -> Path:
        """Where the poses of a finished job wait for the others."""
        return Path(self.settings.out) / ".work" / f"{self.sites[0].name}.json"


@lru_cache(maxsize=2)
def _world(source: Source) -> World:
    return source.load()


def run_job(job: Job, count: Callable[[int], None]) -> list[dict[str, str]]:
    """Draw what is missing of a job; give one row a picture (see POSE_FIELDS, and view, all_paths).

    count: told how many pictures more are done, location by location.
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
    places = _places(job, world, framing.tile)
    if job.write_map and not map_path.is_file():
        write_geotiff(
            map_path, render_map(world, _look(settings, "satellite", 1_000_000 + job.source_number, 0)), world
        )
    rows = []
    for site in job.sites:
        rng = np.random.default_rng([settings.seed, 8, site.number])
        shots = rendering.shots(site.name, site.role, settings.views, framing, rng)
        rows += _draw_site(world, site, (float(places[site.on_map][0]), float(places[site.on_map][1])), shots, settings)
        count(len(shots))
    write_text(job.note, json.dumps(rows))
    return rows


def _places(job: Job, world: World, tile: float) -> np.ndarray:
    """Sites of the map, enough for the job; set closer together when holes leave too few."""
    spacing, needed = job.spacing, job.sites[-1].on_map + 1
    seed = site_seed(job.settings.seed, job.source.name)
    contrast = RASTER_CONTRAST if world.satellite.baked else 0.0
    for _ in range(12):
        places = find_sites(world, spacing, tile, seed, job.settings.rendering.adjacent, contrast)
        if len(places) >= needed:
            return places
        spacing *= 0.85
    raise SkyPartError(f"map {job.source.name}: too little valid ground for its {needed} locations; use other maps")


def _look(settings: Settings, view: str, place: int, flight: int) -> Look:
    rng = np.random.default_rng([settings.seed, 7, place, flight])
    return draw_look(rng, "drone" if view == "drone" else "satellite", settings.strengths)


def _draw_site(
    world: World, site: Site, centre: tuple[float, float], shots: list[Shot], settings: Settings
) -> list[dict[str, str]]:
    """Draw all pictures of one location that are not there yet."""
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
        look = _look(settings, shot.view, site.number, shot.flight)
        ground = {"drone": world.drone, "satellite": world.satellite, "old": world.old_satellite}[shot.view]
        if (shot.flight, shot.view) not in lighting:
            lighting = {(shot.flight, shot.view): Lighting(ground, look)}
        light = lighting[shot.flight, shot.view]
        rng = np.random.default_rng([settings.seed, 9, site.number, index])
        if shot.pose is not None:
            picture = render_drone(world, shot.pose, settings.image_size, look, rng, light)
        else:
            picture = render_satellite(world, centre, shot.metres, settings.image_size, look, rng, ground, light)
        _save(picture, missing, shot, out, look.jpeg)
    return rows


def _save(picture: RgbImage, missing: list[Path], shot: Shot, out: Path, quality: int) -> None:
    """Write a picture once and link it to its other places."""
    first = out / shot.paths[0]
    if first in missing:
        suffix = first.suffix.lower()
        if suffix in (".png", ".tif"):
            # These formats keep every bit; the traces of the camera's JPEG stay in the picture.
            coded = cv2.imencode(".jpg", picture[:, :, ::-1], [cv2.IMWRITE_JPEG_QUALITY, quality])[1]
            picture = np.asarray(cv2.imdecode(coded, cv2.IMREAD_COLOR), dtype=np.uint8)[:, :, ::-1]
        lossless: dict[str, dict[str, Any]] = {".png": {"compress_level": 4}, ".tif": {"compression": "tiff_lzw"}}
        options = lossless.get(suffix, {"quality": quality})
        with atomic_path(first) as temporary:
            Image.fromarray(np.ascontiguousarray(picture)).save(temporary, **options)
    for other in missing:
        if other != first:
            with atomic_path(other) as temporary:
                try:
                    os.link(first, temporary)
                except OSError:
                    temporary.write_bytes(first.read_bytes())


def _row(world: World, site: Site, centre: tuple[float, float], shot: Shot) -> dict[str, str]:
    """The pose of a picture as text, with the position of the camera and of the ground it looks at."""
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
