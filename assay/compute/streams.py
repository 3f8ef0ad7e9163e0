"""Sends tensors between the members of a crew over mutually authenticated TLS.

Contract: a connection carries one direction between two members. Each side presents the certificate that the
crew file pins; any other is refused. Members begin with the latest step with which all can, and each compares
what all have heard of that. A frame is a header (step, node, dtype, length) and the tensor's canonical bytes.
The receiver knows the frames and their order; an unexpected, non-canonical or late frame raises `Blame` with
the member's number, and a connection that ended raises `Lost`. It reads at most one step ahead of its own
computation, so a faster sender blocks, once it has a few frames unsent.
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
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from torch import Tensor

from assay.compute.meter import Meter, Wait
from assay.compute.peers import Blame, Crew, Lost
from assay.numerics.encoding import EncodingError, from_bytes, to_bytes
from assay.program.isa import DType
from assay.program.kernels import TORCH_DTYPES
from assay.protocol.errors import Ask

log = logging.getLogger(__name__)
_HEADER = struct.Struct(">QIBI")
_HELLO = struct.Struct(">32s3Q")
Steps = tuple[int, ...]
_HANDSHAKE_S = 5.0
"""Timeout in seconds of a handshake."""
_GREETED = 64
"""Maximum number of handshakes under way; the oldest ends for another one."""
_AGAIN_S = 0.1
QUEUED = 4
"""Frames to one member that may be unsent while this member computes on."""
_CONNECT_S = 0.1
"""Seconds between attempts to reach a member."""
_STEPS = 3
"""Steps that a member names with which it can begin."""
_DIFFERS = 3
"""Times in a row that two members say different things of a third before it is blamed: once may be chance,
when it connects again meanwhile."""


class Frame(NamedTuple):
    """A tensor that one member sends to another in every step."""

    node: int
    dtype: DType
    shape: tuple[int, ...]
    length: int
    """Bytes."""
    alone: bool = False
    """Read once everything before it was taken, so that no two are in memory."""


Frames = Callable[[int], Sequence[Frame]]
"""Frames of a step, in order; none: the stream ends before that step."""


class Incoming:
    """Receives the frames of one member in a background thread."""

    def __init__(
        self, member: int, line: ssl.SSLSocket, frames: Frames, crew: Crew, first: int, meter: Meter
    ) -> None:
        self.member, self._line, self._crew, self._meter = member, line, crew, meter
        self._frames = frames
        self._arrived: dict[tuple[int, int], bytes] = {}
        self._change = threading.Condition()
        self._at = self._first = first
        self._fault: Blame | None = None
        self.bytes = 0
        threading.Thread(target=self._read, daemon=True).start()

    def begin(self, step: int) -> None:
        """Admits frames of the step after `step`, which this member computes now."""
        with self._change:
            self._at = step
            self._change.notify_all()

    def take(self, step: int, node: int) -> Tensor:
        """Waits for the output of a node at a step. Raises Blame."""
        frame = next(frame for frame in self._frames(step) if frame.node == node)
        wait = Wait("tensor", self.member, step, node)
        self._meter.wait(
            self._change,
            lambda: (step, node) in self._arrived or self._fault,
            wait,
            self._crew.patience_s,
        )
        with self._change:
            data = self._arrived.pop((step, node), None)
            self._change.notify_all()
            if data is None:
                raise self._fault or self._blame(f"sent nothing for {self._crew.patience_s:g} s", step, node)
        try:
            return from_bytes(data, TORCH_DTYPES[frame.dtype], frame.shape)
        except EncodingError as error:
            raise self._blame(f"sent bytes that are no tensor ({error})", step, node) from error

    def _blame(self, did: str, step: int, node: int, kind: type[Blame] = Blame) -> Blame:
        return kind(self.member, f"{did}, where node {node} of step {step} was due")

    def _is_due(self, step: int, frame: Frame) -> bool:
        if self._fault is not None:
            return True
        return step <= self._at + 1 and not (frame.alone and self._arrived)

    def _read(self) -> None:
        step = self._first
        while frames := self._frames(step):
            for frame in frames:
                with self._change:
                    self._change.wait_for(partial(self._is_due, step, frame))
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

    def __init__(self, member: int, line: ssl.SSLSocket, meter: Meter) -> None:
        self.member, self._line, self._meter = member, line, meter
        self._queue: deque[tuple[int, int, bytes, memoryview]] = deque()
        self._change = threading.Condition()
        self._fault: Lost | None = None
        self.bytes = 0
        threading.Thread(target=self._write, daemon=True).start()

    def send(self, step: int, node: int, dtype: DType, x: Tensor) -> None:
        """Queues a node's output; waits while `QUEUED` frames are unsent. Raises Lost if the connection is
        closed."""
        data = to_bytes(x)
        self._wait(lambda: len(self._queue) < QUEUED, step, node)
        with self._change:
            self._queue.append((step, node, _HEADER.pack(step, node, dtype, len(data)), data))
            self.bytes += _HEADER.size + len(data)
            self._change.notify_all()

    def flush(self) -> None:
        """Waits until everything is sent. Raises Lost if the connection is closed."""
        self._wait(lambda: not self._queue)

    def _wait(self, until: Callable[[], bool], step: int = 0, node: int = 0) -> None:
        wait = Wait("queue", self.member, step, node)
        self._meter.wait(self._change, lambda: until() or self._fault, wait)
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
    meter: Meter

    @property
    def sent(self) -> list[int]:
        """Bytes sent to each member."""
        lines, count = self.outgoing, len(self.outgoing) + 1
        return [lines[member].bytes if member in lines else 0 for member in range(count)]

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
    crew: Crew,
    run: bytes,
    start: int,
    saved: Sequence[int],
    frames: Callable[[int], Frames],
    meter: Meter,
) -> Lines:
    """Connects to all other members and accepts their connections, for steps from the latest on that all can
    begin with.

    `run`: digest of what members compute; `start`: its first step, with which anybody can begin; `saved`: at
    most two steps with which this member can also begin. `frames`: a member's frames. `meter`: told all waits
    for members. Raises Blame if a member does not connect in time, has another run, refuses this one's
    certificate, or says different steps to different members; Ask if the port is taken; what the meter's
    `tell` raises.
    """
    begun_s = time.monotonic()
    deadline = begun_s + crew.patience_s
    steps = tuple([*saved, start, start, start][:_STEPS])
    with _listening(crew) as listener, _Meeting(crew, run, steps) as meeting:
        accepting = threading.Thread(target=meeting.accept, args=(listener,), daemon=True)
        accepting.start()
        try:
            while (first := meeting.agreed(start)) is None:
                meter.waits(Wait("connection", meeting.awaited(), start), begun_s)
                if time.monotonic() > deadline:
                    raise meeting.missing()
                time.sleep(_CONNECT_S)
            dialled, accepted = meeting.taken()
        finally:
            with suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)  # wakes `accept`, which would hold the port
            accepting.join(1.0)
    outgoing = {member: Outgoing(member, line, meter) for member, line in dialled.items()}
    incoming = {
        member: Incoming(member, line, frames(member), crew, first, meter)
        for member, line in accepted.items()
    }
    return Lines(first, incoming, outgoing, meter)


@dataclass
class _Caller:
    """A connection of a member who says with which steps it can begin. `heard`: what it has sent since."""

    line: ssl.SSLSocket
    steps: Steps
    heard: bytearray


class _Meeting:
    """Connects the members, and lets them agree with which step they begin.

    Each tells each what it has heard of every member's steps. So all choose the same one, and a member that
    says different things to different members is found. A connection that ends meanwhile begins all of them
    anew: what was told on it may be outdated.
    """

    def __init__(self, crew: Crew, run: bytes, steps: Steps) -> None:
        self._crew, self._run, self._steps = crew, run, steps
        self._others = [i for i in range(len(crew.peers)) if i != crew.member]
        self._table = struct.Struct(f">{_STEPS * len(crew.peers)}Q")
        self._lock = threading.Lock()
        self._dialled: dict[int, ssl.SSLSocket] = {}
        self._accepted: dict[int, _Caller] = {}
        self._greeted: deque[ssl.SSLSocket] = deque()
        """Connections in their handshake, oldest first."""
        self._told = self._outdated = self._over = False
        self._differs: dict[int, tuple[int, str]] = {}
        """By member, how often another has heard other steps of it, and the last words; the latest last."""
        self._why: dict[int, str] = {}
        """Why a member is not reached."""
        self._hung_up: dict[int, float] = {}
        """When a member that was reached hung up."""
        self._refused = ""
        """The last connection that was refused."""

    def __enter__(self) -> _Meeting:
        return self

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._over = True
            self._close()

    def _close(self) -> None:
        for line in (*self._dialled.values(), *(caller.line for caller in self._accepted.values())):
            line.close()
        self._dialled, self._accepted, self._told, self._outdated = {}, {}, False, False

    def awaited(self) -> int:
        """A member that has not come yet."""
        with self._lock:
            there = self._dialled.keys() & self._accepted.keys()
            return next((member for member in self._others if member not in there), self._others[0])

    def missing(self) -> Blame:
        """Who has not come, or has kept the others from beginning."""
        if self._differs:
            member, (_, says) = list(self._differs.items())[-1]
            return Blame(member, says)
        waited = f"within {self._crew.patience_s:g} s"
        gone = [member for member in self._others if member not in self._dialled]
        if gone:  # whoever gave up a moment ago was missing somebody, too
            member = min(gone, key=lambda member: self._hung_up.get(member, 0.0))
            peer, why = self._crew.peers[member], self._why.get(member, "")
            return Blame(member, f"cannot be reached at {peer.host}:{peer.port} {waited} ({why})")
        for member in self._others:
            if member not in self._accepted:
                return Blame(member, f"did not connect {waited}{self._refused}")
        silent = [i for i, caller in self._accepted.items() if len(caller.heard) < self._table.size]
        return Blame((silent or self._others)[0], f"did not say {waited} with which step all begin")

    def taken(self) -> tuple[dict[int, ssl.SSLSocket], dict[int, ssl.SSLSocket]]:
        """The connections to and from the others, which are the caller's now."""
        with self._lock:
            dialled, accepted = self._dialled, {i: caller.line for i, caller in self._accepted.items()}
            self._dialled, self._accepted, self._over = {}, {}, True
        for line in accepted.values():
            line.settimeout(None)
        return dialled, accepted

    def agreed(self, start: int) -> int | None:
        """The latest step with which all begin; None until all are there and agree. Raises Blame."""
        with self._lock:
            there = len(self._dialled) == len(self._accepted) == len(self._others)
            if there and not self._outdated:
                try:
                    if (first := self._compared(start)) is not None:
                        return first  # even if another, who knew it before, has hung up since
                except (OSError, EOFError):
                    self._close()
        for member in self._others:
            self._dial(member)
        with self._lock:
            there = len(self._dialled) == len(self._accepted) == len(self._others)
            if self._outdated or (self._told and not there):
                self._close()
        return None

    def _compared(self, start: int) -> int | None:
        """Tells the others what was heard, and compares it with what they say. Raises Blame, OSError,
        EOFError."""
        every = {i: caller.steps for i, caller in self._accepted.items()} | {self._crew.member: self._steps}
        if not self._told:
            told = self._table.pack(*(step for member in sorted(every) for step in every[member]))
            for line in self._dialled.values():
                line.sendall(told)
            self._told = True
        for caller in self._accepted.values():
            _read_some(caller.line, caller.heard, self._table.size)
        if any(len(caller.heard) < self._table.size for caller in self._accepted.values()):
            return None
        for sender, caller in self._accepted.items():
            theirs = self._table.unpack(caller.heard)
            for member, steps in every.items():
                if theirs[_STEPS * member : _STEPS * (member + 1)] != steps:
                    self._differ(member, sender)
                    return None
        return max(set(self._steps).intersection(*({*steps, start} for steps in every.values())))

    def _differ(self, member: int, sender: int) -> None:
        """Begins anew, or blames a member of whose steps another has heard otherwise. Raises Blame."""
        me = self._crew.member
        who, says = member, f"says other steps with which it can begin to member {sender} than to member {me}"
        if member == me:
            who, says = sender, "says that this member named other steps than it did"
        elif member != sender:
            says += f", or member {sender} says so"
        count, _ = self._differs.pop(who, (0, ""))
        self._differs[who] = count + 1, says
        self._close()
        if count + 1 >= _DIFFERS:
            raise Blame(who, says)

    def _dial(self, member: int) -> None:
        """Connects to a member, unless that is done and it has not hung up. Raises Blame."""
        with self._lock:
            if member in self._dialled:
                if (ended := self._ended(member)) is None:
                    return
                self._why[member], self._hung_up[member] = ended, time.monotonic()
                self._dialled.pop(member).close()
        peer = self._crew.peers[member]
        context = _context(ssl.PROTOCOL_TLS_CLIENT, self._crew, [peer.certificate])
        try:
            raw = socket.create_connection((peer.host, peer.port), timeout=2 * _HANDSHAKE_S)
            raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            line = context.wrap_socket(raw)
            line.sendall(_HELLO.pack(self._run, *self._steps))
            line.settimeout(self._crew.patience_s)
        except ssl.SSLCertVerificationError as error:
            raise Blame(member, f"is not who the crew file says ({error})") from error
        except OSError as error:
            self._why[member] = str(error)
            return
        with self._lock:
            self._dialled[member] = line

    def _ended(self, member: int) -> str | None:
        """Why a member has ended a connection on which it sends nothing; None if it has not. Raises Blame if
        it refuses this member's certificate, which TLS 1.3 says only now."""
        try:
            _read_some(self._dialled[member], bytearray(), 1)
        except ssl.SSLError as error:
            if "CERT" in (reason := error.reason or "") or "UNKNOWN_CA" in reason:
                raise Blame(
                    member, f"refuses this member's certificate, which its crew file lacks ({error})"
                ) from error
            return str(error)
        except (OSError, EOFError):
            return "it hung up: it trains something else, or has ended"
        return None

    def accept(self, listener: socket.socket) -> None:
        """Accepts connections of members with the steps that they can begin with, and refuses strangers,
        until the listener is closed. A member that connects again has ended its first connection.

        Each has a thread, so that one that says nothing holds nobody up.
        """
        peers = self._crew.peers
        known = {peer.known_as: i for i, peer in enumerate(peers) if i != self._crew.member}
        context = _context(ssl.PROTOCOL_TLS_SERVER, self._crew, [peer.certificate for peer in peers])
        context.num_tickets = 0  # session tickets would never be read: each connection carries one direction
        while True:
            try:
                raw, address = listener.accept()
            except OSError:
                if listener.fileno() < 0:
                    return
                time.sleep(_AGAIN_S)
                continue
            raw.settimeout(_HANDSHAKE_S)
            try:
                line = context.wrap_socket(raw, server_side=True, do_handshake_on_connect=False)
            except OSError:  # it was reset
                raw.close()
                continue
            with self._lock:
                self._greeted.append(line)
                oldest = self._greeted.popleft() if len(self._greeted) > _GREETED else None
            if oldest is not None:
                with suppress(OSError):
                    socket.socket.shutdown(oldest, socket.SHUT_RDWR)  # its own thread closes it
            threading.Thread(target=self._greet, args=(line, address[0], known), daemon=True).start()

    def _greet(self, line: ssl.SSLSocket, address: str, known: Mapping[bytes, int]) -> None:
        """Admits or refuses a connection."""
        try:
            line.do_handshake()
            member = known.get(line.getpeercert(binary_form=True) or b"")
            theirs, *steps = _HELLO.unpack(read_exactly(line, _HELLO.size))
        except ssl.SSLCertVerificationError as error:
            self._refuse(line, f"a connection from {address} was refused: {error.verify_message}")
        except ssl.SSLError as error:
            self._refuse(line, f"a connection from {address} ended in its handshake: {error.reason}")
        except (OSError, EOFError):
            line.close()
        else:
            if member is None or theirs != self._run:
                self._refuse(line, f"a connection of member {member} was refused: another run")
            else:
                self._admit(member, _Caller(line, tuple(steps), bytearray()))
        finally:
            with self._lock, suppress(ValueError):
                self._greeted.remove(line)

    def _refuse(self, line: ssl.SSLSocket, why: str) -> None:
        if why not in self._refused:
            log.warning("%s", why)
        self._refused = f" ({why})"
        with suppress(OSError):  # what it has sent is read, or it would see a reset instead of the refusal
            line.settimeout(_HANDSHAKE_S)
            line.shutdown(socket.SHUT_WR)
            line.recv(_HELLO.size)
        line.close()

    def _admit(self, member: int, caller: _Caller) -> None:
        with self._lock:
            if self._over:
                caller.line.close()
                return
            if (before := self._accepted.pop(member, None)) is not None:
                before.line.close()
                self._outdated = self._told
            self._accepted[member] = caller


def _read_some(line: ssl.SSLSocket, into: bytearray, most: int) -> None:
    """Reads what there is, up to `most` bytes in all. Raises EOFError if the stream has ended, OSError."""
    before = line.gettimeout()
    line.settimeout(0.0)
    try:
        while len(into) < most:
            data = line.recv(most - len(into))
            if not data:
                raise EOFError("closed")
            into += data
    except (ssl.SSLWantReadError, BlockingIOError):
        pass
    finally:
        line.settimeout(before)


def _listening(crew: Crew) -> socket.socket:
    own = crew.peers[crew.member]
    try:
        return socket.create_server((own.host, own.port), backlog=_GREETED)
    except OSError as error:
        raise Ask(
            f"this member cannot listen at {own.host}:{own.port}, so nothing was computed ({error})",
            hint="end what listens there, or give the crew file another port",
            code="no-port",
        ) from error


def _context(protocol: int, crew: Crew, trusted: Sequence[str]) -> ssl.SSLContext:
    """Context of TLS 1.3 with this member's key, which trusts these certificates alone."""
    context = ssl.SSLContext(protocol)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False  # the pinned certificate identifies the member
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_cert_chain(crew.key)
    context.load_verify_locations(cadata="".join(trusted))
    return context
