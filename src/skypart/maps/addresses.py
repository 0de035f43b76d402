"""Where maps lie: files of this machine or addresses of others, and what of them may be told."""

import re
from pathlib import Path

_REMOTE = re.compile(r"^(/vsi|[A-Za-z][A-Za-z0-9+.-]*://)")
_USER = re.compile(r"(?<=://)[^/?#\s]*@")
_QUERY = re.compile(r"((?:/vsi|[A-Za-z][A-Za-z0-9+.-]*://)[^?#\s]*)[?#][^\s'\")]*")


def is_remote(path: str) -> bool:
    """Whether a path is an address (https://, s3://, /vsicurl/...), not a file of this machine."""
    return _REMOTE.match(path) is not None


def told(path: str) -> str:
    """A path as messages name it: an address without user and query, which may hold a key."""
    return _USER.sub("", re.split(r"[?#]", path)[0]) if is_remote(path) else path


def told_in(text: str, path: str) -> str:
    """A text of others about `path`, such as GDAL's, with no address in it but as `told`."""
    return _USER.sub("", _QUERY.sub(r"\1", text.replace(path, told(path))))


def lasting(path: str | Path) -> str:
    """A path that holds from other folders too. A link keeps its own name, for that and what lies beside it count."""
    place = Path(path)
    return str(place.resolve() if place.name in ("", "..") else place.parent.resolve() / place.name)
