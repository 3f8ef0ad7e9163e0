"""States are published, fetched and refused slot by slot."""

from __future__ import annotations

import logging
from dataclasses import replace
from hashlib import sha256
from typing import Any, cast

import pytest
import torch

from assay.node.artifacts import load_job
from assay.node.audit import audit_claim, audit_input, replayed
from assay.node.checkpoints import Checkpoint, publish_checkpoints, read_checkpoints
from assay.node.findings import sampled
from assay.node.manifests import BadManifest
from assay.node.slot_index import ENTRY_BYTES, MAX_INDEX_BYTES, SlotFile, decode_index, encode_index
from assay.node.slots import SlotReader, TensorCache, read_slot, store_state
from assay.node.states import Known, StateProvider, open_state_provider
from assay.node.work import Work
from assay.numerics.encoding import EncodingError, to_bytes
from assay.numerics.packed import packed
from assay.program.isa import DType, Node, Op
from assay.program.state import state_root
from assay.protocol.canonical_json import canonical_json
from assay.protocol.errors import BadCid, BlockTooLarge, Retry
from assay.protocol.sampling import verifier_key
from assay.protocol.types import ClaimView, JobId, Kind, Phase
from tests.fakes.blocks import FakeBlocks, Network, cid_of
from tests.fakes.jobs import RESOURCE_LIMITS, WIDTH
from tests.fakes.market_day import MarketDay

PARAMS, STATE = 4 * WIDTH, 8 * WIDTH + 4
"""Bytes of the parameters and of an inner state of ``tests.fakes.jobs``."""


TYPES = (DType.I32, DType.F32, DType.I32, DType.I32)


class Counting(FakeBlocks):
    """A node's blocks, which count each fetched file once."""

    def __init__(self, network: Network) -> None:
        super().__init__(network)
        self.fetched: dict[str, int] = {}

    def read_file(self, cid: str, max_bytes: int) -> bytes:
        data = super().read_file(cid, max_bytes)
        if cid not in self.own:
            self.own.add(cid)
            self.fetched[cid] = len(data)
        return data

    def slots(self) -> int:
        """Bytes of slots that were fetched since the last call: all files but indices."""
        fetched, self.fetched = self.fetched, {}
        return sum(size for size in fetched.values() if size % ENTRY_BYTES)


def settled(day: MarketDay, **changes: Any) -> JobId:
    """A job that honest people have carried out."""
    job_id = day.post(rounds=2, shards=2, **changes)
    day.solvers()
    day.verifiers()
    assert day.run(day.closed(job_id))
    assert set(day.phases(job_id)) == {Phase.SETTLED}
    return job_id


def newcomer(day: MarketDay, job_id: JobId) -> tuple[Counting, StateProvider]:
    """A node that has the job's files and nothing else."""
    market, blocks = day.markets["client"], Counting(day.network)
    files = load_job(blocks, market.job(job_id).terms, RESOURCE_LIMITS)
    blocks.fetched.clear()
    return blocks, StateProvider(market, blocks, job_id, Work(market.job(job_id).terms, files))


def claim_at(day: MarketDay, job_id: JobId, kind: Kind, round_: int, shard: int) -> ClaimView:
    view = day.markets["client"].current(job_id, kind, round_, shard)
    assert view is not None
    return view


def test_a_slot_that_has_not_changed_is_the_same_file() -> None:
    blocks = FakeBlocks(Network())
    state = [torch.arange(8.0), torch.zeros(4), torch.ones(4)]
    before = store_state(blocks, state)
    held = set(blocks.own)
    after = store_state(blocks, [state[0], torch.full((4,), 2.0), state[2]])
    assert before.slots[0] == after.slots[0] and before.slots[2] == after.slots[2]
    assert len(set(blocks.own) - held) == 2, "one slot and the index are new"
    assert before.root == state_root(state)


