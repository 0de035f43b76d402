"""The public data sets that the default model was trained on: sources, licences, and the maps made from them."""

from dataclasses import dataclass

from skypart.datasets.fetch.github import Snapshot
from skypart.datasets.fetch.gridding import Grid
from skypart.datasets.fetch.indexed_images import Mosaic
from skypart.datasets.fetch.parts import DownloadPart, EptMap, Mosaics, Places, PotreeMap
from skypart.geo.units import US_SURVEY_FOOT


@dataclass(frozen=True)
class MapSet:
    """A set of maps. folder: name of its folder. licence: short name; terms: attribution and licence text.

    megabytes: approximate download size. change: how the source is processed.
    """

    name: str
    folder: str
    what: str
    licence: str
    terms: str
    change: str
    megabytes: int
    parts: tuple[DownloadPart, ...]

    @property
    def sources(self) -> list[str]:
        """Addresses of its sources, without duplicates."""
        return list(dict.fromkeys(part.snapshot.address for part in self.parts))


AUTZEN = MapSet(
    "autzen",
    "autzen_lidar_cc_by",
    "campus and stadium, Eugene, Oregon: orthophoto and heights from coloured LiDAR, 0.5 m, 1.0 x 1.4 km",
    "CC-BY 4.0",
    "PDAL/data, CC-BY 4.0 (https://creativecommons.org/licenses/by/4.0/); LiDAR: Watershed Sciences, 2010.",
    "Rasterised at 0.5 m: highest point of each cell, mean colour of the points at most 1 m below it, small holes "
    "closed.",
    256,
    (
        EptMap(
            Snapshot("PDAL/data", "ce0024257c573526389c4db9ab26e82739b8aaa9", "entwine/data/binary"),
            "autzen",
            Grid((193724.11039200003 / 0.3048, 258739.27932000003 / 0.3048), 0.3048, 0.5, 2088, 2837, 123.0),
            (
                ("origin_ll_m", (193724.11039200003, 258739.27932000003)),
                ("crs", "Oregon Lambert NAD83(HARN), feet*0.3048"),
            ),
        ),
    ),
)


def _kentucky(
    stem: str,
    source: Snapshot,
    low: tuple[float, float],
    gsd: float,
    size: tuple[int, int],
    zmin: float,
    base_ft: float,
    centre: tuple[float, float],
) -> PotreeMap:
    """A site of the Kentucky set; low and base in US feet of EPSG:3089, base: the cloud's lowest point."""
    facts = (
        ("origin_lower_left_ft_ky_single_zone", low),
        ("crs", "NAD83 Kentucky Single Zone ftUS (EPSG:3089), written from cloud.js offsets"),
        ("centre_lat_lon", centre),
    )
    return PotreeMap(source, stem, Grid(low, US_SURVEY_FOOT, gsd, *size, zmin, base_ft), facts)


_WOODFORD = Snapshot(
    "ionajo/woodford-county-change", "18a9aa8f94e0957b0f9effd17f0e3967edd540e3", "potree/pointclouds/index"
)
_LOCK = Snapshot(
    "NHockensmith03/Kentucky-River-Lock-Dam4", "2eb9d3493f9d84a8b7b7b0eab9274aac3bf8d16c", "potree/pointclouds/index"
)
_WOLFCREEK = Snapshot("HaydenJHanc/GEO409Final", "f34de13120e09f09381977fffe86d48f8b473cab", "pointclouds/index")
_GORGE = Snapshot("ionajo/rrg", "2d50e49e682ab546928381786e8468bacba8cba1", "3d/pointclouds/index")

