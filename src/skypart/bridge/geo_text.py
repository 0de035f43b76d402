"""OpenDroneMap's geo.txt: a coordinate system, then `file longitude latitude` per photo."""

from collections.abc import Sequence
from pathlib import Path

from skypart.bridge.output_format import OutputFormat
from skypart.bridge.values import clean_text
from skypart.position.fix import Fix


def fixes_to_geo(fixes: Sequence[Fix]) -> str:
    """Positions of the drone where they are known, else of the ground at the photo's centre.

    Photos without a position are left out. File names only: OpenDroneMap looks for them in its folder of images. Spaces
    in them are not supported there.
    """
    lines = ["EPSG:4326"]
    for fix in fixes:
        latitude, longitude = fix.drone_latitude, fix.drone_longitude
        if latitude is None or longitude is None:
            latitude, longitude = fix.latitude, fix.longitude
        if latitude is not None and longitude is not None and latitude == latitude and longitude == longitude:
            lines.append(f"{clean_text(Path(fix.photo).name)} {longitude:.8f} {latitude:.8f}")
    return "\n".join(lines) + "\n"


FORMAT = OutputFormat(name="geo", fixes=fixes_to_geo, other_suffixes=("txt",))
