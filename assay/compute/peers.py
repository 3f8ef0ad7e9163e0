"""The members of a crew as they reach each other, and the errors that name one of them.

Contract: values; this module does not import PyTorch, so that a node's control process can hold them.
"""

from __future__ import annotations

import ssl
from dataclasses import dataclass

from assay.protocol.errors import Retry


class Blame(Retry):
    """A member broke the protocol, and the run ends. `meaning`: for this member's work and stake."""

    code = "blame"

    def __init__(self, member: int, did: str, meaning: str = "", hint: str = "") -> None:
        super().__init__(f"member {member} {did}" + (f"; {meaning}" if meaning else ""), hint=hint)
        self.member, self.did = member, did


class Lost(Blame):
    """A connection to a member ended; the run can go on when that member comes back."""


@dataclass(frozen=True)
class Peer:
    """Listen address of a member, its certificate (PEM), and its name in the crew file, to show."""

    host: str
    port: int
    certificate: str
    name: str = ""

    @property
    def known_as(self) -> bytes:
        """The certificate in DER, as TLS presents it."""
        return ssl.PEM_cert_to_DER_cert(self.certificate)


@dataclass(frozen=True)
class Crew:
    """All members; `key`: path of this member's private key and certificate."""

    peers: tuple[Peer, ...]
    member: int
    key: str
    patience_s: float
    """Timeout of a frame in seconds."""
