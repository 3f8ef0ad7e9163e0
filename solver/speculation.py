"""Speculates on the next round: computes the outer steps as if all current tasks will be accepted.

Contract: speculative states stay in this process. Nothing is published, and no claim is committed whose input
root is not the one that the contracts ask for (rule 4.4). A task is identified by its input root, so work
from a correct speculation is the task itself; other work is discarded. Only published outputs of other
claimants are used: their tasks are not recomputed, and without a state there is no speculation
(SourceMissing). The states share the tensor cache of the true provider and are recomputed when evicted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256

from assay.node.artifacts import State
from assay.node.findings import SourceMissing
from assay.node.rounds import Claims, standing
from assay.node.slot_index import SlotFile, Slots
from assay.node.states import Broken, Hidden, Known, StateProvider
from assay.protocol import trees
from assay.protocol.loops import FromClaim, FromGenesis
from assay.protocol.types import (
    ZERO_ADDRESS,
    ZERO_DIGEST,
    Claim,
    ClaimId,
    ClaimStatus,
    ClaimView,
    Kind,
    Phase,
    Seconds,
    Wei,
)

_UNDECIDED = (Phase.COMMITTED, Phase.SEEDED)


def unmade(claim: Claim, roots: Sequence[bytes]) -> ClaimView:
    """Builds the view of a claim that is not committed yet, as if it were accepted."""
    place = f"expected/{claim.kind.name}/{claim.round}/{claim.shard}/".encode()
    claim_id = ClaimId(sha256(place + claim.job_id + claim.manifest + b"".join(roots)).digest())
    status = ClaimStatus(Phase.ACCEPTED, 0, Seconds(0), 0, 0, 0, 0, ZERO_DIGEST)
    return ClaimView(claim_id, claim, status, (), False, False, tuple(roots), {})


@dataclass(frozen=True)
class End:
    """The last state of an own task that is not stored yet, with its tree."""

    state: State
    tree: trees.Tree

    @property
    def slots(self) -> Slots:
        """Its slots, without files."""
        return tuple(SlotFile(root, "") for root in self.tree.levels[0])


class SpeculativeStates(StateProvider):
    """States of a job as if `round_` closed with its current tasks.

    They include the tasks in `ours`, by round and shard, that are being stored or committed. `ends`: last
    states that are being stored, by root.
    """

    def __init__(
        self,
        true: StateProvider,
        round_: int,
        ours: Mapping[tuple[int, int], ClaimView],
        ends: Mapping[bytes, End],
    ) -> None:
        super().__init__(true.market, true.blocks, true.job_id, true.work)
        self.share(true)
        self.round, self._ours, self._ends = round_, ours, ends
        self._outer: dict[int, ClaimView] = {}
        self._inputs: dict[int, bytes] = {}

    def current(self, kind: Kind, round_: int, shard: int) -> ClaimView | None:
        """As the market's claim, except that tasks of the round count as accepted and its outer claims are
        speculative."""
        if kind == Kind.OUTER and round_ == self.round:
            return self._outer.get(shard)
        view = super().current(kind, round_, shard)
        if (kind, round_) != (Kind.TASK, self.round):
            return view
        if view is None:
            return self._ours.get((round_, shard))
        passed = view.status.phase in _UNDECIDED
        return replace(view, status=replace(view.status, phase=Phase.ACCEPTED)) if passed else view

    def _output_slots(self, kind: Kind, unit: int, source: FromClaim | FromGenesis) -> Slots:
        if isinstance(source, FromClaim):
            view = self.current(*source.place)
            if view is not None and (end := self._ends.get(view.roots[-1])) is not None:
                return end.slots
        return super()._output_slots(kind, unit, source)

    def available_state(self, view: ClaimView, leaf: int) -> State | None:
        end = self._ends.get(view.roots[leaf])
        return super().available_state(view, leaf) if end is None else end.state

    def leaf(self, view: ClaimView, leaf: int) -> Known | Broken | Hidden:
        """As in the base class, except that tasks are not recomputed. Raises SourceMissing."""
        if view.claim.kind == Kind.TASK:
            state = self.available_state(view, leaf)
            if state is None:
                raise SourceMissing(
                    f"the output of shard {view.claim.shard} in round {view.claim.round} is not available"
                    " yet",
                    hint="wait: nothing is computed ahead of its votes",
                )
            return Known(state, view.roots[leaf])
        return super().leaf(view, leaf)

    def work_out(self) -> None:
        """Runs the round's outer steps. Raises SourceMissing."""
        for number in range(self.work.terms.slices):
            state = self.input_state(Kind.OUTER, self.round, number)
            roots = [self.keep(state, self.input_tree(Kind.OUTER, self.round, number))]
            for segment in range(self.work.segments(Kind.OUTER)):
                state = self.work.run(Kind.OUTER, self.round, number, segment, state)
                roots.append(self.keep(state))
            view = self._claim(number, tuple(roots))
            self._published.unpublished(view)
            self._outer[number] = view

    def outer_ends(self, number: int, input_root: bytes) -> list[State] | None:
        """States at the ends of a slice's segments, if its claim starts from this root and all are available;
        else None."""
        view = self._outer.get(number)
        if view is None or view.roots[0] != input_root:
            return None
        found = [self.leaf(view, end) for end in range(1, len(view.roots))]
        states = [known.state for known in found if isinstance(known, Known)]
        return states if len(states) == len(found) else None

    def input_root(self, shard: int) -> bytes:
        """Input root of a task of the next round. Raises SourceMissing."""
        if shard not in self._inputs:
            self._inputs[shard] = self.input_tree(Kind.TASK, self.round + 1, shard).root
        return self._inputs[shard]

    def _claim(self, number: int, roots: tuple[bytes, ...]) -> ClaimView:
        """Builds the speculative claim of a slice's outer step."""
        ends = roots[0], roots[-1]
        claim = Claim(
            self.job_id,
            Kind.OUTER,
            self.round,
            number,
            0,
            ZERO_ADDRESS,
            *ends,
            ZERO_DIGEST,
            ZERO_DIGEST,
            Wei(0),
            Seconds(0),
            0,
        )
        return unmade(claim, roots)