def test_an_index_is_read_as_it_was_written_and_no_other() -> None:
    slots = [SlotFile(sha256(bytes([i])).digest(), cid_of(bytes([i]))) for i in range(3)]
    data = encode_index(slots)
    slots[1] = replace(slots[1], bits=12)
    data = encode_index(slots)
    assert decode_index(data, 3) == tuple(slots) and len(data) == 3 * 69
    for wrong in (data[:-1], data + b"\0", data[:33] + b"\2" + data[34:], data[:32] + b"\x11" + data[33:]):
        with pytest.raises(ValueError, match="slot"):
            decode_index(wrong, 3)
    with pytest.raises(BadCid):
        encode_index([replace(slots[0], cid=slots[0].cid.upper())])


CODES = torch.arange(40_000, dtype=torch.int32).remainder(15) - 7
"""As a wire's 4 bits."""


def test_whole_numbers_are_stored_in_the_bits_that_they_need() -> None:
    blocks = FakeBlocks(Network())
    state = [
        CODES,
        torch.arange(9.0),
        torch.zeros(3_000, dtype=torch.int32),
        torch.tensor(5, dtype=torch.int32),
    ]
    stored = store_state(blocks, state)
    nodes = [
        Node(Op.STATE, d, tuple(x.shape), (), (i,)) for i, (d, x) in enumerate(zip(TYPES, state, strict=True))
    ]
    lengths = [len(blocks.read_file(slot.cid, 1 << 20)) for slot in stored.slots]
    assert lengths == [slot.file_bytes(n) for slot, n in zip(stored.slots, nodes, strict=True)]
    assert [slot.bits for slot in stored.slots] == [4, 0, 1, 0] and lengths == [20_004, 36, 379, 4]
    assert stored.root == state_root(state), "roots are over the numbers"
    reader = SlotReader(FakeBlocks(blocks.network), TensorCache(1 << 20))
    assert reader.missing_bytes(stored.slots, nodes) == sum(lengths)
    slots = reader.index(stored.cid, 4)
    assert slots == stored.slots
    found = reader.tensors(slots, nodes)
    assert all(x is not None and torch.equal(x, y) for x, y in zip(found, state, strict=True))


def test_attack_43_a_slots_file_of_another_form_is_refused() -> None:
    """Not packed, packed to more bits than needed, or packed without being whole numbers: a lenient reader
    would take each for the right tensor."""
    blocks = FakeBlocks(Network())
    node, other = (Node(Op.STATE, d, (40_000,), (), (0,)) for d in (DType.I32, DType.F32))
    (good,) = store_state(blocks, [CODES]).slots
    plain = blocks.add_file(bytes(to_bytes(CODES)))
    wide = packed(CODES, 4)[:4] + packed(CODES + 7, 5)[4:]
    wrong = [
        (replace(good, cid=plain, bits=0), node),
        (replace(good, bits=5, cid=blocks.add_file(wide)), node),
    ]
    wrong += [(good, other), (replace(good, bits=3), node), (replace(good, bits=0), node)]
    assert torch.equal(read_slot(blocks, good, node), CODES)
    for slot, as_node in wrong:
        with pytest.raises((EncodingError, BlockTooLarge)):
            read_slot(blocks, slot, as_node)
        assert SlotReader(blocks, TensorCache(1 << 20)).tensors([slot], [as_node]) == [None]


def test_a_hole_in_a_packed_file_is_led_to_the_bytes_of_the_slot() -> None:
    node = Node(Op.STATE, DType.I32, (40_000,), (), (0,))
    slot = SlotFile(bytes(32), "", 12)
    assert slot.file_bytes(node) == 60_004
    assert slot.bytes_of(range(60_004), node) == range(160_000)
    assert slot.bytes_of(range(7), node) == range(8), "the least number, and two codes"
    assert slot.bytes_of(range(4, 5), node) == range(4) and slot.bytes_of(range(5, 6), node) == range(8)
    assert slot.bytes_of(range(60_003, 60_004), node) == range(159_996, 160_000)
    assert replace(slot, bits=0).bytes_of(range(5, 6), node) == range(5, 6)
    for start in range(0, 60_000, 997):
        held = slot.bytes_of(range(start, start + 10), node)
        bits = range(max(start - 4, 0) * 8, max(start + 6, 0) * 8)
        assert held.start <= bits.start // 12 * 4 and held.stop >= min(-(-bits.stop // 12) * 4, 160_000)


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ({"schema": "assay/checkpoint/2", "states": [{"cid": "x", "root": "00"}]}, "'assay/checkpoint/2'.*1"),
        ({"schema": "assay/checkpoint/1", "states": [None, None]}, "last state"),
        ({"schema": "assay/checkpoint/1", "states": ["x"]}, "does not list 2"),
        ({"schema": "assay/checkpoint/1", "states": [{"cid": "x"}, "x"]}, "neither"),
        ({"schema": "assay/checkpoint/1", "states": ["x", "x"], "more": 1}, "fields"),
    ],
)
def test_a_manifest_of_another_version_or_form_is_refused_and_says_why(body: Any, why: str) -> None:
    blocks = FakeBlocks(Network())
    data = canonical_json(body)
    blocks.put(data)
    with pytest.raises(BadManifest, match=why):
        read_checkpoints(blocks, sha256(data).digest(), [bytes(32)] * 2)


