"""Verifies a fetched model against its receipt, offline.

Contract: `verify` reads only the folder, and lists what it has recomputed in `Verified.checked`: the model is
consistent with its receipt. Invented claims with an invented model are consistent, too:
``client.chain_check`` checks that the chain has the claims, ``client.replaying`` that the arithmetic is
right.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load as load_tensors
from torch import Tensor

from assay.client.receipt import (
    MANIFEST,
    MODEL,
    Receipt,
    bad,
    claim_id_of,
    derived_job_id,
    program_files,
    read_receipt,
)
from assay.node.divergence import not_finite
from assay.node.job_programs import WORDS, program_ref
from assay.numerics.encoding import EncodingError, to_bytes
from assay.program.isa import MalformedProgram, Program, decode
from assay.protocol import sampling, trees
from assay.protocol.errors import Stop
from assay.protocol.loops import model_names
from assay.protocol.params import ANYWHERE, BadTerms, check_shape
from assay.protocol.types import Claim, ClaimView, Kind, Phase, ProgramRef, Terms
from assay.training.slicing import blocks_in


@dataclass(frozen=True)
class Verified:
    """Result of `verify`."""

    job_id: str
    rounds: int
    tasks: int
    params_root: str
    """Output root of the last outer claim (of the last slice), which the parameters are proven to be part
    of."""
    replayed_segments: int
    segments: int
    convictions: int
    disputes: int
    chain_id: int
    jobs: str
    """Address of the Jobs contract in the job's id."""
    block: int
    checked: tuple[str, ...]
    """Description of what was recomputed."""
    missing: tuple[tuple[int, int], ...] = ()
    """(round, shard) of each task that a round was closed without."""
    not_finite: str = ""
    """Inf or NaN in the model; empty if there is none."""
    diverged: str = ""
    """Where the training diverged, as the fetching client found."""


def settled(receipt: Receipt) -> list[ClaimView]:
    """The receipt's settled claims."""
    return [view for view in receipt.claims if view.status.phase == Phase.SETTLED]


def replayed_segments(terms: Terms, claims: list[ClaimView]) -> tuple[int, int]:
    """Number of settled tasks' segments covered by a valid vote, and of all."""
    segments = replayed = 0
    for view in claims:
        if view.claim.kind == Kind.TASK and view.status.phase == Phase.SETTLED:
            segments += terms.segments
            seen: set[int] = set()
            for vote in view.votes:
                if vote.shown and vote.valid:
                    drawn = sampling.sample_segments(view.status.seed, vote.verifier, terms.loops)
                    seen.update(drawn)
            replayed += len(seen)
    return replayed, segments


def _check_ids(receipt: Receipt) -> None:
    try:
        found = derived_job_id(receipt.chain, receipt.terms)
    except (KeyError, Stop) as error:
        raise bad(f"the receipt names no Jobs contract ({error})") from error
    if found != receipt.job_id:
        raise bad(
            f"the receipt's terms, chain and contract give job id {found.hex()}, and it says"
            f" {receipt.job_id.hex()}"
        )
    for view in receipt.claims:
        claim = view.claim
        if claim_id_of(claim) != view.claim_id:
            raise bad(f"{_place(claim)} does not hash to its id {view.claim_id.hex()[:16]}")
        if claim.job_id != receipt.job_id:
            raise bad(f"{_place(claim)} belongs to another job")
    if len({view.claim_id for view in receipt.claims}) != len(receipt.claims):
        raise bad("the receipt has the same claim twice")


def _place(claim: Claim) -> str:
    return f"the {claim.kind.name.lower()} claim of round {claim.round}, shard {claim.shard}"


def _check_terms(terms: Terms) -> None:
    try:
        check_shape(terms, ANYWHERE)
    except BadTerms as error:
        raise bad(error.message) from error


