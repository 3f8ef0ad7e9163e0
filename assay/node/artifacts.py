"""Publishes and loads a job's files: manifest, programs, dataset, genesis states.

Contract: `load_job` returns only files that match the terms to the last bit. The manifest is canonical JSON,
sizes are bounded before anything is fetched, every root is recomputed, and all programs are validated and
checked against each other. A mismatch is a `Stop` that names it; a file that cannot be fetched is a `Retry`.
Not guaranteed: that the training is any good. Formats: docs/protocol.md, rule 3.3.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Protocol

from torch import Tensor

from assay.node.job_programs import (
    WORDS,
    Sizes,
    check_model,
    check_named,
    check_shapes,
    check_sizes,
    program_ref,
    sizes_of,
)
from assay.node.limits import ResourceLimits
from assay.node.manifests import JOB_SCHEMA, bad, read_manifest
from assay.node.slot_index import MAX_INDEX_BYTES, SlotFile, Slots, decode_index, state_root_of
from assay.node.slots import StoredState, read_slot, store_state
from assay.numerics.encoding import EncodingError
from assay.program import isa
from assay.program.execute import Records
from assay.program.hashing_threads import tensor_root
from assay.program.isa import MalformedProgram, Node, Program
from assay.program.validate import validate
from assay.protocol import trees
from assay.protocol.canonical_json import canonical_json
from assay.protocol.loops import round_shape
from assay.protocol.ports import Blocks
from assay.protocol.types import Kind, Link, Loop, ProgramRef, Terms
from assay.training.slicing import Blocks as BlocksOfParameters
from assay.training.slicing import blocks_in

MAX_NAME_CHARS = 256

State = list[Tensor]


class JobFiles(Protocol):
    """Files that a client publishes (``training.job.JobArtifacts``)."""

    @property
    def tasks(self) -> Sequence[Program]: ...
    @property
    def outers(self) -> Sequence[Program]: ...
    @property
    def main(self) -> int: ...
    @property
    def links(self) -> Sequence[Link]: ...
    @property
    def outer_links(self) -> Sequence[Link]: ...
    @property
    def records(self) -> Records | None: ...
    @property
    def genesis(self) -> Sequence[Tensor]: ...
    @property
    def outer_genesis(self) -> Sequence[Tensor]: ...
    @property
    def slices(self) -> int: ...
    @property
    def slot_names(self) -> Sequence[str]: ...
    @property
    def model(self) -> dict[str, Any]: ...


@dataclass(frozen=True)
class LoadedJob:
    """A job's files, checked against its terms, with the programs of the loops of tasks and outer claims."""

    tasks: tuple[Program, ...]
    outers: tuple[Program, ...]
    main: int
    """Index of the task's training loop: the one with the most steps."""
    records: Records | None
    genesis: Slots
    """Slots of the state from which every task of round 0 starts; tensors are read on demand."""
    outer_genesis: Slots
    """Slots of the first slice's outer state."""
    slot_names: tuple[str, ...]
    model: dict[str, Any]

    @property
    def inner(self) -> Program:
        """The program of a task's main loop."""
        return self.tasks[self.main]

    @property
    def outer(self) -> Program:
        """The program of an outer claim's first loop."""
        return self.outers[0]

    def genesis_of(self, kind: Kind, unit: int) -> Slots:
        """State before round 0 of a shard, or of a slice's outer claim."""
        if kind == Kind.TASK:
            return self.genesis
        return slice_genesis(self.genesis, self.outer_genesis, self.outer.params, unit)

    @property
    def blocks(self) -> BlocksOfParameters | None:
        """Layout of the parameters if their slots are equal blocks; None if each slot is one parameter."""
        return blocks_in(self.model, [node.shape for node in self.inner.state[: self.inner.params]])


@dataclass(frozen=True)
class Published:
    """CIDs of a job's files, and the roots for its terms."""

    manifest: bytes
    tasks: tuple[ProgramRef, ...]
    outers: tuple[ProgramRef, ...]
    main: int
    links: tuple[Link, ...]
    outer_links: tuple[Link, ...]
    dataset_root: bytes
    genesis_root: bytes
    outer_genesis_root: bytes
    records: int
    record_size: int
    sizes: Sizes
    slices: int

    def shape(
        self, steps: int, segment_steps: int, samples: int, slow: tuple[int, int] = (0, 1)
    ) -> dict[str, Any]:
        """Fields of the terms that describe a round.

        They have the main loop with these steps, segments and samples. `slow`: the first slow shard, and the
        divisor of its steps. All other loops have one step each, which every drawn verifier replays.
        """
        tasks = [
            Loop(ref.root, ref.nodes, steps, segment_steps, samples, *slow)
            if number == self.main
            else Loop(ref.root, ref.nodes, 1, 1, 1)
            for number, ref in enumerate(self.tasks)
        ]
        outers = [Loop(ref.root, ref.nodes, 1, 1, 0) for ref in self.outers]
        links = self.links, self.outer_links
        return round_shape(tasks, outers, links, self.tasks[0].params, self.slices)