def test_a_manifest_tells_which_states_are_published() -> None:
    blocks = FakeBlocks(Network())
    given = [Checkpoint("", bytes(32)), Checkpoint("x", b"1" * 32)]
    digest = publish_checkpoints(blocks, given)
    assert read_checkpoints(blocks, digest, [c.root for c in given]) == tuple(given)


def test_a_reader_fetches_the_slots_that_it_uses_and_no_other(day: MarketDay) -> None:
    job_id = settled(day)
    blocks, provider = newcomer(day, job_id)
    last = claim_at(day, job_id, Kind.OUTER, 1, 0)
    assert isinstance(provider.some(last, 1, [0]), list)
    assert blocks.slots() == PARAMS, "a fetched model is its parameters"

    blocks, provider = newcomer(day, job_id)
    task = claim_at(day, job_id, Kind.TASK, 1, 0)
    assert audit_input(provider, task) is None and blocks.slots() == 0, "roots suffice for an input"
    assert isinstance(provider.leaf(task, 2), Known)
    assert blocks.slots() == STATE, "a sampled segment is one state"

    blocks, provider = newcomer(day, job_id)
    assert state_root(provider.input_state(Kind.TASK, 1, 0)) == task.claim.input_root
    assert blocks.slots() == STATE, "the base's parameters, and the rest of the task before"


def test_the_outer_step_is_computed_where_that_takes_no_more_bytes(day: MarketDay) -> None:
    job_id = settled(day)
    blocks, provider = newcomer(day, job_id)
    for shard in range(2):  # a solver that has the round's tasks
        assert isinstance(provider.leaf(claim_at(day, job_id, Kind.TASK, 0, shard), 4), Known)
    blocks.slots()
    outer = claim_at(day, job_id, Kind.OUTER, 0, 0)
    provider.input_state(Kind.TASK, 1, 0)
    assert blocks.slots() == 0, "has the state after it too"
    assert isinstance(provider.leaf(outer, 1), Known) and blocks.slots() == 0


def test_who_replays_everything_fetches_no_state_at_all(day: MarketDay) -> None:
    job_id = settled(day)
    blocks, provider = newcomer(day, job_id)
    for round_ in range(2):
        for kind, shard in ((Kind.TASK, 0), (Kind.TASK, 1), (Kind.OUTER, 0)):
            assert audit_claim(provider, claim_at(day, job_id, kind, round_, shard)) is None
    assert blocks.slots() == 0


def test_a_drawn_verifier_fetches_one_state(day: MarketDay) -> None:
    job_id = settled(day)
    blocks, provider = newcomer(day, job_id)
    view = claim_at(day, job_id, Kind.TASK, 1, 1)
    verifier = view.votes[0].verifier
    (segment,) = sampled(provider.work.terms, view, verifier)
    assert audit_input(provider, view) is None
    trace = replayed(provider, view, segment, verifier_key(verifier, view.status.seed))
    assert view.traces[verifier] == (trace,)
    assert blocks.slots() == STATE


