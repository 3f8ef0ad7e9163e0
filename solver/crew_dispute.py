"""Finds which member of a crew has lied, and plays the games about members' steps (docs/protocol.md, 8.6).

Contract: both sides run the accused's stage again from what was kept of the task (`Received`): its state
before each segment and all that was sent. A leader has of every other member the state before the task, and
what was sent, checked against what each has reported. So of a false claim that all have signed it finds a
step that its member's own stage refutes, and wins that game; and a member whose step is right wins its game.
No more than one stage is in memory. A state that was computed is kept on disk, so that each game computes a
segment at most once.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from torch import Tensor

from assay.compute.orders import WorkerContext
from assay.disk import record
from assay.dispute.disputant import Disputant
from assay.dispute.replay import Replay
from assay.node.job_cache import OpenJob
from assay.node.job_programs import program_ref
from assay.numerics.encoding import from_bytes, to_bytes
from assay.program.execute import StepContext
from assay.program.isa import Program
from assay.program.kernels import FAST, REFERENCE, TORCH_DTYPES
from assay.program.stage_executor import StageExecutor
from assay.program.stages import Plan, cut
from assay.program.state import state_root
from assay.protocol.crew import Invitation
from assay.protocol.dispute import Move
from assay.protocol.errors import Ask, Retry
from assay.protocol.types import Kind
from assay.solver.crew_evidence import received_folder, received_name
from assay.solver.crew_orders import CrewDispute, CrewMove, Lie, TimeStages

log = logging.getLogger(__name__)
SIGNED = "signed"


class OtherStages(Ask):
    """The job's program is cut into other stages here than its crew has."""

    code = "other-stages"


def plan_of(invitation: Invitation, program: Program, context: WorkerContext, without: str) -> Plan:
    """The crew's cut, kept for its other orders. Raises OtherStages; `without`: its consequence."""
    plans: dict[bytes, Plan] = context.cache.setdefault("crew-plans", {})
    if invitation.plan not in plans:
        plan = cut(program, len(invitation.members))
        stages = [program_ref(stage.program) for stage in plan.stages]
        if plan.root != invitation.plan or stages != [member.stage for member in invitation.members]:
            raise OtherStages(
                "this version cuts the job's program into other stages than the crew has consented to, so"
                f" {without}",
                hint="run the version of this program with which the crew was formed",
            )
        plans[plan.root] = plan
    return plans[invitation.plan]


class Received:
    """What a member has received in each step of a task, on disk, with its own state before each segment:
    with these it can compute each of its steps again. The leader's has the others' states before the task.

    Once the member has signed the task nothing of it changes: a second run in which others send something
    else would take its defence of the first one from it.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def begin(self, member: int, step: int, slots: Sequence[Tensor], sent: Sequence[Tensor] = ()) -> None:
        """Saves a member's slots before a step, and what it has sent in the step before; nothing before the
        first."""
        if not self.signed:
            self.folder.mkdir(parents=True, exist_ok=True)
            self.keep(member, step, slots, sent)

    def keep(self, member: int, step: int, slots: Sequence[Tensor], sent: Sequence[Tensor]) -> None:
        """As `begin`, also once it is signed: of what was computed from this. Raises OSError."""
        _write(self.folder / f"state-{member}-{step}.safetensors", dict(enumerate([*slots, *sent])))

    @property
    def signed(self) -> bool:
        """True if the member has signed what it has computed from this."""
        return (self.folder / SIGNED).exists()

    def has(self, steps: Iterable[int]) -> bool:
        """True if something is kept of each of these steps."""
        return all(self._path(step).exists() for step in steps)

    def sync(self, steps: Iterable[int]) -> None:
        """Makes the states, and what was received in these steps, durable."""
        for path in (*self.folder.glob("state-*.safetensors"), *map(self._path, steps)):
            with path.open("rb") as file:
                os.fsync(file.fileno())
        record.sync_folder(self.folder)

    def sign(self) -> None:
        """Says durably that the member signs what it has computed from this. Every step is durable."""
        (self.folder / SIGNED).touch()
        record.sync_folder(self.folder)

    def save(self, step: int, tensors: dict[int, Tensor]) -> int | None:
        """Saves the tensors of a step by their nodes. Returns a node that was another tensor when the member
        signed; None if there is none."""
        if not self.signed:
            _write(self._path(step), tensors)
            return None
        before = self.load(step)
        return next((n for n, x in tensors.items() if to_bytes(before[n]) != to_bytes(x)), None)

    def load(self, step: int) -> dict[int, Tensor]:
        """The tensors of a step by their nodes. Raises Retry if they are not there."""
        return _read(self._path(step))

    def states(self, member: int, last: int) -> Iterator[tuple[int, list[Tensor]]]:
        """A member's states that are kept up to step `last`, by their steps, the latest first."""
        of = f"state-{member}-"
        steps = (int(path.stem.removeprefix(of)) for path in self.folder.glob(f"{of}*.safetensors"))
        for step in sorted((step for step in steps if step <= last), reverse=True):
            try:
                found = _read(self.folder / f"{of}{step}.safetensors")
            except Retry as error:
                log.warning("%s; an earlier state is used", error.message)
            else:
                yield step, [found[number] for number in range(len(found))]

    def _path(self, step: int) -> Path:
        return self.folder / f"{step}.safetensors"