class Speculation:
    """The latest speculation on one job's rounds."""

    def __init__(self, true: StateProvider) -> None:
        self._true = true
        self._tasks: tuple[bytes, ...] = ()
        """Output roots of the tasks on which the speculation is based."""
        self._expected: SpeculativeStates | None = None
        self._ours: dict[tuple[int, int], ClaimView] = {}
        self._ends: dict[bytes, End] = {}

    def forget(self) -> None:
        """Discards the speculation."""
        self._expected = None
        self._ours.clear()
        self._ends.clear()

    def lend(self, claim: Claim, roots: Sequence[bytes], end: End) -> None:
        """Makes a task's last state available to speculation before it is stored and committed, until
        `take_back`."""
        self.made(claim, roots)
        self._true.unpublished(self._ours[claim.round, claim.shard])
        self._ends[end.tree.root] = end

    def take_back(self, root: bytes) -> None:
        """Withdraws a last state because it is stored, or will not be."""
        self._ends.pop(root, None)

    def made(self, claim: Claim, roots: Sequence[bytes]) -> None:
        """Adds an own task that is about to be committed; it counts until a claim stands at its place."""
        for place in [place for place in self._ours if place[0] != claim.round]:
            del self._ours[place]
        self._ours[claim.round, claim.shard] = unmade(claim, roots)

    def _of_ours(self, round_: int) -> dict[int, ClaimView]:
        return {shard: view for (made, shard), view in self._ours.items() if made == round_}

    def _committed(self, round_: int) -> tuple[bytes, ...]:
        """Output roots of a round's tasks, if every shard has one; else empty."""
        claims = Claims(self._true.market.claims(self._true.job_id))
        shards, ours = range(self._true.work.terms.shards), self._of_ours(round_)
        found = [standing(claims, Kind.TASK, round_, shard) or ours.get(shard) for shard in shards]
        there = tuple(view.roots[-1] for view in found if view is not None)
        return there if len(there) == len(shards) else ()

    def known(self, round_: int) -> SpeculativeStates | None:
        """The speculation on a round, if it was computed from the current tasks; else None."""
        expected = self._expected
        if expected is None or expected.round != round_:
            return None
        return expected if self._committed(round_) == self._tasks else None

    def expect(self, round_: int) -> SpeculativeStates:
        """Computes the speculation on a round. Raises SourceMissing."""
        if (known := self.known(round_)) is not None:
            return known
        found = self._committed(round_)
        expected = SpeculativeStates(self._true, round_, self._ours, self._ends)
        if not found:
            raise SourceMissing(
                f"not every task of round {round_} is committed, so its outer step cannot be computed ahead",
                hint="wait: the node tries again by itself",
            )
        expected.work_out()
        self._tasks, self._expected = found, expected
        return expected