def _check_roots(receipt: Receipt) -> None:
    """Checks that each claim's state roots, and each vote's traces, are the leaves of its commitment."""
    terms = receipt.terms
    for view in receipt.claims:
        claim, leaves = view.claim, terms.segments_of(view.claim.kind) + 1
        ends = [claim.input_root, claim.output_root]
        whole = len(view.roots) == leaves and all(len(root) == 32 for root in view.roots)
        if not whole or trees.root(view.roots) != claim.segments_root:
            raise bad(f"the state roots of {_place(claim)} do not hash to its segments root")
        if [view.roots[0], view.roots[-1]] != ends:
            raise bad(f"the first and last state roots of {_place(claim)} are not its input and output root")
        for vote in view.votes:
            if not vote.shown or not vote.valid:
                continue
            shown = view.traces.get(vote.verifier, ())
            whole = len(shown) == terms.samples and all(len(trace) == 32 for trace in shown)
            if not whole or trees.root(shown) != vote.traces_root:
                raise bad(f"the traces of {vote.verifier} do not hash to its vote on {_place(claim)}")


def _check_places(receipt: Receipt) -> tuple[list[Claim], tuple[tuple[int, int], ...]]:
    """One settled claim per place of the settled rounds, outer claims by round and slice, and the missing
    (round, shard)s.

    Later rounds may have settled claims too, but not all slices of the next: a job may be fetched at any
    time.
    """
    terms, rounds = receipt.terms, receipt.rounds
    claims = [view.claim for view in settled(receipt)]
    outer = sorted((c for c in claims if c.kind == Kind.OUTER), key=lambda c: (c.round, c.shard))
    places = [(r, number) for r in range(min(rounds, terms.rounds)) for number in range(terms.slices)]
    found = [(c.round, c.shard) for c in outer]
    more = found[len(places) :]
    whole = found[: len(places)] == places and len(set(found)) == len(found)
    possible = all(r < terms.rounds and number < terms.slices for r, number in more)
    if not 1 <= rounds <= terms.rounds or not whole or not possible:
        raise bad(
            "the receipt does not have exactly one settled outer claim for each slice of each of its"
            f" {rounds} rounds"
        )
    if sum(r == rounds for r, _ in more) == terms.slices:
        raise bad(f"the receipt says {rounds} rounds, and its claims settle round {rounds} as well")
    tasks = [(c.round, c.shard) for c in claims if c.kind == Kind.TASK]
    every = [(r, k) for r in range(rounds) for k in range(terms.shards)]
    if len(set(tasks)) != len(tasks) or any(r >= terms.rounds or k >= terms.shards for r, k in tasks):
        raise bad("the receipt has a shard with two settled tasks in a round, or a task outside the terms")
    if min(sum(r == round_ for r, _ in tasks) for round_ in range(rounds)) < terms.min_shards:
        raise bad(f"the receipt has a round with fewer than {terms.min_shards} settled tasks")
    first = [c for c in claims if c.round == 0 and c.kind == Kind.TASK]
    if any(c.input_root != terms.genesis_root for c in first):
        raise bad("a task of the first round does not start from the genesis state")
    return outer[: len(places)], tuple(place for place in every if place not in set(tasks))


def _check_program(receipt: Receipt, name: str, ref: ProgramRef) -> Program:
    try:
        program = decode(receipt.files[name])
    except MalformedProgram as error:
        raise bad(f"{name}: {error}") from error
    if program_ref(program) != ref:
        raise bad(f"{name} is not the program that the terms name")
    return program


def _check_programs(receipt: Receipt) -> Program:
    """Checks every loop's program; returns a task's first."""
    programs = []
    for kind, word in WORDS.items():
        for number, name in enumerate(program_files(word, len(receipt.terms.loops_of(kind)))):
            programs.append(_check_program(receipt, name, receipt.terms.program(kind, number)))
    if len(programs) != len(receipt.files) - 2:
        raise bad("the receipt names more programs than the terms have loops")
    return programs[0]


