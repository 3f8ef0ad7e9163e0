"""Members that train together: the same roots as one process, and blame for a member that fails."""

from __future__ import annotations

import multiprocessing
import socket
import ssl
import threading
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from assay.app.crews import new_key
from assay.compute import streams
from assay.compute.inline import InlinePool
from assay.compute.member import Segment, TrainStage, _Done
from assay.compute.meter import Meter, packed_size
from assay.compute.peers import Blame, Crew
from assay.compute.streams import Frame, Outgoing, connect
from assay.numerics.encoding import from_bytes, to_bytes
from assay.program.execute import Executor, StepContext
from assay.program.isa import DType, Program
from assay.program.kernels import TORCH_DTYPES
from assay.program.record_excerpt import steps_of
from assay.program.stages import boundaries, cut
from assay.program.state import begin_roots, state_root
from assay.protocol import trees
from assay.protocol.errors import Ask
from assay.training import models
from assay.training.optimisers import AdamW
from tests.fakes.crews import crew_of
from tests.unit.training.steps import SEED, built, corpus

CONTEXT, STEPS, SEGMENT = 16, 4, 2
Job = tuple[Program, list[Tensor], StepContext]


@pytest.fixture(scope="module")
def job() -> Job:
    model = models.build(models.GptConfig(n_layer=3, n_head=2, d_model=32, context=CONTEXT), 1)
    made = built(model, AdamW(0.01), corpus(CONTEXT))
    return made.inner, list(made.genesis), StepContext(made.records, SEED, 0, 0)


@pytest.fixture(scope="module")
def passes() -> Job:
    """A step of three passes."""
    model = models.build(models.GptConfig(n_layer=3, n_head=2, d_model=32, context=CONTEXT), 1)
    made = built(model, AdamW(0.01), corpus(CONTEXT), accumulate=3)
    return made.inner, list(made.genesis), StepContext(made.records, SEED, 0, 0)


def orders(job: Job, folder: Path, members: int = 3, patience_s: float = 20.0) -> list[TrainStage]:
    program, state, context = job
    plan, steps, roots = cut(program, members), steps_of(program, context, STEPS), begin_roots(state)()
    return [
        TrainStage(plan, crew, [state[slot] for slot in stage.slots], roots, steps, SEGMENT)
        for crew, stage in zip(crew_of(folder, members, patience_s), plan.stages, strict=True)
    ]


def ran(order: TrainStage) -> Segment | Exception:
    try:
        return InlinePool().submit(order).result()
    except (Blame, Ask) as error:
        return error


def expected(job: Job) -> list[bytes]:
    program, state, context = job
    executor, roots = Executor(program), []
    for step in range(STEPS):
        state = executor.step(state, replace(context, step=step))
        roots.append(state_root(state))
    return roots[SEGMENT - 1 :: SEGMENT]


def all_at_once(each: list[TrainStage]) -> list[Segment | Exception]:
    with ThreadPoolExecutor(len(each)) as threads:
        return list(threads.map(ran, each))


@pytest.mark.parametrize("members", [2, 3])
def test_members_get_the_roots_of_one_process(job: Job, tmp_path: Path, members: int) -> None:
    for segment in all_at_once(orders(job, tmp_path, members)):
        assert isinstance(segment, Segment) and list(segment.roots) == expected(job)


