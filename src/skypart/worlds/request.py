"""The options of `skypart world make`."""

import math
import os
from dataclasses import asdict, dataclass, field

from skypart.datasets.registry import find_rendering
from skypart.errors import SkyPartError
from skypart.worlds.appearance import Strengths
from skypart.worlds.styles import STYLES


@dataclass(frozen=True)
class Request:
    """The validated options of `skypart world make`.

    sources: the word procedural, or paths of rasters. views: drone images per location (and altitude), 0 = as in the
    benchmark. styles: of procedural regions. extent, gsd: of procedural regions, metres. spacing: metres between
    locations, 0 = the layout's default. regions: number of procedural maps, 0 = as many as needed. skip, only: name
    prefixes of real maps to exclude, or to use exclusively. surround: small maps of an index.csv are surrounded by
    others of their city. guess_heights: guess heights of flat real maps from their images.
    """

    sources: tuple[str, ...] = ("procedural",)
    locations: int = 200
    seed: int = 0
    like: str = "sues200"
    image_size: int = 512
    views: int = 0
    styles: tuple[str, ...] = tuple(STYLES)
    extent: float = 900.0
    gsd: float = 0.3
    spacing: float = 0.0
    regions: int = 0
    maps: bool = True
    skip: tuple[str, ...] = ()
    only: tuple[str, ...] = ()
    surround: bool = False
    guess_heights: bool = False
    strengths: Strengths = field(default_factory=Strengths)

    def __post_init__(self) -> None:
        """Raise for invalid options."""
        if self.locations < 2:
            raise SkyPartError("--locations must be at least 2")
        if not 32 <= self.image_size <= 4096:
            raise SkyPartError("--image-size must be between 32 and 4096")
        if "procedural" in self.sources and len(self.sources) > 1:
            raise SkyPartError("--from procedural cannot be mixed with rasters; make two data sets")
        if "procedural" in self.sources and (self.skip or self.only):
            raise SkyPartError("--skip and --only select real maps; pass their folder with --from")
        if "procedural" in self.sources and (self.surround or self.guess_heights):
            raise SkyPartError("--surround and --guess-heights are for real maps; pass their folder with --from")
        unknown = [style for style in self.styles if style not in STYLES]
        if unknown:
            raise SkyPartError(f"unknown style {unknown[0]!r}; choose from {', '.join(STYLES)}")
        for name, value in (
            ("seed", self.seed),
            ("drone-per-altitude", self.views),
            ("spacing", self.spacing),
            *(("strength", each) for each in asdict(self.strengths).values()),
        ):
            if not 0 <= value < math.inf:
                raise SkyPartError(f"--{name} {value} must be a finite number that is not negative")


PRESETS: dict[str, dict[str, float]] = {
    "": {},
    "tiny": {"locations": 8, "image_size": 128, "views": 2, "extent": 420.0, "gsd": 0.8, "regions": 2, "spacing": 60.0},
}
"""`tiny` is for tests: it takes a few seconds."""


def build_request(
    sources: list[str] | None,
    preset: str = "",
    styles: str = "",
    strength: float = 1.0,
    skip: str = "",
    only: str = "",
    **options: object,
) -> Request:
    """A Request from command-line options; options that are None get the preset's or the default value."""
    if preset not in PRESETS:
        raise SkyPartError(f"unknown preset {preset!r}; the only one is tiny")
    if styles and sources and "procedural" not in sources:
        raise SkyPartError("--styles is for procedural worlds; leave it out with --from a raster")
    rendering = find_rendering(str(options.get("like") or Request.like))
    if options.get("views") is not None and rendering.fixed_views:
        raise SkyPartError(
            f"--drone-per-altitude: --like {rendering.name} always has {rendering.views} drone image per altitude; "
            "leave it out"
        )
    chosen: dict[str, object] = dict(PRESETS[preset])
    chosen |= {name: value for name, value in options.items() if value is not None}
    for name, value in (("styles", styles), ("skip", skip), ("only", only)):
        if value:
            chosen[name] = tuple(each.strip() for each in value.split(",") if each.strip() or name == "styles")
    names = tuple(Strengths.__dataclass_fields__)
    paths = sources or ["procedural"]
    absolute = tuple(path if path == "procedural" else os.path.realpath(path) for path in paths)
    strengths = Strengths(**dict.fromkeys(names, float(strength)))
    return Request(sources=absolute, strengths=strengths, **chosen)  # type: ignore[arg-type]
