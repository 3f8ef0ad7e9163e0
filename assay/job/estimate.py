"""Estimates a job's cost, duration and traffic from its file and programs, before it is published or posted.

Contract: arithmetic on the terms that would be posted, refused as `post` would refuse them; no chain is read
and nothing is timed. Machines measure their own step time (`assay solver bench`).
"""

from __future__ import annotations

from dataclasses import dataclass

from assay.blocks.cid_only import CidOnlyBlocks
from assay.client.posting import estimate
from assay.job.read import JobFile
from assay.job.term_errors import by_key
from assay.job.terms import conditions_of, terms_of
from assay.node.artifacts import publish_job
from assay.node.job_programs import check_model, check_shapes
from assay.program.execute import Records
from assay.program.validate import measure, step_operations
from assay.protocol.params import admitting, task_operations, worst_case
from assay.protocol.types import Bounds, Kind, Seconds, Terms, Wei
from assay.training.job import JobArtifacts


def counted(records: Records | None) -> tuple[int, int]:
    """Number of records, and bytes of each; zeros without a dataset."""
    return (0, 0) if records is None else (len(records), records.record_size)


def drafted(body: JobFile, files: JobArtifacts, bounds: Bounds | None = None) -> Terms:
    """Terms of a traced, unpublished job, without client, nonce and class id.

    `bounds`: the market's; without them, those that admit its class. Raises BadManifest, BadJobFile for a
    key, and BadTerms for a value that the program decides.
    """
    conditions = conditions_of(body)
    terms = terms_of(body, publish_job(CidOnlyBlocks(), files))
    with by_key(body):
        estimate(terms, conditions, bounds or admitting(conditions))
    check_shapes({Kind.TASK: files.tasks, Kind.OUTER: files.outers}, terms)
    check_model(files.slot_names, terms)
    return terms


@dataclass(frozen=True)
class Estimate:
    """Estimated amounts in smallest units, times in seconds, sizes in bytes."""

    least: Wei
    """Cost if every shard is taken at the floor price."""
    most: Wei
    """Cost if every shard is taken at the cap, which the budget must cover. The unspent rest is refunded."""
    votes: Wei
    """Verifiers' fees, part of both."""
    solver_locks: Wei
    """Stake that a solver locks for each claim."""
    steps: int
    """Steps of all shards together; `micro_steps` of them make one optimiser step."""
    examples: int
    """Records processed, with repetition."""
    operations: int
    """Multiply-adds and elementwise operations of all loops of all claims."""
    task_operations: int
    """Of one task, of a shard that is not slow; solvers compare its price with these."""
    step_memory: int
    state: int
    """Bytes of the inner program's state, committed at each segment's end."""
    checkpoints: int
    """Bytes that solvers publish if they keep every segment's end; a verifier fetches those of its
    samples."""
    audited: float
    """Share of the tasks' operations that drawn verifiers replay."""
    last_payment: Seconds
    """Time from the last outer claim until nobody can dispute it, if all its verifiers vote."""
    round_at_most: Seconds
    """Time until a round is closed without an absent solver, from min_shards on."""


def estimated(terms: Terms, files: JobArtifacts, batch: int) -> Estimate:
    """Estimates a job with these terms and programs; `batch`: records per step."""
    tasks = terms.rounds * terms.shards
    votes = Wei(tasks * terms.verifiers * terms.verifier_fee)
    least = Wei(tasks * terms.price_floor + votes + terms.rounds * terms.slices * terms.outer_fee)
    steps = terms.rounds * sum(terms.main.of(shard).steps for shard in range(terms.shards))
    segments, state = terms.segments, files.inner.state_bytes
    trained, again = _task_operations(terms, files)
    each_outer = sum(
        loop.steps * measure(program).operations
        for loop, program in zip(terms.outer_loops, files.outers, strict=True)
    )
    return Estimate(
        least=least,
        most=worst_case(terms),
        votes=votes,
        solver_locks=terms.solver_stake,
        steps=steps,
        examples=steps * batch,
        operations=terms.rounds * (trained + terms.slices * each_outer),
        task_operations=task_operations(terms, 0, step_operations(files.tasks)),
        step_memory=terms.step_bytes,
        state=state,
        checkpoints=tasks * (segments + 1) * state,
        audited=again / trained,
        last_payment=terms.challenge_window,
        round_at_most=Seconds(terms.task_time + terms.straggler_time + terms.outer_time),
    )


def _task_operations(terms: Terms, files: JobArtifacts) -> tuple[int, float]:
    """Operations of a round's tasks, and how many of them verifiers replay: the samples of each loop."""
    trained, again = 0, 0.0
    for loop, program in zip(terms.loops, files.tasks, strict=True):
        steps = sum(loop.of(shard).steps for shard in range(terms.shards))
        operations = steps * measure(program).operations
        trained += operations
        again += operations * min(terms.verifiers * loop.samples / loop.segments, 1.0)
    return trained, again
