"""What a job will cost, take and move, from its file and its programs, before it is published or posted.

Contract: arithmetic on the terms that would be posted, refused as `post` would refuse them; no chain is asked
and nothing is timed. What machines take for a step is theirs to say (`assay solver bench`).
"""

from __future__ import annotations

from dataclasses import dataclass

from assay.blocks.unstored import UnstoredBlocks
from assay.client.posting import estimate
from assay.job.by_key import by_key
from assay.job.read import JobFile
from assay.job.terms import conditions_of, terms_of
from assay.node.artifacts import publish_job
from assay.node.job_programs import check_model, check_shapes
from assay.program.execute import Records
from assay.program.validate import measure
from assay.protocol.params import admitting, worst_case
from assay.protocol.types import Bounds, Kind, Seconds, Terms, Wei
from assay.training.job import JobArtifacts


def counted(records: Records | None) -> tuple[int, int]:
    """How many records there are, and the bytes of each; zeros without a dataset."""
    return (0, 0) if records is None else (len(records), records.record_size)


def drafted(body: JobFile, files: JobArtifacts, bounds: Bounds | None = None) -> Terms:
    """The terms of a job that was traced and not published, but for its client, nonce and id of its class.
    `bounds`: the market's; without them those that admit its class. Raises BadManifest, BadJobFile where a
    key is at fault, and BadTerms where what the program is makes them such."""
    conditions = conditions_of(body)
    terms = terms_of(body, publish_job(UnstoredBlocks(), files))
    with by_key(body):
        estimate(terms, conditions, bounds or admitting(conditions))
    check_shapes({Kind.TASK: files.tasks, Kind.OUTER: files.outers}, terms)
    check_model(files.slot_names, terms)
    return terms


@dataclass(frozen=True)
class Estimate:
    """Amounts in smallest units, times in seconds, sizes in bytes."""

    least: Wei
    """Every shard is taken at the floor."""
    most: Wei
    """Every shard is taken at the cap; what a budget must cover. What is not paid comes back."""
    votes: Wei
    """Of both: the verifiers' fees."""
    solver_locks: Wei
    """What a solver locks for each claim."""
    steps: int
    """In all shards together; `micro_steps` of them make one of the optimiser."""
    examples: int
    """Records that they see, with repetition."""
    operations: int
    """Multiply-adds and elementwise operations of all claims' loops, outer ones too."""
    step_memory: int
    state: int
    """Of the inner program: what a solver commits to at each segment's end."""
    checkpoints: int
    """What solvers publish if they keep every segment's end: of which a verifier fetches its samples'."""
    audited: float
    """Share of the tasks' operations that drawn verifiers do again."""
    last_payment: Seconds
    """From the last outer claim until nobody can dispute it, if all its verifiers vote."""
    round_at_most: Seconds
    """Until a round is closed without a solver that is gone, from min_shards on."""


def estimated(terms: Terms, files: JobArtifacts, batch: int) -> Estimate:
    """What terms come to, of a job with these programs; `batch`: records a step."""
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
        step_memory=terms.step_bytes,
        state=state,
        checkpoints=tasks * (segments + 1) * state,
        audited=again / trained,
        last_payment=terms.challenge_window,
        round_at_most=Seconds(terms.task_time + terms.straggler_time + terms.outer_time),
    )


def _task_operations(terms: Terms, files: JobArtifacts) -> tuple[int, float]:
    """Operations of a round's tasks, and those of them that verifiers do again: of each loop its samples."""
    trained, again = 0, 0.0
    for loop, program in zip(terms.loops, files.tasks, strict=True):
        steps = sum(loop.of(shard).steps for shard in range(terms.shards))
        operations = steps * measure(program).operations
        trained += operations
        again += operations * min(terms.verifiers * loop.samples / loop.segments, 1.0)
    return trained, again
