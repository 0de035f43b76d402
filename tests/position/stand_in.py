"""A map of random colours, photos cut out of it, and an embedder that needs no training for them."""

from dataclasses import dataclass
from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray
from pyproj import Transformer
from rasterio.transform import Affine

from skypart.embedding import Embedder, PatchTokens
from skypart.images.decode import RgbImage
from skypart.images.preprocess import Preprocessing
from skypart.maps.build import build_index
from skypart.maps.index import MapIndex
from skypart.maps.views import ViewOptions
from skypart.position.confidence import Calibration, ErrorSources, GroupErrors
from tests.maps.makers import write_raster

EDGE, NORTH = 500, 5_300_000.0
"""Edge of the map in metres and pixels, and UTM northing of its centre. It is on the central meridian of its zone, so
grid north is true north."""
TO_DEGREES = Transformer.from_crs("EPSG:32632", "EPSG:4326", always_xy=True)
SURE = Calibration(
    weights=(0.0, 0.0, 1.0),
    offset=0.0,
    steps=((2.7, 0.02), (4.1, 0.98)),
    threshold=0.5,
    sources=ErrorSources(),
    refined=GroupErrors(2.0, 1.0),
    voted=GroupErrors(2.0, 1.0),
    photos=100,
    source="by hand",
)
"""Confident from a support of about 30 inliers; made for ColourEmbedder."""
OPTIONS = ViewOptions(sizes_m=(100.0, 150.0), overlap=0.5)
Floats = NDArray[np.float32]


def quilt(seed: int, edge: int = EDGE) -> RgbImage:
    """(edge, edge, 3) random colours that vary over 3, 8, 30 and 100 pixels, so that no two places look alike."""
    rng = np.random.default_rng(seed)
    total = np.zeros((edge, edge, 3), np.float32)
    for wave, strength in ((3, 16), (8, 18), (30, 30), (100, 40)):
        cells = rng.normal(0, strength, (edge // wave + 3, edge // wave + 3, 3)).astype(np.float32)
        whole = cv2.resize(cells, None, fx=wave, fy=wave, interpolation=cv2.INTER_CUBIC)
        total += whole[wave : wave + edge, wave : wave + edge]
    return np.clip(total + 118, 0, 255).astype(np.uint8)


def degrees(east: float, north: float) -> tuple[float, float]:
    """Latitude and longitude of a point in metres from the centre of the map, by pyproj alone."""
    longitude, latitude = TO_DEGREES.transform(500_000.0 + east, NORTH + north)
    return float(latitude), float(longitude)


@dataclass(frozen=True)
class Shot:
    """A photo taken straight down: metres from the centre of the map, heading in degrees, metres across."""

    east: float
    north: float
    heading: float = 0.0
    width: float = 90.0

    def photo(self, map_rgb: RgbImage, edge: int = 256) -> RgbImage:
        """(edge, edge, 3) pixels."""
        row, column = np.mgrid[0:edge, 0:edge]
        right = ((column + 0.5) / edge - 0.5) * self.width
        up = (0.5 - (row + 0.5) / edge) * self.width
        turn = np.radians(self.heading)
        east = self.east + right * np.cos(turn) + up * np.sin(turn)
        north = self.north - right * np.sin(turn) + up * np.cos(turn)
        half = map_rgb.shape[0] / 2
        x, y = (east + half - 0.5).astype(np.float32), (half - north - 0.5).astype(np.float32)
        return np.asarray(cv2.remap(map_rgb, x, y, cv2.INTER_LINEAR), dtype=np.uint8)

    @property
    def place(self) -> tuple[float, float]:
        """Latitude and longitude of its centre."""
        return degrees(self.east, self.north)


def write_quilt(path: Path, seed: int = 1, edge: int = EDGE, east: float = 0.0) -> Path:
    """Write a GeoTIFF of a quilt, `east` metres from its usual place."""
    path.parent.mkdir(parents=True, exist_ok=True)
    affine = Affine(1.0, 0.0, 500_000.0 - edge / 2 + east, 0.0, -1.0, NORTH + edge / 2)
    return write_raster(path, quilt(seed, edge).transpose(2, 0, 1), "EPSG:32632", affine)


class ColourEmbedder(Embedder):
    """Describes images by blurred colours only, so that the result does not change with rotation.

    Embeddings hold the colours of rings around the centre, patch tokens the colours around each patch.
    """

    def __init__(self, name: str = "colours") -> None:
        self.name = name
        self.calls = 0

    @property
    def preprocessing(self) -> Preprocessing:
        return Preprocessing(size=112)

    @property
    def dim(self) -> int:
        return 36

    @property
    def digest(self) -> str:
        return f"digest of {self.name}"

    def embed_inputs(self, inputs: Floats) -> Floats:
        self.calls += len(inputs)
        return np.stack([_rings(each) for each in inputs])

    def embed_with_patches(self, inputs: Floats) -> tuple[Floats, PatchTokens]:
        return self.embed_inputs(inputs), _tokens(inputs)

    def patch_tokens(self, inputs: Floats) -> PatchTokens:
        self.calls += len(inputs)
        return _tokens(inputs)


def _rings(planes: Floats) -> Floats:
    """(36,) mean and deviation of the colours in six rings."""
    small = cv2.resize(planes.transpose(1, 2, 0), (28, 28), interpolation=cv2.INTER_AREA)
    row, column = (np.mgrid[0:28, 0:28] + 0.5) / 28 - 0.5
    ring = np.minimum(np.hypot(row, column) / 0.5 * 6, 6).astype(int)
    parts = [small[ring == number] for number in range(6)]
    vector = np.concatenate([np.concatenate([part.mean(axis=0), part.std(axis=0) - 0.6]) for part in parts])
    return np.asarray(vector / np.linalg.norm(vector), dtype=np.float32)


def _tokens(inputs: Floats) -> PatchTokens:
    """The patches of all inputs."""
    return PatchTokens(np.stack([_patches(each) for each in inputs])[None], (14, 14))


def _patches(planes: Floats) -> Floats:
    """(196, 9) colours at three blurs at the centres of 14 x 14 patches."""
    image = np.ascontiguousarray(planes.transpose(1, 2, 0))
    blurred = [cv2.GaussianBlur(image, (0, 0), sigma)[4::8, 4::8] for sigma in (1.7, 3.4, 6.7)]
    return np.concatenate(blurred, axis=-1).reshape(196, 9)


def make_index(folder: Path, maps: list[Path], options: ViewOptions = OPTIONS) -> MapIndex:
    """An index of maps with the colour embedder."""
    build_index([str(path) for path in maps], folder, ColourEmbedder(), "colours", options)
    return MapIndex(folder)