def publish_job(blocks: Blocks, files: JobFiles) -> Published:
    """Stores and pins all files of a job and its manifest."""
    records = files.records
    genesis, outer_genesis = (store_state(blocks, x) for x in (files.genesis, files.outer_genesis))
    dataset_root = records.tree.root if records is not None else bytes(32)
    count, size = (len(records), records.record_size) if records is not None else (0, 0)

    def stored(data: bytes, root: bytes, **more: int) -> dict[str, Any]:
        cid = blocks.add_file(data)
        blocks.pin(cid)
        return {"cid": cid, "root": root.hex(), **more}

    def pinned(state: StoredState, root: bytes) -> dict[str, Any]:
        for cid in (state.cid, *(slot.cid for slot in state.slots)):
            blocks.pin(cid)
        return {"cid": state.cid, "root": root.hex()}

    outer_root = outer_genesis_root(genesis.slots, outer_genesis.slots, files.outers[0].params, files.slices)

    data = {"cid": "", "root": dataset_root.hex(), "records": 0, "recordSize": 0}
    if records is not None:
        data = stored(bytes(records.data), dataset_root, records=count, recordSize=size)
    manifest = {
        "schema": JOB_SCHEMA,
        "inner": [stored(isa.encode(program), program.root) for program in files.tasks],
        "outer": [stored(isa.encode(program), program.root) for program in files.outers],
        "dataset": data,
        "genesis": pinned(genesis, genesis.root),
        "outerGenesis": pinned(outer_genesis, outer_root),
        "slots": list(files.slot_names),
        "model": files.model,
    }
    body = canonical_json(manifest)
    blocks.pin(blocks.put(body))
    return Published(
        sha256(body).digest(),
        tuple(program_ref(program) for program in files.tasks),
        tuple(program_ref(program) for program in files.outers),
        files.main,
        tuple(files.links),
        tuple(files.outer_links),
        dataset_root,
        genesis.root,
        outer_root,
        count,
        size,
        sizes_of(*files.tasks, *files.outers),
        files.slices,
    )


def slice_genesis(genesis: Slots, outer: Slots, part: int, number: int) -> Slots:
    """Outer state of a slice before round 0, from a task's and the first slice's genesis.

    Slices differ in their part of the parameters, which the task's state also has.
    """
    return (*genesis[number * part : (number + 1) * part], *outer[part:]) if number else outer


def outer_genesis_root(genesis: Slots, outer: Slots, part: int, slices: int) -> bytes:
    """Root of the tree over the genesis outer states of all slices."""
    each = (slice_genesis(genesis, outer, part, number) for number in range(slices))
    return trees.root([state_root_of(slots) for slots in each])


def _agree(what: str, said: str, root: bytes) -> None:
    if said != root.hex():
        raise bad(f"the manifest's root of {what} differs from the terms'")


def _program(blocks: Blocks, entry: dict[str, Any], what: str, ref: ProgramRef) -> Program:
    if ref.nodes > isa.MAX_NODES or ref.slots > isa.MAX_SLOTS:
        raise bad(f"the {what} program is over the limits of nodes or slots")
    limit = len(isa.MAGIC) + 16 + ref.nodes * (4 + isa.MAX_NODE_BYTES) + 4 * ref.slots
    _agree(f"the {what} program", entry["root"], ref.root)
    try:
        program = isa.decode(blocks.read_file(entry["cid"], limit))
    except MalformedProgram as error:
        raise bad(f"the {what} program: {error}") from error
    if program_ref(program) != ref:
        raise bad(f"the root or the counts of the {what} program differ from the terms'")
    return program


def _programs(blocks: Blocks, entries: list[dict[str, Any]], kind: Kind, terms: Terms) -> tuple[Program, ...]:
    if len(entries) != len(terms.loops_of(kind)):
        raise bad(
            f"the manifest has {len(entries)} {WORDS[kind]} programs, and the terms have"
            f" {len(terms.loops_of(kind))} loops"
        )
    found = []
    for number, entry in enumerate(entries):
        what = WORDS[kind] if len(entries) == 1 else f"{WORDS[kind]} (loop {number})"
        found.append(_program(blocks, entry, what, terms.program(kind, number)))
    return tuple(found)


def _state(
    blocks: Blocks,
    entry: dict[str, Any],
    what: str,
    program: Program,
    root: bytes,
    root_of: Callable[[Slots], bytes] = state_root_of,
) -> Slots:
    """Reads and checks every slot of a state, and returns the slots without their tensors.

    A slot that stands in several places is read once.
    """
    _agree(f"the {what} state", entry["root"], root)
    try:
        slots = decode_index(blocks.read_file(entry["cid"], MAX_INDEX_BYTES), program.slots)
    except ValueError as error:
        raise bad(f"the {what} state: {error}") from error
    if root_of(slots) != root:
        raise bad(f"the root of the {what} state differs from the terms'")
    seen: set[tuple[Any, ...]] = set()
    for number, (slot, node) in enumerate(zip(slots, program.state, strict=True)):
        if (slot, node.dtype, node.shape) not in seen:
            seen.add((slot, node.dtype, node.shape))
            _check_slot(blocks, slot, node, f"slot {number} of the {what}")
    return slots


