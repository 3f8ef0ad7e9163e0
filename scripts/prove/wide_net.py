"""A small internet on one machine: network namespaces whose packets a switch in this process carries, each
link with a rate, a delay and a loss of its own, and a firewall before hosts that are behind NAT.

Contract: a host is a namespace with one address of each family, and nothing else leads out of it. A packet
leaves at the link's rate and arrives its delay later; at the receiver's link likewise. A host behind NAT gets
only packets of flows that it began. Addresses are not translated: what is shown is who can reach whom.
Linux, root and /dev/net/tun are needed. `Network` removes its namespaces when it is closed.
"""

from __future__ import annotations

import fcntl
import heapq
import os
import select
import struct
import subprocess
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from hashlib import sha256
from ipaddress import ip_address

_TUNSETIFF, _IFF_TUN, _IFF_NO_PI = 0x400454CA, 0x0001, 0x1000
_IP, _IP6, _TCP = 4, 6, 6
MTU = 9_000
_QUEUE_S = 1.0


@dataclass
class Link:
    """A host's way out. `bits_per_s` 0: without limit; `delay_s` is one way; `loss`: of all packets each way,
    the part that is lost, drawn by each packet's number; `queue_s`: a packet that would wait longer for its
    link is dropped, as by a router whose buffer is full."""

    name: str
    number: int
    bits_per_s: int = 0
    delay_s: float = 0.0
    behind_nat: bool = False
    loss: float = 0.0
    queue_s: float = _QUEUE_S
    sent: int = 0
    received: int = 0
    refused: int = 0
    """Packets that nobody inside had asked for."""
    flows: set[tuple[bytes, ...]] = field(default_factory=set)
    fd: int = -1
    _free: dict[str, float] = field(default_factory=lambda: {"up": 0.0, "down": 0.0})
    _packets: dict[str, int] = field(default_factory=lambda: {"up": 0, "down": 0})

    @property
    def address(self) -> str:
        return f"10.77.0.{self.number}"

    @property
    def address6(self) -> str:
        return f"fd00:77::{self.number:x}"

    def lost(self, way: str) -> bool:
        """Whether the next packet of one way is lost."""
        if not self.loss:
            return False
        self._packets[way] += 1
        drawn = sha256(f"{self.name}/{way}/{self._packets[way]}".encode()).digest()[:8]
        return int.from_bytes(drawn, "big") < self.loss * 2**64

    def arrival(self, way: str, size: int, now: float) -> float | None:
        """When a packet that begins now is through this link one way; None: it is dropped."""
        if self.lost(way):
            return None
        if not self.bits_per_s:
            return now + self.delay_s
        begin = max(now, self._free[way])
        if begin - now > self.queue_s:
            return None
        self._free[way] = begin + 8 * size / self.bits_per_s
        return self._free[way] + self.delay_s


