"""Photos with EXIF and XMP, made by the tests."""

from pathlib import Path
from typing import Any

from PIL import Image
from PIL.TiffImagePlugin import IFDRational

DESCRIPTION = (
    '<?xpacket begin="\ufeff" id="W5M0MpCehiHzreSzNTczkc9d"?><x:xmpmeta xmlns:x="adobe:ns:meta/">'
    '<rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#">'
    '<rdf:Description xmlns:drone-dji="http://www.dji.com/drone-dji/1.0/" '
    'xmlns:drone-parrot="http://www.parrot.com/drone-parrot/1.0/" xmlns:Camera="http://pix4d.com/camera/1.0/" '
    'xmlns:drone="http://autel.example/" xmlns:drone-skydio="http://www.skydio.com/drone-skydio/1.0/" '
    '{attributes}>{elements}</rdf:Description></rdf:RDF></x:xmpmeta><?xpacket end="w"?>'
)


def packet(attributes: str = "", elements: str = "") -> bytes:
    """An XMP packet with these attributes and elements."""
    return DESCRIPTION.format(attributes=attributes, elements=elements).encode()


def degrees(value: float) -> tuple[IFDRational, IFDRational, IFDRational]:
    """EXIF's degrees, minutes, seconds of a positive angle, to a ten-thousandth of a second."""
    ticks = round(value * 36_000_000)
    whole, rest = divmod(ticks, 36_000_000)
    minutes, seconds = divmod(rest, 600_000)
    return IFDRational(whole, 1), IFDRational(minutes, 1), IFDRational(seconds, 10_000)


def save_photo(
    path: Path,
    *,
    main: dict[int, Any] | None = None,
    shot: dict[int, Any] | None = None,
    gps: dict[int, Any] | None = None,
    xmp: bytes | None = None,
    size: tuple[int, int] = (400, 300),
) -> Path:
    """Write a grey JPEG with these EXIF tags and this packet."""
    image = Image.new("RGB", size, (90, 120, 60))
    exif = Image.Exif()
    exif.update(main or {})
    exif.get_ifd(0x8769).update(shot or {})
    exif.get_ifd(0x8825).update(gps or {})
    if xmp:
        image.save(path, exif=exif, xmp=xmp)
    else:
        image.save(path, exif=exif)
    return path
