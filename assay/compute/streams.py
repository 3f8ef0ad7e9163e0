"""Sends tensors between the members of a crew over mutually authenticated TLS.

Contract: a connection carries one direction between two members. Each side presents the certificate that the
crew file pins; any other is refused. Members begin with the latest step with which all can. A frame is a
header (step, node, dtype, length) and the tensor's canonical bytes. The receiver knows the frames and their
order; an unexpected, non-canonical or late frame raises `Blame` with the member's number, and a connection
that ended raises `Lost`. It reads at most one step ahead of its own computation, so a faster sender blocks,
once it has a few frames unsent.
Not guaranteed: that a tensor is right; that a crew starts while many strangers connect.
"""

from __future__ import annotations

import logging
import socket
import ssl
import struct
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from torch import Tensor

from assay.numerics.encoding import EncodingError, from_bytes, to_bytes
from assay.program.isa import DType
from assay.program.kernels import TORCH_DTYPES
from assay.protocol.errors import Ask, Retry

log = logging.getLogger(__name__)
_HEADER = struct.Struct(">QIBI")
_HELLO = struct.Struct(">32s3Q")
_HANDSHAKE_S = 5.0
"""Timeout in seconds of a handshake; the next connection waits meanwhile."""
QUEUED = 4
"""Frames to one member that may be unsent while this member computes on."""
_CONNECT_S = 0.2
"""Seconds between attempts to reach a member."""


class Blame(Retry):
    """A member broke the protocol; the segment ends, and nothing of it is kept."""

    code = "blame"

    def __init__(self, member: int, did: str) -> None:
        super().__init__(
            f"member {member} {did}; the segment ends, and nothing of it is committed",
            hint=f"ask member {member} for its log, and start the segment again with it or without it",
        )
        self.member = member


class Lost(Blame):
    """A connection to a member ended; the run can go on when that member comes back."""


class Frame(NamedTuple):
    """A tensor that one member sends to another in every step."""

    node: int
    dtype: DType
    shape: tuple[int, ...]
    length: int
    """Bytes."""


@dataclass(frozen=True)
class Peer:
    """Listen address of a member, and its certificate (PEM)."""

    host: str
    port: int
    certificate: str

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


class Incoming:
    """Receives the frames of one member in a background thread."""

    def __init__(
        self, member: int, line: ssl.SSLSocket, frames: Sequence[Frame], crew: Crew, first: int
    ) -> None:
        self.member, self._line, self._crew = member, line, crew
        self._frames = {frame.node: frame for frame in frames}
        self._arrived: dict[tuple[int, int], bytes] = {}
        self._change = threading.Condition()
        self._at = self._first = first
        self._fault: Blame | None = None
        self.bytes = 0
        threading.Thread(target=self._read, args=(frames,), daemon=True).start()

    def begin(self, step: int) -> None:
        """Admits frames of the step after `step`, which this member computes now."""
        with self._change:
            self._at = step
            self._change.notify_all()

    def take(self, step: int, node: int) -> Tensor:
        """Waits for the output of a node at a step. Raises Blame."""
        frame = self._frames[node]
        with self._change:
            there = self._change.wait_for(
                lambda: (step, node) in self._arrived or self._fault, self._crew.patience_s
            )
            data = self._arrived.pop((step, node), None)
            if data is None:
                raise self._fault or self._blame(f"sent nothing for {self._crew.patience_s:g} s", step, node)
        assert there
        try:
            return from_bytes(data, TORCH_DTYPES[frame.dtype], frame.shape)
        except EncodingError as error:
            raise self._blame(f"sent bytes that are no tensor ({error})", step, node) from error

    def _blame(self, did: str, step: int, node: int, kind: type[Blame] = Blame) -> Blame:
        return kind(self.member, f"{did}, where node {node} of step {step} was due")

    def _is_due(self, step: int) -> bool:
        return step <= self._at + 1 or self._fault is not None

    def _read(self, frames: Sequence[Frame]) -> None:
        step = self._first
        while True:
            for frame in frames:
                with self._change:
                    self._change.wait_for(partial(self._is_due, step))
                    if self._fault is not None:
                        return
                try:
                    data = self._frame(step, frame)
                except (OSError, EOFError) as error:
                    did = f"ended its stream ({error or 'closed'})"
                    self._end(self._blame(did, step, frame.node, Lost))
                    return
                except Blame as blame:
                    self._end(blame)
                    return
                with self._change:
                    self._arrived[step, frame.node] = data
                    self.bytes += _HEADER.size + len(data)
                    self._change.notify_all()
            step += 1

    def _frame(self, step: int, frame: Frame) -> bytes:
        told = _HEADER.unpack(read_exactly(self._line, _HEADER.size))
        due = (step, frame.node, int(frame.dtype), frame.length)
        if told != due:
            words = ("step", "node", "dtype", "length")
            wrong = [f"{word} {a}, not {b}" for word, a, b in zip(words, told, due, strict=True) if a != b]
            raise self._blame(f"sent a frame of {', '.join(wrong)}", step, frame.node)
        return read_exactly(self._line, frame.length)

    def _end(self, fault: Blame) -> None:
        with self._change:
            self._fault = self._fault or fault
            self._change.notify_all()

    def close(self) -> None:
        """Closes the connection and ends the thread."""
        self._end(Lost(self.member, "is not listened to any more"))
        with suppress(OSError):
            self._line.shutdown(socket.SHUT_RDWR)
        self._line.close()


