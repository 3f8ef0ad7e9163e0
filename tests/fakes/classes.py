"""Classes of conditions for tests: terms' own counts, times and amounts, and room for work of any size."""

from __future__ import annotations

from dataclasses import replace

from eth_utils.crypto import keccak

from assay.protocol.encoding import encode
from assay.protocol.params import MAX_NODES, MAX_SEGMENT_STEPS, MAX_SEGMENTS
from assay.protocol.types import Bounds, Conditions, Seconds, Terms, Wei

ROOM = 2**64 - 1
WIDE = Bounds(
    least_vote=Seconds(1),
    most_vote=Seconds(10_000),
    least_move=Seconds(1),
    most_move=Seconds(10_000),
    least_window=Seconds(1),
    most_window=Seconds(100_000),
    least_delay=1,
    most_delay=1_000,
    least_time=Seconds(1),
    most_time=Seconds(1_000_000),
    least_stake=Wei(0),
    most_stake=Wei(10**30),
    least_bond=Wei(0),
    clock_lag=1,
    block_time=Seconds(1),
)
"""Bounds that the tests' odd amounts and short times keep to."""


def conditions_of(terms: Terms) -> Conditions:
    """The class that fits these terms."""
    return Conditions(
        verifiers=terms.verifiers,
        samples=terms.samples,
        seed_delay=terms.seed_delay,
        vote_time=terms.vote_time,
        challenge_window=terms.challenge_window,
        move_time=terms.move_time,
        verifier_stake=terms.verifier_stake,
        miss_penalty=terms.miss_penalty,
        challenge_bond=terms.challenge_bond,
        verifier_fee=Wei(0),
        solver_stake=Wei(terms.verifiers * terms.verifier_stake),
        nodes=MAX_NODES,
        segments=MAX_SEGMENTS,
        segment_steps=MAX_SEGMENT_STEPS,
        data_bytes=ROOM,
        state_bytes=ROOM,
        step_bytes=ROOM,
        step_operations=ROOM,
    )


def class_id(conditions: Conditions) -> bytes:
    """Rule 3.4."""
    return keccak(encode(conditions))


def of_its_class(terms: Terms) -> Terms:
    """The terms with the id of the class that fits them."""
    return replace(terms, class_id=class_id(conditions_of(terms)))