def other_file(day: MarketDay, view: ClaimView, leaf: int, slot: int) -> str:
    """The fault: the index of a published state names the file of another tensor as one slot's. Its CID."""
    blocks = day.blocks()
    given = list(read_checkpoints(blocks, view.claim.manifest, view.roots))
    slots = list(decode_index(blocks.read_file(given[leaf].cid, MAX_INDEX_BYTES), 3))
    wrong = blocks.add_file(bytes(to_bytes(torch.full((WIDTH,), 9.0))))
    slots[slot] = SlotFile(slots[slot].root, wrong)
    given[leaf] = Checkpoint(blocks.add_file(encode_index(slots)), given[leaf].root)
    data = day.network.blocks[_manifest_cid(view)]
    digest = publish_checkpoints(blocks, given)
    day.network.blocks[_manifest_cid(view)] = day.network.blocks[_raw(digest)]
    assert day.network.blocks[_manifest_cid(view)] != data
    return wrong


def _raw(digest: bytes) -> str:
    from assay.node.manifests import raw_cid

    return raw_cid(digest)


def _manifest_cid(view: ClaimView) -> str:
    return _raw(view.claim.manifest)


def test_attack_33_a_wrong_slot_file_is_refused_and_named(
    day: MarketDay, caplog: pytest.LogCaptureFixture
) -> None:
    job_id = settled(day)
    view = claim_at(day, job_id, Kind.TASK, 1, 0)
    wrong = other_file(day, view, 2, 1)
    _, provider = newcomer(day, job_id)
    with caplog.at_level(logging.WARNING, logger="assay"):
        assert not provider.published(view)
    slots = provider.slots(view, 2)
    assert slots is not None
    told = [r.getMessage() for r in caplog.records if wrong in r.getMessage()]
    assert len(told) == 1 and slots[1].root.hex() in told[0] and "another tensor" in told[0]
    found = provider.leaf(view, 2)
    assert isinstance(found, Known) and state_root(found.state) == view.roots[2], "it is computed instead"


def test_attack_33_an_index_of_another_state_counts_as_withheld(day: MarketDay) -> None:
    job_id = settled(day)
    view = claim_at(day, job_id, Kind.TASK, 1, 0)
    blocks = day.blocks()
    given = list(read_checkpoints(blocks, view.claim.manifest, view.roots))
    given[2] = replace(given[2], cid=given[3].cid)
    day.network.blocks[_manifest_cid(view)] = day.network.blocks[_raw(publish_checkpoints(blocks, given))]
    market = day.markets["client"]
    provider = open_state_provider(market, day.blocks(), market.job(job_id), RESOURCE_LIMITS)
    assert provider.slots(view, 2) is None and not provider.published(view)
    assert cast(Known, provider.leaf(view, 2)).root == view.roots[2]


def test_states_that_a_claimant_keeps_to_itself_are_computed(day: MarketDay) -> None:
    job_id = settled(day)
    view = claim_at(day, job_id, Kind.TASK, 1, 0)
    blocks = day.blocks()
    given = [*read_checkpoints(blocks, view.claim.manifest, view.roots)]
    sparse = [c if i in (2, 4) else replace(c, cid="") for i, c in enumerate(given)]
    day.network.blocks[_manifest_cid(view)] = day.network.blocks[_raw(publish_checkpoints(blocks, sparse))]
    counting, provider = newcomer(day, job_id)
    assert provider.published(view), "what is not said to be published is not withheld"
    counting, provider = newcomer(day, job_id)
    assert isinstance(provider.leaf(view, 3), Known) and counting.slots() == STATE, "from the end before"


def test_a_first_state_that_is_gone_is_waited_for(day: MarketDay) -> None:
    """It was read once, when the job was checked, and is not kept in memory."""
    job_id = day.post()
    market = day.markets["client"]
    provider = open_state_provider(market, day.blocks(), market.job(job_id), RESOURCE_LIMITS)
    gone = {slot.cid for slot in provider.work.files.genesis}
    day.network.withheld |= gone
    for asked in (lambda: provider.genesis(Kind.TASK), lambda: provider.input_state(Kind.TASK, 0, 0)):
        with pytest.raises(Retry, match="first state is gone"):
            asked()
    root = provider.input_tree(Kind.TASK, 0, 0).root
    assert root == market.job(job_id).terms.genesis_root, "its roots are known"
    day.network.withheld -= gone
    assert state_root(provider.genesis(Kind.TASK)) == root
    assert state_root(provider.input_state(Kind.TASK, 0, 0)) == root