class Outgoing:
    """Sends frames to one member in a background thread, while this member computes."""

    def __init__(self, member: int, line: ssl.SSLSocket) -> None:
        self.member, self._line = member, line
        self._queue: deque[tuple[int, int, bytes, memoryview]] = deque()
        self._change = threading.Condition()
        self._fault: Lost | None = None
        self.bytes = 0
        threading.Thread(target=self._write, daemon=True).start()

    def send(self, step: int, node: int, dtype: DType, x: Tensor) -> None:
        """Queues a node's output; waits while `QUEUED` frames are unsent. Raises Lost if the connection is
        closed."""
        data = to_bytes(x)
        self._wait(lambda: len(self._queue) < QUEUED)
        with self._change:
            self._queue.append((step, node, _HEADER.pack(step, node, dtype, len(data)), data))
            self.bytes += _HEADER.size + len(data)
            self._change.notify_all()

    def flush(self) -> None:
        """Waits until everything is sent. Raises Lost if the connection is closed."""
        self._wait(lambda: not self._queue)

    def _wait(self, until: Callable[[], bool]) -> None:
        with self._change:
            self._change.wait_for(lambda: until() or self._fault)
            if self._fault is not None:
                raise self._fault

    def _write(self) -> None:
        while True:
            with self._change:
                self._change.wait_for(lambda: self._queue or self._fault)
                if self._fault is not None:
                    return
                step, node, header, data = self._queue[0]
            try:
                self._line.sendall(header)
                self._line.sendall(data)
            except OSError as error:
                self._end(Lost(self.member, f"took no frame of node {node} of step {step} ({error})"))
                return
            with self._change:
                self._queue.popleft()
                self._change.notify_all()

    def _end(self, fault: Lost) -> None:
        with self._change:
            self._fault = self._fault or fault
            self._change.notify_all()

    def close(self) -> None:
        """Closes the connection and ends the thread; what is unsent stays so."""
        self._end(Lost(self.member, "is not sent to any more"))
        with suppress(OSError):
            self._line.shutdown(socket.SHUT_RDWR)
        self._line.close()


class Lines(NamedTuple):
    """Connections of a member, by the other member's number."""

    first: int
    """The step with which all begin."""
    incoming: dict[int, Incoming]
    outgoing: dict[int, Outgoing]

    def flush(self) -> None:
        """Waits until everything is sent. Raises Lost."""
        for outgoing in self.outgoing.values():
            outgoing.flush()

    def close(self) -> None:
        """Closes all connections."""
        for incoming in self.incoming.values():
            incoming.close()
        for outgoing in self.outgoing.values():
            outgoing.close()


def read_exactly(line: ssl.SSLSocket, length: int) -> bytes:
    """Reads `length` bytes. Raises EOFError if the stream ends before."""
    data = bytearray(length)
    view, at = memoryview(data), 0
    while at < length:
        count = line.recv_into(view[at:])
        if count == 0:
            raise EOFError(f"{at} of {length} bytes came")
        at += count
    return bytes(data)


