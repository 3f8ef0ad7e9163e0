"""Accuses the member of a crew that has lied, and defends this member's own steps (docs/protocol.md, 8.6).

Contract: the leader accuses only where its own replay wins the game, once for each convicted claim. Every
member answers in games of its own until they end, from what it has kept. What is accused and decided is an
event; a person is told while this account is accused, and of what it loses, once for each (a record on disk
keeps what was told). Not guaranteed: that a liar is found (``solver.crew_dispute``) in time; then the leader
bears the loss.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from assay.compute.orders import Priority
from assay.disk import record
from assay.dispute import player
from assay.node import upkeep
from assay.node.deadlines import Deadline, Duties, Sleep
from assay.node.intents import intent, subject
from assay.node.role import half_time
from assay.protocol.crew import Said, Transcript
from assay.protocol.dispute import Move, Timeout
from assay.protocol.game_state import Game, GameView
from assay.protocol.types import Address, Claim, ClaimId, ClaimView, JobId, Kind, Phase, Seconds, TxResult
from assay.protocol.words import show_amount
from assay.solver import crew_evidence
from assay.solver.crew_evidence import said_at, transcript_root
from assay.solver.crew_orders import LEADER, CrewDispute, CrewMove

if TYPE_CHECKING:
    from assay.solver.crew_node import CrewService


_KIND = "assay/crew-accusations/1"


class Court(Protocol):
    """Games about the steps of the crew's members, for one member's account."""

    @property
    def me(self) -> Address: ...

    def games(self) -> Sequence[GameView]: ...
    def accused(self, claim_id: ClaimId, member: int) -> bool: ...
    def accuse(
        self, intent: str, claim: Claim, transcript: Transcript, signature: bytes, said: Said
    ) -> int: ...
    def move(self, intent: str, game_id: int, game: Game, move: Move) -> TxResult: ...


@dataclass(frozen=True)
class Answer:
    """Make this account's move in a game about a member's step, or take the win."""

    job_id: JobId
    game_id: int
    reason: str


@dataclass(frozen=True)
class Accuse:
    """Find who has lied in a convicted claim of the crew, and accuse it."""

    job_id: JobId
    claim_id: ClaimId
    reason: str


class Accusations:
    """One member's part. `received`: folder of what it has received; `told`: file of what was told."""

    def __init__(self, node: CrewService, court: Court, received: Path, told: Path) -> None:
        self._node, self._court, self._received, self._file = node, court, received, told
        body = record.read_or_quarantine(told, _KIND, instead="verdicts and losses are told again") or {}
        self._judged = set[int](body.get("judged", ()))
        """Decided games that were told."""
        self._settled = {ClaimId(bytes.fromhex(each)) for each in body.get("settled", ())}
        """Convicted claims for which nothing is left to be done."""
        self.open: dict[int, GameView] = {}
        """Undecided games at the last look."""

    def due(self) -> Iterator[Answer | Accuse | upkeep.Tick]:
        """What is to be done now."""
        yield from self._answers()
        if self._node.leads:
            yield from self._accusations()

    def _answers(self) -> Iterator[Answer | upkeep.Tick]:
        node, me, job_id = self._node, self._court.me, self._node.invitation.job_id
        clock, now, games = node.market.clock(), node.clock.now(), self._court.games()
        self._tell(games)
        for view in self.open.values():
            game = view.game
            if me not in (game.challenger, game.defender):
                continue
            late, ours = clock.passed(game.deadline), game.mover == me
            tick = upkeep.tick_for(clock, now, job_id, game.deadline, f"accusation {view.game_id}")
            if tick is not None and not ours:
                yield tick
            if late != ours:
                left = f"our move, {game.deadline - now} s left" if ours else "the other side is late"
                yield Answer(job_id, view.game_id, f"accusation {view.game_id}: {left}")

    def duties(self) -> Duties:
        """This account's moves that are due in accusations, and whether one may come at any time."""
        node, me = self._node, self._court.me
        terms, running = node.market.job(node.invitation.job_id).terms, []
        for view in self.open.values():
            game, ends = view.game, int(view.game.deadline)
            loses = show_amount(terms.solver_stake if game.defender == me else terms.challenge_bond)
            if game.mover == me:
                what, of = f"a move in accusation {view.game_id}", ("accusation", view.game_id)
                running.append(Deadline(what, f"{loses} are lost", ends - int(game.move_time), ends, of))
        if not self.open and all(over for _, _, over in self._fallen()):
            return Duties(running)
        coming = Sleep(int(terms.move_time), "a member may be accused, or make its move, at any time")
        return Duties(running, [coming])

    def _fallen(self) -> Iterator[tuple[ClaimView, int, bool]]:
        """Convicted tasks of the crew, with the time until which members can be accused, and whether it has
        passed by the market's clock."""
        node, clock = self._node, self._node.market.clock()
        window = node.market.job(node.invitation.job_id).terms.challenge_window
        for view in node.market.claims(node.invitation.job_id):
            fallen = view.claim.claimant == node.market.me and view.status.phase == Phase.CONVICTED
            if fallen and view.claim.kind == Kind.TASK:
                end = view.status.since + window
                yield view, end, clock.passed(end)

    def _accusations(self) -> Iterator[Accuse]:
        node, job_id = self._node, self._node.invitation.job_id
        for view, end, over in self._fallen():
            if view.claim_id in self._settled:
                continue
            left = max(end - node.clock.now(), 0)
            reason = f"claim {view.claim_id.hex()[:16]} was convicted: who lied? {left} s left"
            action = Accuse(job_id, view.claim_id, reason)
            if not over:
                yield action
            elif not node.actions.is_running(subject(action)):
                self._miss(view.claim_id)

    def _miss(self, claim_id: ClaimId) -> None:
        """Ends a claim of which the time to accuse is over."""
        window = self._node.market.job(self._node.invitation.job_id).terms.challenge_window
        members = range(len(self._node.invitation.members))
        if any(self._court.accused(claim_id, member) for member in members):
            self._settle(claim_id)
        else:
            self._bear(claim_id, f"the job's challengeWindow of {window} s is over")

    def _tell(self, games: Sequence[GameView]) -> None:
        """Reports new accusations and verdicts, and tells a person what concerns this account."""
        report, me = self._node.report, self._court.me
        asked = dict(report.status.questions)
        for view in games:
            name, known = f"accusation {view.game_id}", view.game_id in self.open
            fields = {"game": view.game_id, "member": view.game.segment, "step": view.game.step}
            mine = view.game.defender == me
            if not view.decided and not known:
                report.emit("accusation", **fields, mine=mine)
            if view.decided and view.game_id not in self._judged:
                report.emit("judged", **fields, guilty=view.challenger_won, why=view.reason)
                asked.pop(name, None)
                if view.challenger_won == mine and me in (view.game.challenger, view.game.defender):
                    report.lose(f"{name} of step {view.game.step} was lost ({view.reason})")
            if mine and not view.decided:
                charge = show_amount(self._node.market.job(view.game.accused.job_id).terms.solver_stake)
                asked[name] = (
                    f"this account is accused of a false step {view.game.step} of its stage, and is charged"
                    f" {charge} of its stake unless its node answers every move in time: leave it running"
                )
        self.open = {view.game_id: view for view in games if not view.decided}
        judged = {view.game_id for view in games if view.decided}
        if judged != self._judged:
            self._judged = judged
            self._save()
        if asked != report.status.questions:
            report.note(questions=asked)

    async def accuse(self, action: Accuse) -> None:
        """Accuses the member whose own stage refutes what it has signed, if this node's replay finds it."""
        node = self._node
        view = node.market.claim(action.claim_id)
        claim, spec = view.claim, node.spec(view.claim.job_id)
        place = claim.job_id, claim.round, claim.shard
        found = crew_evidence.load(self._received, place, claim.attempt, claim.input_root)
        if found is None:
            return self._bear(action.claim_id, "what the members have signed is gone")
        order = CrewDispute(spec, subject(action), node.invitation, claim, found.said, self._received)
        half = Seconds(view.status.since + spec.terms.challenge_window // 2)
        lie = await node.order(order, Priority.GAME, half)
        if lie is None:
            return self._bear(action.claim_id, "each member's own stage gives what it has signed")
        if lie.member == LEADER:
            return self._bear(action.claim_id, "the false step is this account's own")
        segment, at = divmod(lie.step, len(found.said[0][0]))
        roots = [transcript_root(said[lie.member]) for said in found.said]
        transcript = node.transcripts(place, lie.member, roots, claim.attempt)[segment]
        if not self._court.accused(action.claim_id, lie.member):
            await node.actions.send(
                partial(
                    self._court.accuse,
                    intent("accuse", action.claim_id, lie.member),
                    claim,
                    transcript,
                    found.signatures[lie.member][segment],
                    said_at(found.said[segment][lie.member], at),
                )
            )
            fields = {"claim": action.claim_id.hex(), "member": lie.member, "step": transcript.first + at}
            node.report.emit("accused", **fields)
        self._settle(action.claim_id)

    def _bear(self, claim_id: ClaimId, why: str) -> None:
        """Reports that the leader bears the loss of a claim."""
        self._node.report.lose(f"no member is accused for claim 0x{claim_id.hex()[:16]}: {why}")
        self._settle(claim_id)

    def _settle(self, claim_id: ClaimId) -> None:
        self._settled.add(claim_id)
        self._save()

    def _save(self) -> None:
        settled = sorted(claim_id.hex() for claim_id in self._settled)
        record.write(self._file, _KIND, {"judged": sorted(self._judged), "settled": settled})

    async def answer(self, action: Answer) -> None:
        """Makes this account's move in a game about a step, or takes the win."""
        node = self._node
        view = self.open[action.game_id]
        move: Move | None = Timeout()
        if not node.market.clock().passed(view.game.deadline):
            claim = node.market.claim(view.game.claim_id).claim
            order = CrewMove(
                node.spec(action.job_id),
                subject(action),
                node.invitation,
                self._court.me,
                view,
                claim,
                self._received,
            )
            move = await node.order(order, Priority.GAME, half_time(view.game))
        node.report.complain(f"accusation {action.game_id}: there is nothing sound to say", move is None)
        if move is not None:
            await node.actions.send(partial(player.send, self._court, view, move))
            node.report.count("moves")
            node.report.emit("moved", game=action.game_id, move=type(move).__name__, accusation=True)