def _write(path: Path, tensors: dict[int, Tensor]) -> None:
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    fresh, apart, storages = path.with_suffix(".new"), dict[str, Tensor](), set[int]()
    for number, x in tensors.items():
        x = x.cpu().contiguous()
        storage = x.untyped_storage().data_ptr()
        # equal slots may be one tensor, which safetensors refuses
        apart[str(number)] = x.clone() if storage in storages else x
        storages.add(storage)
    try:
        save_file(apart, fresh)
    except SafetensorError as error:  # of a full disk, say
        raise OSError(str(error)) from error
    os.replace(fresh, path)


def _read(path: Path) -> dict[int, Tensor]:
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        return {int(number): x for number, x in load_file(path).items()}
    except (OSError, SafetensorError) as error:
        raise Retry(
            f"what this member has kept of a task cannot be read ({error}), so it can neither defend its step"
            " nor accuse anybody",
            hint=f"bring {path.parent} back from a copy before the deadline",
        ) from error


class _Run:
    """A member's stage, run again from what was kept of a task."""

    def __init__(
        self,
        received: Received,
        plan: Plan,
        member: int,
        now: StepContext,
        begins: tuple[int, list[Tensor]],
        context: WorkerContext,
    ) -> None:
        """`begins`: a step, and what is kept of the state before it; `now`: of any step."""
        kernels = REFERENCE if context.config.executor == "reference" else FAST
        self.member, self._stage = member, plan.stages[member]
        self._executor = StageExecutor(self._stage, context.config.device, kernels)
        self._received, self._now, count = received, now, len(self._stage.slots)
        self.at, state = begins
        self._slots = state[:count]
        self._sent = state[count:] or [_zeros(plan.whole, node) for node in self._stage.sent]

    def before(self) -> list[Tensor]:
        """The stage's state before the next step (docs/protocol.md, 8.4). Raises Retry."""
        return self._state(self._received.load(self.at))

    def step(self) -> list[Tensor]:
        """Runs a step; returns the stage's state after it. Raises Retry."""
        there, out = self._received.load(self.at), dict[int, Tensor]()
        self._last = self.at, self._slots, self._sent
        now = replace(self._now, step=self.at)
        self._slots = self._executor.step(self._slots, now, there.__getitem__, out.__setitem__)
        self._sent = [out[node] for node in self._stage.sent]
        self.at += 1
        return self._state(there)

    def last(self) -> list[Tensor]:
        """The stage's state before the last step. Raises Retry."""
        at, slots, sent = self._last
        there = self._received.load(at)
        return [x.cpu() for x in (*slots, *(there[n] for n in self._stage.received), *sent)]

    def keep(self, before: bool = False) -> None:
        """Keeps the state, or that before the last step, so that another run begins there, if it can."""
        kept = self._last if before else (self.at, self._slots, self._sent)
        try:
            self._received.keep(self.member, *kept)
        except OSError as error:
            log.warning("a state of stage %d was not kept (%s): each move computes it", self.member, error)

    def _state(self, there: Mapping[int, Tensor]) -> list[Tensor]:
        return [x.cpu() for x in (*self._slots, *(there[n] for n in self._stage.received), *self._sent)]


def _zeros(program: Program, node: int) -> Tensor:
    found = program.nodes[node]
    return from_bytes(bytes(found.bytes), TORCH_DTYPES[found.dtype], found.shape)


def lie_in(
    received: Received,
    plan: Plan,
    steps: Sequence[Sequence[bytes]],
    now: StepContext,
    context: WorkerContext,
) -> Lie | None:
    """The first step of any member that its own stage refutes; None if each is right. `steps`: what each
    member says of each; `now`: of the first. One stage is in memory at a time. Raises Retry."""
    first: Lie | None = None
    for member in range(len(plan.stages)):
        run = _Run(received, plan, member, now, _kept(received, member, now.step), context)
        for number, told in enumerate(steps[: None if first is None else first.step]):
            if state_root(run.step()) != told[member][32:]:
                if state_root(run.last()) != told[member][:32]:
                    raise Retry(
                        f"what is kept of member {member} in {received.folder} is not what it has signed"
                        f" before step {number}: it may be damaged, so nobody is accused",
                        hint="bring the folder back from a copy before the job's challengeWindow is over",
                    )
                first = Lie(member, number)
                run.keep(before=True)  # the game begins there
                break
    return first


