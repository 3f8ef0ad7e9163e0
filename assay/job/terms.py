"""Builds terms and class of conditions from a job file.

Contract: every consensus parameter comes from the file or from the published files; nothing has a default.
"""

from __future__ import annotations

from assay.job.read import JobFile
from assay.node.artifacts import Published
from assay.protocol.types import ZERO_ADDRESS, ZERO_DIGEST, Address, Conditions, Seconds, Terms, Wei
from assay.training.catalogue import loops_of


def conditions_of(file: JobFile) -> Conditions:
    """Class of conditions of the file's jobs.

    Its minimum solver stake is the lowest that any class can have, so that jobs with other stakes share its
    verifiers.
    """
    verification, times, money, rest = file.verification, file.times, file.money, file.conditions
    return Conditions(
        verifiers=verification.verifiers,
        samples=verification.samples + loops_of(file.outer.algorithm) - 1 + (file.held_out is not None),
        seed_delay=verification.seed_delay_blocks,
        vote_time=Seconds(times.vote),
        challenge_window=Seconds(times.challenge_window),
        move_time=Seconds(times.move),
        verifier_stake=Wei(money.verifier_stake),
        miss_penalty=Wei(money.miss_penalty),
        challenge_bond=Wei(money.challenge_bond),
        verifier_fee=Wei(rest.least_fee),
        solver_stake=Wei(verification.verifiers * money.verifier_stake),
        nodes=rest.nodes,
        segments=rest.segments,
        segment_steps=rest.segment_steps,
        data_bytes=rest.data_bytes,
        state_bytes=rest.state_bytes,
        step_bytes=rest.step_bytes,
        step_operations=rest.step_operations,
    )


def _slow(file: JobFile) -> tuple[int, int]:
    """First slow shard, and the divisor of its steps."""
    speeds = file.speeds
    return (0, 1) if speeds is None else (file.training.shards - speeds.slow_shards, speeds.slow_by)


def terms_of(
    file: JobFile,
    published: Published,
    class_id: bytes = ZERO_DIGEST,
    client: Address = ZERO_ADDRESS,
    nonce: int = 0,
) -> Terms:
    """The job's terms; their hash is its id once client, nonce and class id are set."""
    training, verification, times, money = file.training, file.verification, file.times, file.money
    return Terms(
        client=client,
        dataset_root=published.dataset_root,
        genesis_root=published.genesis_root,
        outer_genesis_root=published.outer_genesis_root,
        manifest=published.manifest,
        seed=training.seed.to_bytes(32, "big"),
        class_id=class_id,
        records=published.records,
        record_size=published.record_size,
        shards=training.shards,
        min_shards=training.min_shards,
        rounds=training.rounds,
        verifiers=verification.verifiers,
        seed_delay=verification.seed_delay_blocks,
        max_unsettled=verification.max_unsettled_rounds,
        task_time=Seconds(times.task),
        straggler_time=Seconds(times.straggler),
        outer_time=Seconds(times.outer),
        vote_time=Seconds(times.vote),
        challenge_window=Seconds(times.challenge_window),
        move_time=Seconds(times.move),
        price_period=Seconds(times.price_period),
        nonce=nonce,
        state_bytes=published.sizes.state_bytes,
        step_bytes=published.sizes.step_bytes,
        step_operations=published.sizes.step_operations,
        price_floor=Wei(money.price_floor),
        price_cap=Wei(money.price_cap),
        verifier_fee=Wei(money.verifier_fee),
        outer_fee=Wei(money.outer_fee),
        solver_stake=Wei(money.solver_stake),
        verifier_stake=Wei(money.verifier_stake),
        challenge_bond=Wei(money.challenge_bond),
        miss_penalty=Wei(money.miss_penalty),
        **published.shape(
            training.steps_per_round, training.segment_steps, verification.samples, _slow(file)
        ),
    )