class Network:
    """Hosts by name, and the switch between them. The host named "here" is this machine's own namespace."""

    def __init__(self, links: list[Link], mtu: int = MTU) -> None:
        """`mtu`: the longest packet, in bytes, at most MTU."""
        self.mtu = mtu
        self.links = {link.name: link for link in links}
        self._by_address = {ip_address(a).packed: k for k in links for a in (k.address, k.address6)}
        self._prefix = f"assay{os.getpid()}"
        self._waiting: list[tuple[float, int, Link, bytes]] = []
        self._count = 0
        self._wake, self._woken = os.pipe()
        self._stopped = False
        self.dropped: Counter[str] = Counter()
        self._thread = threading.Thread(target=self._carry, name="switch", daemon=True)

    def __enter__(self) -> Network:
        try:
            for link in self.links.values():
                self._open(link)
        except BaseException:
            self.__exit__()
            raise
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped = True
        os.write(self._woken, b"x")
        if self._thread.is_alive():
            self._thread.join()
        for link in self.links.values():
            if link.fd >= 0:
                os.close(link.fd)
            if link.name != "here":
                gone = ["ip", "netns", "del", self.space(link.name)]
                subprocess.run(gone, capture_output=True, check=False)

    def space(self, name: str) -> str:
        """The namespace of a host."""
        return f"{self._prefix}-{name}"

    def command(self, name: str, words: list[str]) -> list[str]:
        """A command line that runs these words on a host."""
        return words if name == "here" else ["ip", "netns", "exec", self.space(name), *words]

    def _open(self, link: Link) -> None:
        device = f"as{os.getpid() % 100_000}x{link.number}"
        link.fd = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
        fcntl.ioctl(link.fd, _TUNSETIFF, struct.pack("16sH", device.encode(), _IFF_TUN | _IFF_NO_PI))
        inside: list[str] = []
        if link.name != "here":
            _ip("netns", "add", self.space(link.name))
            _ip("link", "set", device, "netns", self.space(link.name))
            inside = ["-n", self.space(link.name)]
            _ip(*inside, "link", "set", "lo", "up")
        _ip(*inside, "addr", "add", f"{link.address}/24", "dev", device)
        _ip(*inside, "-6", "addr", "add", f"{link.address6}/64", "dev", device, "nodad")
        _ip(*inside, "link", "set", device, "mtu", str(self.mtu), "up")

    def _carry(self) -> None:
        by_fd = {link.fd: link for link in self.links.values()}
        while not self._stopped:
            wait = max(self._waiting[0][0] - time.monotonic(), 0.0) if self._waiting else 1.0
            for fd in select.select([*by_fd, self._wake], [], [], wait)[0]:
                if fd != self._wake:
                    self._take(by_fd[fd])
            self._deliver(by_fd)

    def _take(self, link: Link) -> None:
        """Read what waits at a host's device, a little at a time."""
        for _ in range(32):
            try:
                packet = os.read(link.fd, MTU + 64)
            except OSError:
                return
            target = self._by_address.get(_target(packet))
            if target is None or target is link:
                continue
            link.sent += len(packet)
            if link.behind_nat:
                link.flows.add(_flow(packet))
            arrives = link.arrival("up", len(packet), time.monotonic())
            if arrives is None:
                self.dropped[link.name] += 1
                continue
            self._count += 1
            heapq.heappush(self._waiting, (arrives, self._count, target, packet))

    def _deliver(self, by_fd: dict[int, Link]) -> None:
        now = time.monotonic()
        while self._waiting and self._waiting[0][0] <= now:
            at, number, target, packet = heapq.heappop(self._waiting)
            if number > 0:  # it has left its sender's link, and comes to its receiver's
                if target.behind_nat and _flow(packet, back=True) not in target.flows:
                    target.refused += 1
                    continue
                arrives = target.arrival("down", len(packet), at)
                if arrives is None:
                    self.dropped[target.name] += 1
                elif arrives > now:
                    heapq.heappush(self._waiting, (arrives, -number, target, packet))
                else:
                    self._hand(target, packet)
            else:
                self._hand(target, packet)

    def _hand(self, target: Link, packet: bytes) -> None:
        try:
            os.write(target.fd, packet)
            target.received += len(packet)
        except OSError:
            self.dropped[target.name] += 1


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


def _target(packet: bytes) -> bytes:
    return packet[16:20] if packet[:1] and packet[0] >> 4 == _IP else packet[24:40]


def _flow(packet: bytes, back: bool = False) -> tuple[bytes, ...]:
    """What names a flow, as its beginner sends it; `back`: of a packet that comes the other way."""
    if packet[0] >> 4 == _IP:
        start = 4 * (packet[0] & 15)
        source, target, kind = packet[12:16], packet[16:20], packet[9:10]
    else:
        start, source, target, kind = 40, packet[8:24], packet[24:40], packet[6:7]
    ports = packet[start : start + 2], packet[start + 2 : start + 4]
    if back:
        return kind, target, source, ports[1], ports[0]
    return kind, source, target, ports[0], ports[1]
