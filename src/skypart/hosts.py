"""Which page and which address a request names: the headers Host and Origin."""

import re

LOOPBACK = ("127.0.0.1", "localhost", "::1")
"""Names of this machine that no other machine reaches."""
_HOST = re.compile(r"(?:\[(?P<address>[0-9a-f:.]{2,45})\]|(?P<name>[a-z0-9._-]{1,253}))(?::(?P<port>\d{1,5}))?")
"""A Host header: a name or IPv4 address, or an IPv6 address in brackets, and a port; nothing else around them."""


def host_name(header: str) -> str:
    """The name in a Host header in lower case, without port and IPv6 brackets; empty if the header is malformed."""
    found = _HOST.fullmatch(header.strip(" \t").lower())
    return "" if found is None else (found["address"] or found["name"])


def is_own_origin(origin: str, host: str) -> bool:
    """Whether an Origin header names the server that the Host header names; ports count."""
    scheme, separator, rest = origin.strip(" \t").lower().partition("://")
    port = {"http": "80", "https": "443"}.get(scheme)
    if not separator or port is None:
        return False  # also "null", which sandboxed pages send
    one, other = _HOST.fullmatch(rest), _HOST.fullmatch(host.strip(" \t").lower())
    if one is None or other is None or host_name(rest) != host_name(host):
        return False
    return (one["port"] or port) == (other["port"] or port)


def is_foreign_page(origin: str | None, host: str, accepted: frozenset[str] | None) -> bool:
    """Whether a browser sent a request for a page of another machine, or under a name that is not the server's.

    origin, host: the headers; programs that are no browser send no Origin. accepted: names of the server; None for any.
    Pages of other ports of the same name are not foreign.
    """
    name = host_name(host)
    if not name or (accepted is not None and name not in accepted):
        return True
    if origin is None:
        return False
    scheme, separator, rest = origin.strip(" \t").lower().partition("://")
    return not separator or scheme not in ("http", "https") or host_name(rest) != name
