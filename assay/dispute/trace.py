"""Traces one step: every node's output root, and any output on demand (docs/protocol.md, 1.5).

Contract: the tree is the step's trace tree, keyed if a key was given; `output` and `tensor_tree` belong to
the same execution. All outputs stay in memory if they take at most `keep_bytes`; a larger step is run again
for them. Not guaranteed: that a patched step (``program.fault``) is what the program says.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field

from torch import Tensor

from assay.numerics.encoding import to_bytes
from assay.program.execute import Executor, Patch, StepContext
from assay.program.hashing_threads import PLAIN_BYTES, Hasher, shared
from assay.program.isa import Node, Op, Program
from assay.program.state import slot_tree, state_tree
from assay.protocol import trees

KEEP_BYTES = 1 << 30
"""Steps with larger outputs are not partly kept: fresh memory for each output takes half as long as hashing
it, and a requested output is most likely not in that part."""
_BACKLOG_BYTES = 256 << 20
"""Of outputs that wait for their hash; a quarter of the executor's room, if that is less."""
_CACHED_TREES = 8


def _repeated_tree(element: bytes, size: int, key: bytes) -> trees.Tree:
    """Tensor tree of `size` bytes that repeat one element: all full leaves are equal."""
    full, rest = divmod(size, trees.LEAF_BYTES)
    digests = []
    if full:
        digests = [trees.tensor_root(element * (trees.LEAF_BYTES // len(element)), key)] * full
    if rest:
        digests.append(trees.tensor_root(element * (rest // len(element)), key))
    return trees.build(digests)


def _uniform(output: Tensor) -> bool:
    """True if a tensor repeats one element, by its strides."""
    return not any(stride for size, stride in zip(output.shape, output.stride(), strict=True) if size > 1)


def output_tree(node: Node, output: Tensor, key: bytes = b"") -> trees.Tree:
    """Tensor tree of a node's output, keyed if `key` is given."""
    if _uniform(output):
        return _repeated_tree(bytes(to_bytes(output.reshape(-1)[:1])), node.bytes, key)
    return trees.tensor_tree(to_bytes(output), key)


@dataclass
class StepTrace:
    """An executed step and its commitments."""

    program: Program
    state: list[Tensor]
    context: StepContext
    key: bytes
    tree: trees.Tree
    next_state: list[Tensor]
    _executor: Executor
    _patch: Patch | None
    _kept: dict[int, Tensor]
    _trees: OrderedDict[int, trees.Tree] = field(default_factory=OrderedDict)

    @property
    def root(self) -> bytes:
        """Trace root, keyed if there is a key."""
        return self.tree.root

    def tensor(self, index: int) -> Tensor:
        """Output of node `index`. Raises IndexError."""
        if not 0 <= index < len(self.program.nodes):
            raise IndexError(f"no node {index} in a program of {len(self.program.nodes)}")
        if index not in self._kept:
            found: list[Tensor] = []

            def grab(i: int, x: Tensor) -> None:
                if i == index:
                    found.append(x)

            self._executor.step(self.state, self.context, grab, self._patch, until=index)
            self._kept[index] = self._executor.place(found[0])
        return self._kept[index]

    def output(self, index: int) -> memoryview:
        """Canonical bytes of node `index`'s output."""
        return to_bytes(self.tensor(index))

    def tensor_tree(self, index: int) -> trees.Tree:
        """Tensor tree of node `index`'s output, keyed as the trace is."""
        if index not in self._trees:
            self._trees[index] = output_tree(self.program.nodes[index], self.tensor(index), self.key)
            if len(self._trees) > _CACHED_TREES:
                self._trees.popitem(last=False)
        return self._trees[index]

    def input_tree(self) -> trees.Tree:
        """State tree of the state before the step."""
        return state_tree(self.state)

    def slot_tree(self, slot: int) -> trees.Tree:
        """Tensor tree of one slot of the state before the step (never keyed)."""
        return slot_tree(self.state, slot)


class _Roots:
    """Hashes outputs in the background of the step; bounds the backlog."""

    def __init__(
        self, executor: Executor, key: bytes, hasher: Hasher, keep_bytes: int, patched: bool
    ) -> None:
        self._program, self._key, self._hasher = executor.program, key, hasher
        self._patched = patched
        self._sizes = [node.bytes for node in self._program.nodes]
        self._keeps = executor.room is None and sum(self._sizes) <= keep_bytes
        self._backlog = _BACKLOG_BYTES if executor.room is None else min(_BACKLOG_BYTES, executor.room // 4)
        self._waiting: deque[tuple[int, Future[bytes]]] = deque()
        self._waiting_bytes = 0
        self.roots: list[Future[bytes]] = []
        self.kept: dict[int, Tensor] = {}

    def observe(self, index: int, output: Tensor) -> None:
        node = self._program.nodes[index]
        if self._keeps or node.op in (Op.CONST, Op.STATE):
            self.kept[index] = output
        if node.op is Op.RESHAPE and not self._patched:
            self.roots.append(self.roots[node.inputs[0].ref])  # the same bytes
            return
        size = self._sizes[index]
        future = self._begin(node, output, size)
        self.roots.append(future)
        self._waiting.append((size, future))
        self._waiting_bytes += size
        while self._waiting_bytes > self._backlog:
            done, first = self._waiting.popleft()
            first.result()
            self._waiting_bytes -= done

    def _begin(self, node: Node, output: Tensor, size: int) -> Future[bytes]:
        if size > PLAIN_BYTES and not _uniform(output):
            return self._hasher.tensor_root(output, self._key)
        future: Future[bytes] = Future()
        future.set_result(output_tree(node, output, self._key).root)
        return future


def trace_step(
    program: Program,
    state: Sequence[Tensor],
    context: StepContext,
    key: bytes = b"",
    *,
    executor: Executor | None = None,
    patch: Patch | None = None,
    keep_bytes: int = KEEP_BYTES,
    hasher: Hasher | None = None,
) -> StepTrace:
    """Executes one step and commits to every node's output, hashing in the background. `key` is empty or 32
    bytes.

    Raises what the executor raises.
    """
    executor = executor or Executor(program)
    roots = _Roots(executor, key, hasher or shared(), keep_bytes, patch is not None)
    next_state = executor.step(state, context, roots.observe, patch)
    tree = trees.build([future.result() for future in roots.roots])
    kept = roots.kept
    return StepTrace(program, list(state), context, key, tree, next_state, executor, patch, kept)
