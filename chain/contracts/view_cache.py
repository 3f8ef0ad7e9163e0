"""Caches decoded view results for one block, and fetches them in batches.

Contract: all results are of one block, named by its hash (EIP-1898), since `move` clears them. So two batches
never mix two chains, and after a reorganisation the node reports an unknown block. If a node does not accept
hashes, the block is named by its number, and its hash is compared after each batch; on a difference
`RpcUnreachable` is raised and the caller polls again. No view may depend on the caller's address. Not
thread-safe.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from assay.chain.contracts.lens import Lens
from assay.chain.eth.contract import Contract
from assay.chain.eth.rpc import BlockTag, Rpc, RpcFailed, get_block, hash_of
from assay.protocol.errors import RpcUnreachable
from assay.protocol.types import Address, JobId, Role

Key = tuple[Any, ...]
"""A question: contract name, view name, and arguments."""
CLOCK_KEY: Key = ("Clock", "hands")
"""Question for the market's clock."""
_INVALID_PARAMS = -32602
_ESCROW = 3
"""IVault.Bucket of escrow."""


class Answers:
    """Cached reads of named contracts. `block_hash` None: the block is only known by its number."""

    def __init__(
        self, rpc: Rpc, contracts: Mapping[str, Contract], block: int, block_hash: str | None
    ) -> None:
        self.block = block
        self._hash = block_hash
        self._takes_hashes = True
        self._rpc = rpc
        self._contracts = contracts
        self._lens = Lens(contracts["Lens"])
        self._known: dict[Key, Any] = {}

    def __contains__(self, key: Key) -> bool:
        return key in self._known

    @property
    def batch(self) -> int:
        """Number of questions per request at present."""
        return self._lens.size

    def are_of(self, block: int, block_hash: str | None) -> bool:
        """True if the cache is of this block."""
        return block_hash is not None and (block, block_hash) == (self.block, self._hash)

    def move(self, block: int, block_hash: str | None) -> None:
        """Clears the cache and reads at this block from now on."""
        self.block, self._hash = block, block_hash
        self._known.clear()

    def read(self, *key: Any) -> Any:
        """Returns one result, from the cache or the node. Raises what `Contract.read` raises."""
        if key not in self._known:
            contract, view, *arguments = key
            for tag in self._tags():
                try:
                    answer = self._contracts[contract].read(view, *arguments, block=tag)
                except RpcFailed as failure:
                    self._heed(failure, tag)
                    continue
                self._check_unchanged()
                self._known[key] = answer
                break
        return self._known[key]

    def gather(self, keys: Iterable[Key]) -> None:
        """Fetches unknown results in batches. Views that revert are left to `read`, which explains them.

        Raises what `Lens.answers` raises.
        """
        wanted = list(dict.fromkeys(keys))
        for tag in self._tags():
            missing = [key for key in wanted if key not in self._known]
            if len(missing) < 2:
                return
            views = [(self._contracts[key[0]], key[1], key[2:]) for key in missing]
            found: dict[Key, Any] = {}
            try:
                for place, answer in self._lens.answers(views, tag):
                    found[missing[place]] = answer
            except RpcFailed as failure:
                self._keep(found)
                self._heed(failure, tag)
                continue
            except RpcUnreachable:
                self._keep(found)
                raise
            self._keep(found)
            return

    def forget(self, keys: Iterable[Key]) -> None:
        """Drops results that are not needed again at this block."""
        for key in keys:
            self._known.pop(key, None)

    def _tags(self) -> list[BlockTag]:
        """Block tags to try: its hash, then its number if the node refused hashes."""
        by_hash: list[BlockTag] = [{"blockHash": self._hash, "requireCanonical": True}]
        return [*(by_hash if self._hash and self._takes_hashes else []), self.block]

    def _heed(self, failure: RpcFailed, tag: BlockTag) -> None:
        """Raises the failure unless it is only about how the block was named; then the next tag is tried.

        A node may fail in the same way if it lacks the block or its state.
        """
        if isinstance(tag, int) or failure.rpc_code != _INVALID_PARAMS or failure.lacks_block:
            raise failure
        self._takes_hashes = False

    def _keep(self, found: Mapping[Key, Any]) -> None:
        if found:
            self._check_unchanged()
            self._known.update(found)

    def _check_unchanged(self) -> None:
        if self._takes_hashes or self._hash is None:
            return
        block = get_block(self._rpc, self.block)
        if block is None or hash_of(block) != self._hash.lower():
            raise RpcUnreachable(
                f"a reorganisation replaced block {self.block} while it was read; nothing was concluded",
                hint="repeat the command; a node does so by itself",
            )


def standing_keys(job_id: JobId) -> tuple[Key, Key]:
    """Questions for a job's progress and its escrow."""
    return ("Jobs", "progress", job_id), ("Vault", "balance", _ESCROW, job_id)


def room_key(account: Address, role: Role, client: Address) -> Key:
    """Question for the stake that an account can still lock for a client's jobs."""
    return ("Stakes", "room", account, int(role), client)


def stake_keys(account: Address, role: Role) -> list[Key]:
    """Questions for an account's stake in a role, in the order of a ``StakeView``."""
    return [("Stakes", name, account, int(role)) for name in ("active", "locked", "unbonding")]