def _check_slot(blocks: Blocks, slot: SlotFile, node: Node, what: str) -> None:
    try:
        tensor = read_slot(blocks, slot, node)
    except EncodingError as error:
        raise bad(f"{what} state: {error}") from error
    if tensor_root(tensor) != slot.root:
        raise bad(f"the tensor of {what} state has not the root that its index names")


def _dataset(
    blocks: Blocks, entry: dict[str, Any], terms: Terms, resource_limits: ResourceLimits
) -> Records | None:
    _agree("the dataset", entry["root"], terms.dataset_root)
    if (entry["records"], entry["recordSize"]) != (terms.records, terms.record_size):
        raise bad("the number or the size of the manifest's records differs from the terms'")
    size = terms.records * terms.record_size
    if size == 0:
        return None
    most, tree_bytes = resource_limits.dataset_bytes, terms.records * trees.PACKED_BYTES
    if size > most:
        raise bad(f"the dataset has {size} bytes, and this node fetches at most {most}")
    if tree_bytes > most:
        raise bad(
            f"the tree over the dataset's {terms.records} records takes {tree_bytes} bytes of memory, and"
            f" this node allows {most}"
        )
    data = blocks.read_file(entry["cid"], size)
    if len(data) != size:
        raise bad(f"the dataset has {len(data)} bytes instead of {size}")
    records = Records(data, terms.record_size)
    if records.tree.root != terms.dataset_root:
        raise bad("the root of the dataset differs from the terms'")
    return records


Programs = dict[Kind, tuple[Program, ...]]


def load_programs(
    blocks: Blocks, terms: Terms, resource_limits: ResourceLimits
) -> tuple[dict[str, Any], Programs]:
    """Fetches a job's manifest and programs, and checks each. Raises BadManifest, InvalidProgram, Retry."""
    manifest = read_manifest(blocks, terms.manifest)
    programs = {kind: _programs(blocks, manifest[WORDS[kind]], kind, terms) for kind in Kind}
    for program in (*programs[Kind.TASK], *programs[Kind.OUTER]):
        cost = validate(
            program,
            terms.record_size,
            max_bytes=resource_limits.step_bytes,
            max_operations=resource_limits.step_operations,
        )
        memory = resource_limits.memory_bytes
        if memory < min(cost.peak_bytes, cost.streamed_bytes):
            raise bad(
                f"a step takes {cost.peak_bytes} bytes, or {cost.streamed_bytes} of memory if it is replayed"
                f" streamed, and this node has {memory}"
            )
        if program.state_bytes > resource_limits.state_bytes:
            limit = resource_limits.state_bytes
            raise bad(f"a state has {program.state_bytes} bytes, and this node keeps at most {limit}")
    return manifest, programs


def load_job(blocks: Blocks, terms: Terms, resource_limits: ResourceLimits) -> LoadedJob:
    """Fetch and check everything of a job. Raises BadManifest, InvalidProgram, InvalidState, Retry."""
    manifest, programs = load_programs(blocks, terms, resource_limits)
    names = manifest["slots"]
    good = isinstance(names, list) and all(isinstance(n, str) and len(n) <= MAX_NAME_CHARS for n in names)
    if not good or len(names) != terms.slots or len(set(names)) != len(names):
        raise bad("the manifest's slots are not a distinct name for each slot of a task's state")
    every = [*programs[Kind.TASK], *programs[Kind.OUTER]]
    check_shapes(programs, terms)
    check_named(names, programs[Kind.TASK][0])
    check_model(names, terms)
    check_sizes(sizes_of(*every), terms)
    if any(program.record_size for program in programs[Kind.OUTER]):
        raise bad("the outer program reads records, which an outer step does not have")
    if not terms.records and any(program.record_size for program in every):
        raise bad("the inner program reads data, and the terms have no records")
    inner, outer = programs[Kind.TASK][0], programs[Kind.OUTER][0]
    genesis = _state(blocks, manifest["genesis"], "genesis", inner, terms.genesis_root)

    def root_of(first: Slots) -> bytes:
        return outer_genesis_root(genesis, first, outer.params, terms.slices)

    try:
        blocks_in(manifest["model"], [node.shape for node in inner.state[: inner.params]])
    except ValueError as error:
        raise bad(f"the manifest's model: {error}") from error
    return LoadedJob(
        programs[Kind.TASK],
        programs[Kind.OUTER],
        terms.loops.index(terms.main),
        _dataset(blocks, manifest["dataset"], terms, resource_limits),
        genesis,
        _state(blocks, manifest["outerGenesis"], "outer genesis", outer, terms.outer_genesis_root, root_of),
        tuple(names),
        manifest["model"],
    )