KENTUCKY = MapSet(
    "kentucky",
    "kentucky_lidar_public_domain",
    "five sites in Kentucky (town, suburb, dam, farms, forest): orthophotos and heights from coloured LiDAR, 0.6 to "
    "0.75 m",
    "public domain (inferred)",
    "LiDAR: KyFromAbove, Commonwealth of Kentucky, whose imagery and base data are announced as public domain "
    "(klc.org/News/12189, kygeonet.ky.gov/kyfromabove); colours: USDA NAIP, a US government work. Put on the web by "
    "students of the University of Kentucky's GEO 409, whose repositories state no licence for the clouds.",
    "Rasterised at 0.6 or 0.75 m: highest point of each cell, mean colour of the points at most 1 m below it, small "
    "holes closed; two crops of the Wolf Creek cloud. Colours and LiDAR may be years apart.",
    1900,
    (
        _kentucky(
            "versailles_woodford", _WOODFORD, (5208145.64, 3902993.5500000003), 0.6, (2031, 2031), 0.0, 847.92,
            (38.04325, -84.74676),
        ),
        _kentucky(
            "frankfort_lock4", _LOCK, (5170845.29, 3964547.02), 0.6, (2540, 2540), 0.0, 452.07, (38.21467, -84.87252)
        ),
        _kentucky(
            "wolfcreek_dam", _WOLFCREEK, (5096877.920093011, 3475141.34), 0.75, (2400, 2200), 4.0, 543.4,
            (36.87278, -85.13954),
        ),
        _kentucky(
            "wolfcreek_farms", _WOLFCREEK, (5098190.253467684, 3482687.2569043627), 0.75, (2666, 2533), 3.0, 543.4,
            (36.8946, -85.13375),
        ),
        _kentucky(
            "carter_caves", _GORGE, (5671952.26, 4030727.45), 0.75, (1625, 1625), 0.0, 683.26, (38.36921, -83.12422)
        ),
    ),
)  # fmt: skip

NAIP = MapSet(
    "naip-california",
    "naip_california_cc_by",
    "604 places of 154 m in 8 Californian cities, 0.6 m, each at up to three dates (2016, 2018, 2020)",
    "CC-BY 4.0",
    "J. Ventura et al. (2024), JAG 130, 103848, CC-BY 4.0 (https://creativecommons.org/licenses/by/4.0/); pixels: "
    "USDA NAIP, a US government work.",
    "Red, green and blue alone, as JPEG of quality 95; the corners are in index.csv.",
    435,
    (
        Places(
            Snapshot("jonathanventura/urban-tree-detection-data", "78e81bdbb484048472e77cbedd3afb49a6b621c6", "images"),
            1651,
        ),
    ),
)

OAM = MapSet(
    "oam-mosaics",
    "oam_drone_mosaics_cc_by",
    "ten drone orthomosaics, 0.15 m: Zanzibar, Kampala, Nairobi, Nepal, Philippines",
    "CC-BY 4.0",
    "Contributors of Open Imagery Network, OpenAerialMap, CC-BY 4.0 (https://creativecommons.org/licenses/by/4.0/).",
    "Tiles of zoom 21 joined and halved, JPEG of quality 93; the corners are in index.csv.",
    170,
    (
        Mosaics(
            Snapshot(
                "hotosm/fAIr-utilities", "61f15156c4d399be9068ea1fa3e9b85915345076", "ramp-data/TRAIN/HOTOSM/2/data"
            ),
            (
                Mosaic("zanzibar_0", 1277168, 1083840, 32, 16),
                Mosaic("zanzibar_1", 1277172, 1083980, 28, 8),
                Mosaic("kampala_0", 1238448, 1046528, 12, 8),
                Mosaic("kampala_1", 1238424, 1046544, 4, 4),
                Mosaic("nepal_panauti_0", 1546872, 881008, 8, 8),
                Mosaic("nepal_panauti_1", 1546788, 881052, 8, 8),
                Mosaic("philippines_catanduanes_0", 1772484, 966372, 4, 8),
                Mosaic("philippines_catanduanes_1", 1772464, 966380, 8, 4),
                Mosaic("nairobi_0", 1263568, 1056176, 16, 16),
                Mosaic("nairobi_1", 1263512, 1056200, 16, 8),
            ),
        ),
    ),
)

SETS = {each.name: each for each in (NAIP, AUTZEN, KENTUCKY, OAM)}
