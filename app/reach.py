"""Where a node or a client listens, and where it tells others to fetch its blocks.

Contract: loopback unless the operator says otherwise; what is announced is what others can use: never the
wildcard that a socket listens on. `announce_url` is "auto" (where it listens), "none" (nothing is announced,
and what was announced before is taken back), or the base URL of a reverse proxy, a forwarded port or an IPFS
gateway that has the same blocks.
"""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import ip_address
from urllib.parse import urlsplit

from assay.app.settings import Settings
from assay.protocol.errors import Ask

AUTO, NONE = "auto", "none"
LONGEST_URL = 256
"""Characters: every node reads it from the chain."""


@dataclass(frozen=True)
class Reach:
    """`announce`: "auto", "none" or a base URL."""

    host: str
    port: int
    announce: str

    def announced(self, listening_url: str) -> str:
        """The base URL for others; empty: none."""
        if self.announce == NONE:
            return ""
        return listening_url if self.announce == AUTO else self.announce.rstrip("/")


def reach_of(settings: Settings, port: int = 0) -> Reach:
    """What the operator says. Raises Ask for what cannot be: an address that nobody can use, no URL."""
    host, announce = settings.value("host").strip("[]"), settings.value("announce_url")
    if announce not in (AUTO, NONE):
        _check(announce)
    if announce == AUTO and _is_wildcard(host):
        raise Ask(
            f"listening on {host} is on every address of this machine, and others need one of them",
            hint="say which with --announce-url http://ADDRESS:PORT, or --announce-url none to announce none",
            code="bad-config",
        )
    return Reach(host, port, announce)


def base_url(host: str, port: int) -> str:
    """An HTTP base URL; an IPv6 address in brackets."""
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _is_wildcard(host: str) -> bool:
    try:
        return ip_address(host).is_unspecified
    except ValueError:
        return host == ""


def _check(url: str) -> None:
    try:
        parts = urlsplit(url)
        port_is_one = parts.port is None or parts.port > 0
        good = parts.scheme in ("http", "https") and bool(parts.hostname) and port_is_one
        plain = not (parts.query or parts.fragment or parts.username or parts.password)
    except ValueError:
        good = plain = False
    if not (good and plain and len(url) <= LONGEST_URL and not _is_wildcard(parts.hostname or "")):
        raise Ask(
            f"{url!r} is no base URL that others could fetch blocks from",
            hint="such as https://node.example.org or http://[2001:db8::7]:4001; or auto, or none",
            code="bad-config",
        )