def test_overlapping_passes_get_the_roots_of_one_process(
    passes: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sockets that hold less than a frame, so that each send waits until its receiver reads."""
    real = ssl.SSLContext.wrap_socket

    def tight(self: ssl.SSLContext, raw: socket.socket, **options: Any) -> ssl.SSLSocket:
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        return real(self, raw, **options)

    monkeypatch.setattr(ssl.SSLContext, "wrap_socket", tight)
    for segment in all_at_once(orders(passes, tmp_path, members=2)):
        assert isinstance(segment, Segment) and list(segment.roots) == expected(passes)


@pytest.mark.long
def test_processes_get_the_roots_of_one_process(job: Job, tmp_path: Path) -> None:
    with ProcessPoolExecutor(3, multiprocessing.get_context("spawn")) as processes:
        for segment in processes.map(ran, orders(job, tmp_path)):
            assert isinstance(segment, Segment) and list(segment.roots) == expected(job)


def test_bytes_are_those_of_the_plan_and_headers(job: Job, tmp_path: Path) -> None:
    each = orders(job, tmp_path)
    plan = each[0].plan
    assert packed_size(3) == 80
    for member, segment in enumerate(all_at_once(each)):
        assert isinstance(segment, Segment)
        sent, _ = boundaries(plan)[member]
        frames = sum(len(plan.readers(member, node)) for node in plan.stages[member].sent)
        report = 17 + 32 * plan.stages[member].program.slots + packed_size(3)
        assert segment.sent == STEPS * (sent + 17 * frames + 2 * report)


def test_a_transcript_is_a_claim_on_the_stages_program(job: Job, tmp_path: Path) -> None:
    program, state, context = job
    each = orders(job, tmp_path)
    segments = all_at_once(each)
    plan, leaves = each[0].plan, list[list[bytes]]()
    sent = [[_zeros(program, node) for node in stage.sent] for stage in plan.stages]
    for step in range(STEPS):
        now, seen = replace(context, step=step), dict[int, Tensor]()
        Executor(program).step(state, now, observe=seen.__setitem__)
        leaves.append([])
        for member, stage in enumerate(plan.stages):
            own = [state[slot] for slot in stage.slots]
            before = [*own, *(seen[node] for node in stage.received), *sent[member]]
            after = Executor(stage.program).step(before, now)
            leaves[-1].append(trees.leaf(state_root(before) + state_root(after)))
            sent[member] = after[len(after) - len(stage.sent) :]
        state = Executor(program).step(state, now)
    for segment in segments:
        assert isinstance(segment, Segment)
        for end, told in enumerate(segment.transcripts):
            run = leaves[end * SEGMENT : (end + 1) * SEGMENT]
            assert told == tuple(trees.root([step[i] for step in run]) for i in range(3))


def _zeros(program: Program, node: int) -> Tensor:
    found = program.nodes[node]
    return from_bytes(bytes(found.bytes), TORCH_DTYPES[found.dtype], found.shape)


def test_whoever_says_another_thing_than_it_sent_is_blamed(
    job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    each = orders(job, tmp_path)
    plan = each[0].plan
    end, slots = len(plan.whole.nodes), plan.stages[1].program.slots
    size = 32 * slots + packed_size(3)
    last = 32 * (slots - 1)  # the root of the last that member 1 sends
    assert plan.stages[1].sent[-1] in plan.stages[0].received
    real = Outgoing.send

    def send(self: Outgoing, step: int, node: int, dtype: DType, x: Tensor) -> None:
        if node == end and self.member == 0 and len(x) == size and step == 1:
            x = x.clone()
            x[last] ^= 1
        real(self, step, node, dtype, x)

    monkeypatch.setattr(Outgoing, "send", send)
    outcome = all_at_once(each)[0]
    assert isinstance(outcome, Blame) and outcome.member in (1, 2)
    assert "report different roots of node" in outcome.message


def test_a_lie_between_two_others_is_seen_by_the_third(
    job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Member 1 sends member 2 another tensor than it reports, and tells member 2 alone the root of that."""
    each = orders(job, tmp_path)
    plan = each[0].plan
    end = len(plan.whole.nodes)
    (node, *_) = (n for n in plan.stages[1].sent if n in plan.stages[2].received)
    at = 32 * (len(plan.stages[1].slots) + len(plan.stages[1].received) + plan.stages[1].sent.index(node))
    size, real = 32 * plan.stages[1].program.slots + packed_size(3), Outgoing.send
    lies: dict[int, bytes] = {}

    def send(self: Outgoing, step: int, number: int, dtype: DType, x: Tensor) -> None:
        if self.member == 2 and step == 1 and number == node:
            x = x + 1
            lies[step] = trees.tensor_root(to_bytes(x))
        if self.member == 2 and step == 1 and number == end and len(x) == size and lies:
            x = x.clone()
            x[at : at + 32] = from_bytes(lies[step], torch.uint8, (32,))
        real(self, step, number, dtype, x)

    monkeypatch.setattr(Outgoing, "send", send)
    outcome = all_at_once(each)[0]
    assert lies and isinstance(outcome, Blame) and outcome.member in (1, 2)
    assert f"report different roots of node {node}" in outcome.message


def _lying(monkeypatch: pytest.MonkeyPatch, told: Callable[..., tuple[Any, ...]]) -> None:
    """Member 1 sends, in step 1, something else to member 2."""
    real = Outgoing.send

    def send(self: Outgoing, step: int, node: int, dtype: DType, x: Tensor) -> None:
        if step == 1 and self.member == 2 and x.dtype is torch.float32 and x.dim() > 1:
            step, node, dtype, x = told(step, node, dtype, x)
        real(self, step, node, dtype, x)

    monkeypatch.setattr(Outgoing, "send", send)


@pytest.mark.parametrize(
    ("told", "says"),
    [
        (lambda step, node, dtype, x: (step, node, dtype, x[:1]), "length"),
        (lambda step, node, dtype, x: (step, node, DType.I32, x), "dtype"),
        (lambda step, node, dtype, x: (step, node + 1, dtype, x), "node"),
        (lambda step, node, dtype, x: (step + 1, node, dtype, x), "step"),
        (lambda step, node, dtype, x: (step, node, dtype, torch.full_like(x, -1, dtype=torch.int32)), "NaN"),
    ],
    ids=["length", "dtype", "node", "step", "bytes"],
)
def test_a_wrong_frame_is_blamed_on_its_sender(
    job: Job,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    told: Callable[..., tuple[Any, ...]],
    says: str,
) -> None:
    _lying(monkeypatch, told)
    outcome = all_at_once(orders(job, tmp_path))[2]
    assert isinstance(outcome, Blame) and outcome.member == 1 and says in outcome.message
    assert outcome.message.endswith("; the run ends, and its result is not written")
    assert "blame of member 1" in caplog.text


def test_a_member_that_stops_is_blamed(job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = Outgoing.send

    def send(self: Outgoing, step: int, node: int, dtype: DType, x: Tensor) -> None:
        if step < 1 or self.member != 2:
            real(self, step, node, dtype, x)

    monkeypatch.setattr(Outgoing, "send", send)
    outcomes = all_at_once(orders(job, tmp_path, patience_s=2.0))
    assert all(isinstance(outcome, Blame) for outcome in outcomes)
    assert any("sent nothing for 2 s" in str(outcome) for outcome in outcomes), "whoever waits longest"


def test_a_member_that_never_comes_is_blamed(job: Job, tmp_path: Path) -> None:
    present = orders(job, tmp_path, patience_s=1.0)[:2]
    for outcome in all_at_once(present):
        assert isinstance(outcome, Blame) and outcome.member == 2 and "cannot be reached" in outcome.message


@pytest.mark.parametrize("other", ["state", "dataset"])
def test_another_run_is_refused(
    job: Job, tmp_path: Path, caplog: pytest.LogCaptureFixture, other: str
) -> None:
    each = orders(job, tmp_path, members=2, patience_s=1.0)
    own = each[1]
    state, dataset = replace(own, roots=[bytes(32), *own.roots[1:]]), replace(own, dataset=b"\1" * 32)
    each[1] = state if other == "state" else dataset
    assert all(isinstance(outcome, Blame) for outcome in all_at_once(each))
    assert "was refused: another run" in caplog.text


def test_a_repeated_step_is_no_progress() -> None:
    """A member that dies again and again at one step is not waited for without end."""
    done = _Done(0.0)
    done.reach(5)
    assert done.at > 0
    done.at = 0.0
    for step in (3, 4, 5):
        done.reach(step)
    assert done.at == 0.0
    done.reach(6)
    assert done.at > 0


def test_an_impostor_is_not_let_in(job: Job, tmp_path: Path) -> None:
    each = orders(job, tmp_path, members=2, patience_s=2.0)
    key = tmp_path / "impostor.pem"
    new_key(key)
    each[1] = replace(each[1], crew=replace(each[1].crew, key=str(key)))
    outcome = all_at_once(each)[0]
    assert isinstance(outcome, Blame) and outcome.member == 1 and "is not who" in outcome.message


def test_a_silent_stranger_holds_nobody_up(job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "_HANDSHAKE_S", 0.2)
    each = orders(job, tmp_path, members=2)
    silent: list[socket.socket] = []
    listening = socket.create_server

    def first_a_stranger(address: tuple[str, int], **options: Any) -> socket.socket:
        listener = listening(address, **options)
        silent.append(socket.create_connection(address))
        return listener

    monkeypatch.setattr(socket, "create_server", first_a_stranger)
    for segment in all_at_once(each):
        assert isinstance(segment, Segment) and list(segment.roots) == expected(job)
    assert len(silent) == 2
    for stranger in silent:
        stranger.close()


def test_whoever_sends_faster_waits(job: Job, tmp_path: Path) -> None:
    near, far = crew_of(tmp_path, 2)
    size = 1 << 20
    frames = [Frame(0, DType.U8, (size,), size)]
    with ThreadPoolExecutor(2) as threads:
        lines = list(
            threads.map(
                lambda crew: connect(crew, bytes(32), 0, [], lambda member: lambda step: frames, Meter(crew)),
                (near, far),
            )
        )
    sent: list[int] = []

    def flood() -> None:
        for step in range(64):
            lines[0].outgoing[1].send(step, 0, DType.U8, torch.zeros(size, dtype=torch.uint8))
            sent.append(step)

    sender = threading.Thread(target=flood, daemon=True)
    sender.start()
    incoming = lines[1].incoming[0]
    sender.join(1.0)
    assert sender.is_alive() and incoming.bytes <= 2 * (size + 17), "it reads one step ahead, and no more"
    for step in range(64):
        incoming.begin(step)
        assert len(incoming.take(step, 0)) == size
    sender.join(10.0)
    assert sent == list(range(64))
    for each in lines:
        each.close()


def test_a_member_that_names_other_steps_to_another_is_blamed_by_all(
    job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Member 1 tells member 0 that it can go on with step 2, and member 2 that it cannot."""
    crews = crew_of(tmp_path, 3, patience_s=5.0)
    dialled = streams._Meeting._dial

    def dial(self: streams._Meeting, member: int) -> None:
        said, self._steps = self._steps, (2, 0, 0) if (self._crew.member, member) == (1, 0) else self._steps
        try:
            dialled(self, member)
        finally:
            self._steps = said

    differ = streams._Meeting._differ

    def unmoved(self: streams._Meeting, member: int, sender: int) -> None:
        if self._crew.member == 1:
            self._close()
        else:
            differ(self, member, sender)

    monkeypatch.setattr(streams._Meeting, "_dial", dial)
    monkeypatch.setattr(streams._Meeting, "_differ", unmoved)

    def meet(crew: Crew) -> Exception | None:
        try:
            connect(
                crew,
                bytes(32),
                0,
                [2] if crew.member != 1 else [],
                lambda member: lambda step: [],
                Meter(crew),
            ).close()
        except Blame as blame:
            return blame
        return None

    with ThreadPoolExecutor(3) as threads:
        outcomes = list(threads.map(meet, crews))
    for outcome in (outcomes[0], outcomes[2]):
        assert isinstance(outcome, Blame) and outcome.member == 1 and "says other steps" in str(outcome)


def test_a_refused_certificate_is_told_at_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Member 0 has another certificate of member 1 in its crew file, and does not reach it itself."""
    crews = crew_of(tmp_path, 2, patience_s=60.0)
    new_key(tmp_path / "old.pem")
    peers = crews[0].peers
    old = replace(peers[1], certificate=(tmp_path / "old.crt").read_text())
    crews = [replace(crews[0], peers=(peers[0], old)), crews[1]]
    dial = streams._Meeting._dial

    def only_the_other(self: streams._Meeting, member: int) -> None:
        if self._crew.member == 1:
            dial(self, member)

    monkeypatch.setattr(streams._Meeting, "_dial", only_the_other)
    told = threading.Event()

    def wait(_: Meter) -> None:
        if told.is_set():
            raise Blame(1, "is not waited for")

    with ThreadPoolExecutor(2) as threads:
        meter = Meter(crews[0], tell=wait)
        other = threads.submit(connect, crews[0], bytes(32), 0, [], lambda member: lambda step: [], meter)
        try:
            with pytest.raises(Blame, match="member 0 refuses this member's certificate"):
                connect(crews[1], bytes(32), 0, [], lambda member: lambda step: [], Meter(crews[1]))
        finally:
            told.set()
        assert isinstance(other.exception(), Blame)
    assert "a connection from 127.0.0.1 was refused" in caplog.text
