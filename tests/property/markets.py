"""Terms for property tests."""

from __future__ import annotations

from hypothesis import strategies as st

from assay.protocol.types import Address, Kind, Link, Loop, Origin, ProgramRef, Seconds, Wei
from tests.fakes.shapes import one_loop_each
from tests.fakes.terms import some_terms

CLIENT = Address("0x" + "c" * 40)

TERMS = some_terms(
    one_loop_each(ProgramRef(b"\x01" * 32, 9, 3, 1), ProgramRef(b"\x02" * 32, 9, 4, 1), 2, 8, 2, samples=2),
    client=CLIENT,
    verifiers=3,
    vote_time=Seconds(300),
    challenge_window=Seconds(900),
    move_time=Seconds(100),
    price_period=Seconds(77),
    straggler_time=Seconds(1_201),
    state_bytes=1_000,
    step_bytes=1_000,
    step_operations=1_000,
    price_floor=Wei(100),
    verifier_fee=Wei(13),
    outer_fee=Wei(7),
)
"""Terms that break no rule."""

_COUNT = st.one_of(st.integers(0, 5), st.sampled_from([8, 16, 17, 64, 65, 2**32 - 1]))
_TIME = st.one_of(st.integers(0, 3), st.sampled_from([2**32 - 1, 2**32, 2**64 - 1]))
_WEI = st.one_of(st.integers(0, 3), st.sampled_from([1_000, 2**64]))
_SIZE = st.sampled_from([0, 2_000, 2_001, 2**64 - 1])
_SLOTS = st.sampled_from([0, 1, 3, 4, 4_096, 4_097, 2**32 - 1])
_LOOP = st.builds(
    Loop,
    root=st.just(b"\x01" * 32),
    nodes=st.sampled_from([0, 1, 9, 9, 9, 65_536, 65_537, 2**32 - 1]),
    steps=st.sampled_from([0, 1, 2, 8, 8, 2**32 - 1]),
    segment_steps=st.sampled_from([0, 1, 2, 2, 3, 65]),
    samples=st.sampled_from([0, 1, 1, 2, 5]),
    slow_from=st.sampled_from([0, 1, 2**32 - 1]),
    slow_by=st.sampled_from([1, 1, 1, 1, 2, 3, 0, 2**32 - 1]),
)
_LINK = st.builds(
    Link,
    origin=st.sampled_from(list(Origin)),
    source=st.sampled_from(list(Kind)),
    lag=st.sampled_from([0, 1, 1, 255]),
    count=st.sampled_from([0, 1, 1, 2, 2, 2**16 - 1]),
    times=st.sampled_from([0, 1, 1, 2, 3, 2**16 - 1]),
    first=st.sampled_from([0, 1, 3, 4, 2**16 - 1]),
    shift=st.sampled_from([0, 1, 2**16 - 1]),
    otherwise=st.sampled_from([0, 1, 3, 4, 2**16 - 1]),
    div=st.sampled_from([1, 1, 1, 1, 2, 0]),
    mod=st.sampled_from([1, 1, 1, 2, 3, 0, 2**16 - 1]),
    stride=st.sampled_from([0, 0, 1, 2, 2**16 - 1]),
)
_LOOPS = st.lists(_LOOP, max_size=9).map(tuple)
_LINKS = st.lists(_LINK, max_size=3).map(tuple)
CHANGES = {
    "slots": _SLOTS,
    "outer_slots": _SLOTS,
    "params": st.sampled_from([0, 1, 2, 4, 2**31]),
    "slices": st.sampled_from([0, 1, 2, 3, 1_024, 1_025, 2**32 - 1]),
    "loops": _LOOPS,
    "outer_loops": _LOOPS,
    "links": _LINKS,
    "outer_links": _LINKS,
    "manifest": st.sampled_from([bytes(32), b"\x06" * 32]),
    "shards": _COUNT,
    "min_shards": _COUNT,
    "rounds": _COUNT,
    "segments": _COUNT,
    "outer_segments": _COUNT,
    "samples": _COUNT,
    "verifiers": _COUNT,
    "seed_delay": _COUNT,
    "max_unsettled": _COUNT,
    "task_time": _TIME,
    "straggler_time": _TIME,
    "outer_time": _TIME,
    "vote_time": _TIME,
    "challenge_window": _TIME,
    "move_time": _TIME,
    "price_period": _TIME,
    "price_floor": _WEI,
    "price_cap": _WEI,
    "verifier_fee": _WEI,
    "class_id": st.just(bytes(32)),
    "verifier_stake": _WEI,
    "challenge_bond": _WEI,
    "miss_penalty": _WEI,
    "state_bytes": _SIZE,
    "step_bytes": _SIZE,
    "step_operations": _SIZE,
    "records": _COUNT,
    "record_size": _COUNT,
}
"""For each field that could break a rule: values on both sides of its bounds."""