def rebuilt(
    received: Received, plan: Plan, member: int, now: StepContext, root: bytes, context: WorkerContext
) -> list[Tensor] | None:
    """A member's state before the step of `now`, if it has this root. It is kept. Raises Retry."""
    for begins in received.states(member, now.step):
        run = _Run(received, plan, member, now, begins, context)
        while run.at < now.step:
            run.step()
        if state_root(state := run.before()) == root:
            if begins[0] < now.step:
                run.keep()
            return state
    return None


def stage_times(order: TimeStages, job: OpenJob, context: WorkerContext) -> tuple[float, ...]:
    """Seconds that it takes to run the first step of each stage again. Raises Retry."""
    plan = plan_of(order.invitation, job.work.files.inner, context, "how long a replay takes is not known")
    place = order.job.job_id, order.round, order.shard
    received = Received(received_folder(order.received, place, order.attempt, order.input_root))
    first = job.work.first_step(Kind.TASK, order.round, 0, order.shard)
    now = StepContext(job.work.files.records, job.work.terms.seed, order.shard, first)
    return tuple(step_seconds(received, plan, member, now, context) for member in order.stages)


def step_seconds(
    received: Received, plan: Plan, member: int, now: StepContext, context: WorkerContext
) -> float:
    """Seconds that it takes to run a step of a member's stage again. Raises Retry."""
    run = _Run(received, plan, member, now, _kept(received, member, now.step), context)
    began_s = time.monotonic()
    state_root(run.step())
    return time.monotonic() - began_s


def _kept(received: Received, member: int, last: int) -> tuple[int, list[Tensor]]:
    found = next(received.states(member, last), None)
    if found is None:
        raise Retry(
            f"no state of member {member} is left in {received.folder}, so its stage cannot be run again",
            hint=f"bring {received.folder} back from a copy",
        )
    return found


def found_lie(order: CrewDispute, job: OpenJob, context: WorkerContext) -> Lie | None:
    """Runs each member's stage of a convicted task again, and finds who has lied in which step. Raises
    Retry."""
    without = "nobody is accused, and the leader bears the loss once the job's challengeWindow is over"
    plan, claim = plan_of(order.invitation, job.work.files.inner, context, without), order.claim
    steps = [list(each) for said in order.said for each in zip(*said, strict=True)]
    place = claim.job_id, claim.round, claim.shard
    received = Received(received_folder(order.received, place, claim.attempt, claim.input_root))
    first = job.work.first_step(Kind.TASK, claim.round, 0, claim.shard)
    now = StepContext(job.work.files.records, job.work.terms.seed, claim.shard, first)
    return lie_in(received, plan, steps, now, context)


def crew_move(order: CrewMove, job: OpenJob, context: WorkerContext) -> Move | None:
    """An account's move in a game about a member's step. Raises Retry if what was received is gone."""
    kept: dict[int, Disputant] = context.cache.setdefault("crew-games", {})
    if order.view.game_id not in kept:
        kept.clear()  # a replay holds a stage's tensors
        replay = _replay(order, job, context)
        kept[order.view.game_id] = Disputant(order.me, lambda game: replay)
    return kept[order.view.game_id].move(order.view)


def _replay(order: CrewMove, job: OpenJob, context: WorkerContext) -> Replay:
    """The disputed step, from the state that the accused has signed. Raises Retry."""
    without = f"accusation {order.view.game_id} is not played, and is lost at its deadline"
    plan = plan_of(order.invitation, job.work.files.inner, context, without)
    game, claim = order.view.game, order.claim
    now = StepContext(job.work.files.records, job.work.terms.seed, claim.shard, game.step)
    name = received_name(claim.round, claim.shard, claim.attempt)
    for received in map(Received, sorted(order.received.glob(f"{name}-*"))):
        if not received.signed:  # of a run that ended before
            continue
        try:
            state = rebuilt(received, plan, game.segment, now, game.in_root, context)
        except Retry as error:
            log.warning("%s", error.message)
            continue
        if state is not None:
            program = plan.stages[game.segment].program
            return Replay(program, state, now.dataset, now.seed, claim.shard, game.step)
    raise Retry(
        f"nothing that this member has kept of task {name} leads to the state that was signed before step"
        f" {game.step}, so it cannot play accusation {order.view.game_id}",
        hint=f"bring {order.received} back from a copy before the game's deadline",
    )