def connect(
    crew: Crew, run: bytes, start: int, saved: Sequence[int], frames: Callable[[int], Sequence[Frame]]
) -> Lines:
    """Connects to all other members and accepts their connections, for steps from the latest on that all can
    begin with.

    `run`: digest of what members compute; `start`: its first step, with which anybody can begin; `saved`: at
    most two steps with which this member can also begin. `frames`: frames of a member in a step, in order.
    Raises Blame if a member does not connect in time or has another run, Ask if the port is taken.
    """
    others = [i for i in range(len(crew.peers)) if i != crew.member]
    deadline = time.monotonic() + crew.patience_s
    steps = [*saved, start, start, start][:3]
    outgoing: dict[int, Outgoing] = {}
    accepted: dict[int, tuple[ssl.SSLSocket, set[int]]] = {}
    with _listening(crew) as listener:
        accepting = threading.Thread(target=_accept, args=(crew, run, listener, accepted), daemon=True)
        accepting.start()
        try:
            for member in others:
                line = _dialled(crew, _HELLO.pack(run, *steps), member, deadline)
                outgoing[member] = Outgoing(member, line)
            accepting.join(max(0.0, deadline - time.monotonic()))
            for member in others:
                if member not in accepted:
                    raise Blame(member, f"did not connect within {crew.patience_s:g} s")
        except BaseException:
            for sending in outgoing.values():
                sending.close()
            for line, _ in accepted.values():
                line.close()
            raise
    first = max(set(steps).intersection(*(theirs | {start} for _, theirs in accepted.values())))
    incoming = {
        member: Incoming(member, accepted[member][0], frames(member), crew, first) for member in others
    }
    return Lines(first, incoming, outgoing)


def _listening(crew: Crew) -> socket.socket:
    own = crew.peers[crew.member]
    try:
        return socket.create_server((own.host, own.port), backlog=len(crew.peers))
    except OSError as error:
        raise Ask(
            f"this member cannot listen at {own.host}:{own.port}, so nothing was computed ({error})",
            hint="end what listens there, or give the crew file another port",
            code="no-port",
        ) from error


def _accept(
    crew: Crew,
    run: bytes,
    listener: socket.socket,
    accepted: dict[int, tuple[ssl.SSLSocket, set[int]]],
) -> None:
    """Accepts one connection of every other member with the steps that it can begin with, and refuses
    strangers. A member that connects again, because another one was lost meanwhile, has ended its first."""
    known = {peer.known_as: i for i, peer in enumerate(crew.peers) if i != crew.member}
    context = _context(ssl.PROTOCOL_TLS_SERVER, crew, [peer.certificate for peer in crew.peers])
    context.num_tickets = 0  # session tickets would never be read: each connection carries one direction
    while len(accepted) < len(known):
        try:
            raw, _ = listener.accept()
        except OSError:  # the listener was closed
            return
        with suppress(OSError, EOFError):
            raw.settimeout(_HANDSHAKE_S)
            line = context.wrap_socket(raw, server_side=True)
            member = known.get(line.getpeercert(binary_form=True) or b"")
            theirs, *steps = _HELLO.unpack(read_exactly(line, _HELLO.size))
            if member is None or theirs != run:
                log.warning("a connection of %s was refused: another run", member)
                line.close()
                continue
            line.settimeout(None)
            if member in accepted:
                accepted[member][0].close()
            accepted[member] = line, set(steps)


def _dialled(crew: Crew, hello: bytes, member: int, deadline: float) -> ssl.SSLSocket:
    peer = crew.peers[member]
    context = _context(ssl.PROTOCOL_TLS_CLIENT, crew, [peer.certificate])
    while True:
        try:
            raw = socket.create_connection((peer.host, peer.port), timeout=crew.patience_s)
            raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            line = context.wrap_socket(raw)
            line.sendall(hello)
            return line
        except ssl.SSLCertVerificationError as error:
            raise Blame(member, f"is not who the crew file says ({error})") from error
        except OSError as error:
            if time.monotonic() > deadline:
                raise Blame(member, f"cannot be reached at {peer.host}:{peer.port} ({error})") from error
            time.sleep(_CONNECT_S)


def _context(protocol: int, crew: Crew, trusted: Sequence[str]) -> ssl.SSLContext:
    """Context of TLS 1.3 with this member's key, which trusts these certificates alone."""
    context = ssl.SSLContext(protocol)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False  # the pinned certificate identifies the member
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_cert_chain(crew.key)
    context.load_verify_locations(cadata="".join(trusted))
    return context