def _check_model(receipt: Receipt, program: Program, last: Sequence[Claim]) -> dict[str, Tensor]:
    """Checks that the tensor roots of the parameters, or of their blocks, are the first leaves of the last
    outer states.

    `last`: outer claims of the last round, by slice. Returns the parameters.
    """
    terms = receipt.terms
    if sha256(receipt.files[MANIFEST]).digest() != terms.manifest:
        raise bad(f"{MANIFEST} is not the manifest that the terms name")
    blocks = blocks_in(receipt.manifest["model"], [node.shape for node in program.state[: terms.params]])
    names = model_names(terms, receipt.manifest["slots"])
    known = zip(names[: terms.params], (tuple(node.shape) for node in program.state), strict=False)
    if blocks is not None:
        names, known = list(blocks.names), zip(blocks.names, blocks.shapes, strict=True)
    try:
        tensors: dict[str, Tensor] = load_tensors(receipt.files[MODEL])
    except (SafetensorError, ValueError) as error:
        raise bad(f"{MODEL}: {error}") from error
    if len(set(names)) != len(names) or set(tensors) != set(names):
        raise bad(f"{MODEL} does not hold exactly the {len(names)} parameters of the job")
    shapes = dict(known)
    for name in names:
        if tuple(tensors[name].shape) != shapes.get(name, shapes.get(name.rpartition("@")[0])):
            raise bad(f"{MODEL}: the shape of {name} is not that of the program's slot")
    held = [tensors[name] for name in names]
    if blocks is not None and any(tensor.dtype != torch.float32 for tensor in held):
        raise bad(f"{MODEL} holds parameters that are not float32")
    try:
        slots = held if blocks is None else blocks.joined(held)
        roots = [trees.tensor_root(to_bytes(slot)) for slot in slots]
    except EncodingError as error:
        raise bad(f"{MODEL}: {error}") from error
    part, way = len(roots) // terms.slices, len(receipt.proof) // terms.slices
    for number, claim in enumerate(last):
        own, proof = roots[number * part :][:part], receipt.proof[number * way :][:way]
        if not trees.verify_range(claim.output_root, terms.outer_slots, 0, own, proof):
            raise bad("the parameters do not hash to the last outer claim's output root")
    if way * terms.slices != len(receipt.proof):
        raise bad("the receipt's proof has not one part for each slice")
    return {name: tensors[name] for name in names}


def verify(folder: Path) -> Verified:
    """Verifies a fetched model against its receipt. Raises BadReceipt with the first fault."""
    receipt = read_receipt(folder)
    terms = receipt.terms
    try:
        _check_ids(receipt)
        _check_terms(terms)
        _check_roots(receipt)
        outer, missing = _check_places(receipt)
        inner = _check_programs(receipt)
        params = _check_model(receipt, inner, outer[-terms.slices :])
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise bad(f"the receipt lacks a field, or has a malformed one: {error}") from error
    replayed, segments = replayed_segments(terms, list(receipt.claims))
    return Verified(
        job_id=receipt.job_id.hex(),
        rounds=receipt.rounds,
        tasks=receipt.rounds * terms.shards - len(missing),
        missing=missing,
        params_root=outer[-1].output_root.hex(),
        replayed_segments=replayed,
        segments=segments,
        convictions=sum(view.status.phase == Phase.CONVICTED for view in receipt.claims),
        disputes=len(receipt.disputes),
        chain_id=receipt.chain.chain_id,
        jobs=receipt.chain.contracts["Jobs"],
        block=receipt.block,
        checked=(
            "the job's id is the hash of the chain, the contract and the terms",
            f"each of {len(receipt.claims)} claims hashes to its id, its state roots to its segments root",
            f"each of {receipt.rounds} rounds has its settled claims",
            "both programs and the manifest are those of the terms",
            "the parameters lead to the last round's output root",
        ),
        not_finite=not_finite(list(params), len(params), list(params.values())),
        diverged=receipt.diverged,
    )
