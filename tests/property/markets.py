"""Terms for property tests."""

from __future__ import annotations

from hypothesis import strategies as st

from assay.protocol.types import Address, ProgramRef, Seconds, Terms, Wei

CLIENT = Address("0x" + "c" * 40)

TERMS = Terms(
    client=CLIENT,
    inner=ProgramRef(b"\x01" * 32, 9, 3, 1),
    outer=ProgramRef(b"\x02" * 32, 9, 4, 1),
    dataset_root=b"\x03" * 32,
    genesis_root=b"\x04" * 32,
    outer_genesis_root=b"\x05" * 32,
    manifest=b"\x06" * 32,
    seed=b"\x07" * 32,
    class_id=bytes(32),
    records=10,
    record_size=8,
    shards=2,
    min_shards=2,
    rounds=2,
    steps_per_round=8,
    segment_steps=2,
    samples=2,
    verifiers=3,
    seed_delay=2,
    max_unsettled=1,
    task_time=Seconds(600),
    straggler_time=Seconds(600),
    outer_time=Seconds(60),
    vote_time=Seconds(300),
    reveal_time=Seconds(200),
    challenge_window=Seconds(900),
    move_time=Seconds(100),
    price_period=Seconds(77),
    nonce=1,
    state_bytes=1_000,
    step_bytes=1_000,
    step_operations=1_000,
    price_floor=Wei(100),
    price_cap=Wei(1_000),
    verifier_fee=Wei(13),
    outer_fee=Wei(7),
    solver_stake=Wei(501),
    verifier_stake=Wei(303),
    challenge_bond=Wei(57),
    miss_penalty=Wei(31),
)
"""Terms that break no rule."""

_COUNT = st.one_of(st.integers(0, 5), st.sampled_from([8, 16, 17, 64, 65, 2**32 - 1]))
_TIME = st.one_of(st.integers(0, 3), st.sampled_from([2**32 - 1, 2**32, 2**64 - 1]))
_WEI = st.one_of(st.integers(0, 3), st.sampled_from([1_000, 2**64]))
_SIZE = st.sampled_from([0, 2_000, 2_001, 2**64 - 1])
_PROGRAM = st.builds(
    ProgramRef,
    root=st.just(b"\x01" * 32),
    nodes=st.sampled_from([0, 1, 9, 65_536, 65_537, 2**32 - 1]),
    slots=st.sampled_from([0, 1, 3, 4, 4_096, 4_097, 2**32 - 1]),
    params=st.sampled_from([0, 1, 2, 2**31]),
)
CHANGES = {
    "inner": _PROGRAM,
    "outer": _PROGRAM,
    "manifest": st.sampled_from([bytes(32), b"\x06" * 32]),
    "shards": _COUNT,
    "min_shards": _COUNT,
    "rounds": _COUNT,
    "steps_per_round": _COUNT,
    "segment_steps": _COUNT,
    "samples": _COUNT,
    "verifiers": _COUNT,
    "seed_delay": _COUNT,
    "max_unsettled": _COUNT,
    "task_time": _TIME,
    "straggler_time": _TIME,
    "outer_time": _TIME,
    "vote_time": _TIME,
    "reveal_time": _TIME,
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
