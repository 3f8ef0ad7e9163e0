"""Reads crew files and creates the members' TLS keys.

Contract: a crew file lists the members in the order of their stages, each with its listen address and
certificate file, beside the crew file. A key file holds a private key and its certificate, readable by its
owner alone; it authenticates connections only, and is unrelated to market accounts.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from assay.compute.peers import Peer
from assay.protocol.crew import MAX_MEMBERS
from assay.protocol.errors import Stop

VALID = timedelta(days=3650)


class BadCrew(Stop):
    """The crew file cannot be used; nothing was started."""

    code = "bad-crew"


def new_key(path: Path) -> Path:
    """Writes a key file and a certificate beside it; returns the certificate's path. Raises FileExistsError
    if either exists, Stop for a path without a file name."""
    if not path.name or path.suffix == ".crt":
        raise Stop(
            f"{str(path)!r} names no file for a key, so nothing was written",
            hint="name one such as alice.pem; the certificate is written beside it as alice.crt",
            code="bad-file-name",
        )
    key = ec.generate_private_key(ec.SECP256R1())
    number = x509.random_serial_number()
    # OpenSSL looks a trusted certificate up by its subject, so no two may have the same
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"assay crew {number:x}")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(number)
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + VALID)
        .sign(key, hashes.SHA256())
        .public_bytes(Encoding.PEM)
    )
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as out:
        out.write(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()) + certificate)
    public = path.with_suffix(".crt")
    with public.open("xb") as out:
        out.write(certificate)
    return public


def read_crew(path: Path) -> tuple[Peer, ...]:
    """Reads the members from a crew file. Raises BadCrew."""
    try:
        entries = tomllib.loads(path.read_text()).get("member")
        if not isinstance(entries, list) or not 2 <= len(entries) <= MAX_MEMBERS:
            raise ValueError(f"it has not 2 to {MAX_MEMBERS} [[member]]")
        peers = tuple(_peer(path.parent, number, entry) for number, entry in enumerate(entries))
        subjects = {x509.load_pem_x509_certificate(peer.certificate.encode()).subject for peer in peers}
        if len(subjects) < len(peers):  # OpenSSL looks certificates up by their subjects
            raise ValueError("two certificates have the same subject")
        if len({(peer.host, peer.port) for peer in peers}) < len(peers):
            raise ValueError("two members have the same address")
        return peers
    except (OSError, ValueError) as error:
        raise BadCrew(
            f"{path} is no crew file ({error}), so nothing was started",
            hint='give each [[member]] an address = "host:port" and a certificate = "name.crt", beside it',
        ) from error


def _peer(folder: Path, number: int, entry: object) -> Peer:
    """Raises ValueError, OSError."""
    told = entry if isinstance(entry, dict) else {}
    address, certificate = told.get("address"), told.get("certificate")
    if not isinstance(address, str) or not isinstance(certificate, str):
        raise ValueError(f"member {number} has no text for its address or its certificate")
    host, _, port = address.rpartition(":")
    if not host or not re.fullmatch("[0-9]{1,5}", port) or not 0 < int(port) < 1 << 16:
        raise ValueError(f"the address of member {number} is {address!r}, and not host:port")
    text = (folder / certificate).read_text()
    try:
        x509.load_pem_x509_certificate(text.encode())
    except ValueError as error:
        raise ValueError(f"{certificate} of member {number} is no certificate") from error
    return Peer(host, int(port), text, Path(certificate).stem)


def member_of(peers: Sequence[Peer], key: Path) -> int:
    """Index of the member with this key file. Raises BadCrew if there is none."""
    try:
        own = x509.load_pem_x509_certificate(key.read_bytes()).public_bytes(Encoding.DER)
    except ValueError as error:
        raise BadCrew(
            f"{key} holds no certificate, so nothing was started",
            hint="make a key with `assay crew key`; the private key and its certificate are in that file",
        ) from error
    for member, peer in enumerate(peers):
        if peer.known_as == own:
            return member
    raise BadCrew(
        f"the crew file has no certificate of {key}, so nothing was started",
        hint=f"add {key.with_suffix('.crt').name} to every member's crew file",
    )
