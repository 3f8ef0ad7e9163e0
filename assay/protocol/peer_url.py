"""Validates and normalises the base URL at which a node serves blocks; anyone may announce one on chain for
free.

Contract: `peer_url` returns a URL's canonical spelling, or raises `BadPeerUrl` and no other error. A valid
URL has the scheme http or https and a host that is an IDNA 2008 name (in ASCII) or an IP address other than
the wildcard. Its port is 1 to 65535 and is omitted where it is the scheme's default. Its path has plain
characters and no trailing slash. It has no credentials, query, fragment, escape or control character. Not
guaranteed: that a server answers there, or that it is safe to connect: ``blocks.public_net`` checks the
address that a name resolves to. Source: RFC 3986; RFC 5891 (by the package idna, imported on first use).
"""

from __future__ import annotations

import re
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address

from assay.protocol.errors import Stop

LONGEST = 256
"""Maximum length in characters: every node reads the URL from the chain."""
_URL = re.compile(
    r"(?P<scheme>[Hh][Tt][Tt][Pp][Ss]?)://"
    r"(?P<host>\[[0-9A-Fa-f:.]+\]|[^\x00-\x20\x7f-\xa0\s/\\:@?#%\[\]]+)"
    r"(?::(?P<port>[0-9]{1,5}))?"
    r"(?P<path>(?:/[A-Za-z0-9._~-]+)*)/?"
)
_NUMERIC = re.compile(r"[0-9]+|0x[0-9a-f]*")
"""A last label with which resolvers take the name for an IPv4 address (URL standard, host parsing)."""
_PORTS = {"http": 80, "https": 443}
_SHOWN = 200


class BadPeerUrl(Stop):
    """The peer's address is not a plain http or https base URL."""

    code = "bad-peer-url"

    def __init__(self, url: str, why: str) -> None:
        super().__init__(
            f"{url[:_SHOWN]!a} is no base URL of a peer: {why}; nobody is asked there",
            hint="give the gateway's base URL, such as http://203.0.113.7:8080",
        )


@lru_cache(1 << 14)
def peer_url(url: str) -> str:
    """Returns the URL's canonical spelling. Raises BadPeerUrl."""
    if len(url) > LONGEST:
        raise BadPeerUrl(url, f"it has more than {LONGEST} characters")
    parts = _URL.fullmatch(url)
    if parts is None:
        raise BadPeerUrl(url, "it is not http(s)://HOST[:PORT][/PATH]")
    scheme, path = parts["scheme"].lower(), parts["path"]
    if {".", ".."} & set(path.split("/")):
        raise BadPeerUrl(url, "its path has dots for a segment")
    port = int(parts["port"] or _PORTS[scheme])
    if not 1 <= port <= 65_535:
        raise BadPeerUrl(url, f"there is no port {port}")
    try:
        host = _host(parts["host"])
    except ValueError as error:  # idna's errors are UnicodeErrors, which are ValueErrors
        raise BadPeerUrl(url, f"{parts['host']!a} is no host") from error
    shown = f"{scheme}://{host}{'' if port == _PORTS[scheme] else f':{port}'}{path}"
    if len(shown) > LONGEST:
        raise BadPeerUrl(url, f"in ASCII it has more than {LONGEST} characters")
    return shown


def origin(url: str) -> str:
    """Scheme, host and port of a URL in canonical spelling."""
    return "/".join(url.split("/", 3)[:3])


def _host(text: str) -> str:
    """Normalises a host. Raises ValueError."""
    if text.startswith("["):
        address: IPv4Address | IPv6Address = IPv6Address(text[1:-1])
        named = f"[{address}]"
    elif _NUMERIC.fullmatch(text.rpartition(".")[2].lower()):
        address = IPv4Address(text)
        named = str(address)
    else:
        return _name(text)
    if address.is_unspecified:
        raise ValueError("a wildcard is nobody's address")
    return named


def _name(text: str) -> str:
    """Normalises a host name by IDNA 2008, in ASCII. Raises ValueError."""
    import idna

    if text.endswith("."):
        raise ValueError("it ends with a dot")
    try:
        return idna.encode(text.lower()).decode("ascii")
    except IndexError as error:
        raise ValueError("it is no name") from error
