"""Ranks the peers of an exchange: whom to ask for a block, in which order, and whom to skip.

Contract: endpoints are free, so a bad peer may only cost time that others do not need:
- First come peers that have delivered before, fastest first, equals in turn; then those that publish for an
  open job; then the others by stake. Strangers without stake come last, except for one in four places, so
  that stake cannot hide them.
- A peer that sends wrong bytes is banned, four times as long each time. One that fails or stalls backs off,
  twice as long each time, and a delivery halves that. One that lacks a block is not blamed, but loses its
  rank if it mostly lacks them.
- All peers of one origin (scheme, host, port) share one record. Leaving the list does not clear it.

Not guaranteed: that peers are safe to contact, or different people. Times in seconds. Not thread-safe.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from math import log2

from assay.protocol.peer_url import BadPeerUrl, origin, peer_url

MAX_PEERS = 4096
MAX_RECORDS = 4 * MAX_PEERS
RESTING_ASKED = 8
"""Maximum number of backing-off peers asked for a block that nobody else has."""
VOUCHED_FIRST = 3
_FIRST_PACE_S = 0.1
_USEFUL = 0.5
"""Minimum share of deliveries among recent answers for a peer that delivers."""


@dataclass(frozen=True, slots=True)
class PeerInfo:
    """A block-serving URL; `stake` in the token's smallest unit.

    `publishes`: whether it is the client of an open job, or has worked for one.
    """

    url: str
    stake: int = 0
    publishes: bool = False


@dataclass(slots=True)
class Record:
    """History of an origin."""

    useful: float = 0.0
    pace_s: float = 0.0
    failures: int = 0
    rest_until: float = 0.0
    bans: int = 0
    banned_until: float = 0.0


@dataclass(slots=True)
class Peer:
    """A gateway that can be asked."""

    info: PeerInfo
    record: Record = field(default_factory=Record)

    @property
    def url(self) -> str:
        return self.info.url

    @property
    def delivers(self) -> bool:
        """True if most recent requests were answered with the block."""
        return self.record.useful >= _USEFUL and self.record.failures == 0

    @property
    def vouched(self) -> bool:
        """True if it has something to lose: its record of deliveries, an open job, or stake."""
        return self.delivers or self.info.publishes or self.info.stake > 0

    @property
    def pace_s(self) -> float:
        """Seconds it takes for a block, or the default for a stranger."""
        return self.record.pace_s or _FIRST_PACE_S


class Peers:
    """Peers of one exchange with their records. `clock` returns monotonic seconds."""

    def __init__(
        self,
        clock: Callable[[], float],
        *,
        ban_s: float,
        max_ban_s: float,
        rest_s: float,
        max_rest_s: float,
    ) -> None:
        self._clock = clock
        self._ban_s, self._max_ban_s = ban_s, max_ban_s
        self._rest_s, self._max_rest_s = rest_s, max_rest_s
        self._records: dict[str, Record] = {}
        self._peers: dict[str, Peer] = {}
        self._turn = 0

    def replace(self, peers: Iterable[str | PeerInfo]) -> list[str]:
        """Replaces the list; returns entries left out because they are no plain http(s) base URL.

        One malformed entry must not affect others. Beyond MAX_PEERS those with least stake are left out.
        """
        infos: dict[str, PeerInfo] = {}
        refused: list[str] = []
        for given in peers:
            info = given if isinstance(given, PeerInfo) else PeerInfo(given)
            try:
                url = peer_url(info.url)
            except BadPeerUrl:
                refused.append(info.url)
                continue
            known = infos.get(url, info)
            infos[url] = PeerInfo(url, max(known.stake, info.stake), known.publishes or info.publishes)
        kept = list(infos.values())
        if len(kept) > MAX_PEERS:
            kept = sorted(kept, key=lambda info: (not info.publishes, -info.stake))[:MAX_PEERS]
        self._peers = {info.url: Peer(info, self._record(info.url)) for info in kept}
        self._forget()
        return refused

    def urls(self) -> list[str]:
        """The current list."""
        return list(self._peers)

    def peer(self, url: str) -> Peer:
        """The peer at a URL, on the list or not. Raises BadPeerUrl."""
        url = peer_url(url)
        return self._peers.get(url) or Peer(PeerInfo(url), self._record(url))

    def banned(self) -> list[str]:
        """Peers of the list that sent wrong bytes and are not asked now."""
        now = self._clock()
        return [url for url, peer in self._peers.items() if peer.record.banned_until > now]

    def order(self, first: str | None = None) -> list[Peer]:
        """Peers to ask, best first; `first`, the publisher or an earlier source of the file, leads unless it
        backs off."""
        self._turn += 1
        now = self._clock()
        usable: list[Peer] = []
        resting: list[Peer] = []
        listed = list(self._peers.values())
        start = self._turn % len(listed) if listed else 0
        for peer in listed[start:] + listed[:start]:
            if peer.record.banned_until <= now:
                (resting if peer.record.rest_until > now else usable).append(peer)
        usable.sort(key=_rank)
        usable = _mixed(usable)
        if first is not None:
            with suppress(BadPeerUrl):
                head = peer_url(first)
                usable.sort(key=lambda peer: peer.url != head)
        resting.sort(key=lambda peer: (not peer.vouched, peer.record.rest_until))
        return usable + resting[:RESTING_ASKED]

    def delivered(self, peer: Peer, seconds: float) -> None:
        """Records a right block after `seconds`."""
        record = peer.record
        record.useful += (1 - record.useful) / 4
        if record.failures == 0:
            record.useful = max(_USEFUL, record.useful)
        record.pace_s = seconds if not record.pace_s else (3 * record.pace_s + seconds) / 4
        record.failures //= 2
        record.rest_until = 0.0

    def absent(self, peer: Peer) -> None:
        """Records that it lacks a block."""
        peer.record.useful *= 0.9

    def failed(self, peer: Peer) -> None:
        """Records that it failed or was too slow."""
        record = peer.record
        record.useful /= 2
        record.failures += 1
        pause = min(self._max_rest_s, self._rest_s * 2.0 ** min(record.failures, 32))
        record.rest_until = self._clock() + pause

    def lied(self, peer: Peer) -> None:
        """Records that it sent wrong bytes."""
        record = peer.record
        record.useful = 0.0
        record.banned_until = self._clock() + min(self._max_ban_s, self._ban_s * 4.0 ** min(record.bans, 16))
        record.bans += 1

    def _record(self, url: str) -> Record:
        return self._records.setdefault(origin(url), Record())

    def _forget(self) -> None:
        """Drops the oldest records of peers not on the list, beyond MAX_RECORDS."""
        here = {origin(url) for url in self._peers}
        gone = [known for known in self._records if known not in here]
        for known in gone[: max(0, len(self._records) - MAX_RECORDS)]:
            del self._records[known]


def _rank(peer: Peer) -> tuple[bool, int, int, bool, int]:
    """Sort key: peers that deliver by pace, all others by stake, each to a factor of two.

    Repeated failures rank lower; a few are forgiven to peers with something at stake.
    """
    pace = round(log2(max(peer.pace_s, 0.01))) if peer.delivers else 0
    failures = peer.record.failures // (4 if peer.vouched else 1)
    stake = -peer.info.stake.bit_length()
    return not peer.delivers, pace, failures.bit_length(), not peer.info.publishes, stake


def _mixed(peers: list[Peer]) -> list[Peer]:
    """Peers that deliver, then the others with a stranger after every VOUCHED_FIRST with stake, so that much
    stake cannot hide peers without any."""
    proven = [peer for peer in peers if peer.delivers]
    vouched = [peer for peer in peers if peer.vouched and not peer.delivers]
    strangers = [peer for peer in peers if not peer.vouched]
    mixed, taken = [], 0
    for stranger in strangers:
        mixed += [*vouched[taken : taken + VOUCHED_FIRST], stranger]
        taken += VOUCHED_FIRST
    return proven + mixed + vouched[taken:]
