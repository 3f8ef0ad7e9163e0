"""A crew's file, and the keys by which its members know each other.

Contract: a crew file lists the members in the order of their stages, each with the address where it listens
and the file of its certificate, beside the crew file. A key file holds a private key and its certificate and
is the owner's alone; it signs nothing but connections, and has no part in the market.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from assay.compute.streams import Peer
from assay.protocol.errors import Stop

VALID = timedelta(days=3650)


class BadCrew(Stop):
    """The crew file cannot be used; nothing was started."""

    code = "bad-crew"


def new_key(path: Path, name: str) -> Path:
    """Write a key file, and its certificate beside it, of which the path is returned. Raises FileExistsError
    where one of them is there."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + VALID)
        .sign(key, hashes.SHA256())
        .public_bytes(Encoding.PEM)
    )
    public = path.with_suffix(".crt")
    with public.open("xb") as out:
        out.write(certificate)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as out:
        out.write(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()) + certificate)
    return public


def read_crew(path: Path) -> tuple[Peer, ...]:
    """The members of a crew file. Raises BadCrew."""
    try:
        entries = tomllib.loads(path.read_text())["member"]
        return tuple(_peer(path.parent, entry["address"], entry["certificate"]) for entry in entries)
    except (KeyError, TypeError, ValueError) as error:
        raise BadCrew(
            f"{path} is no crew file ({error}), so nothing was started",
            hint='give each [[member]] an address = "host:port" and a certificate = "name.crt"',
        ) from error


def _peer(folder: Path, address: str, certificate: str) -> Peer:
    host, _, port = address.rpartition(":")
    text = (folder / certificate).read_text()
    x509.load_pem_x509_certificate(text.encode())
    return Peer(host, int(port), text)


def member_of(peers: Sequence[Peer], key: Path) -> int:
    """Which member a key file belongs to. Raises BadCrew where it is none's."""
    own = x509.load_pem_x509_certificate(key.read_bytes()).public_bytes(Encoding.DER)
    for member, peer in enumerate(peers):
        if peer.known_as == own:
            return member
    raise BadCrew(
        f"the crew file has no certificate of {key}, so nothing was started",
        hint=f"add {key.with_suffix('.crt').name} to every member's crew file",
    )
