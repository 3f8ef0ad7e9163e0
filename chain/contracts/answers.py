"""What contracts' views answer at one block, each asked once, and in batches where more is known to be asked.

Contract: all answers are of one block, named by its hash (EIP-1898), since `move` forgets them: so two
batches never mix two chains, and after a reorganisation the node says that it has no such block. From a node
that does not take hashes the block's number is asked for, and after each batch whether its hash is still the
same. If not, `RpcUnreachable` is raised: look again. No view may depend on who asks. Not safe to share
between threads; its owner takes turns.
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
"""A question: the contract's name, its view's name, and the arguments."""
CLOCK_KEY: Key = ("Clock", "hands")
"""How far the market's deadlines have come."""
_INVALID_PARAMS = -32602
_ESCROW = 3
"""IVault.Bucket."""


class Answers:
    """Reads of named contracts. `block_hash` None: of a block that is known by its number only."""

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
        """Questions that go in one request at present."""
        return self._lens.size

    def are_of(self, block: int, block_hash: str | None) -> bool:
        """Whether the answers are of this very block."""
        return block_hash is not None and (block, block_hash) == (self.block, self._hash)

    def move(self, block: int, block_hash: str | None) -> None:
        """Answer as of this block from now on."""
        self.block, self._hash = block, block_hash
        self._known.clear()

    def read(self, *key: Any) -> Any:
        """The answer to one question. Raises what `Contract.read` raises."""
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
        """Ask together what is not known. What reverts is left for `read` to explain.

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
        """Give room back: these will not be asked again at this block."""
        for key in keys:
            self._known.pop(key, None)

    def _tags(self) -> list[BlockTag]:
        """How to name the block: by its hash, and by its number to a node that refuses that."""
        by_hash: list[BlockTag] = [{"blockHash": self._hash, "requireCanonical": True}]
        return [*(by_hash if self._hash and self._takes_hashes else []), self.block]

    def _heed(self, failure: RpcFailed, tag: BlockTag) -> None:
        """A refusal that is about the way to name a block, and no other, is no failure. Of a block that it
        does not have, or no longer its state, a node may say the same."""
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
                f"block {self.block} was replaced while it was read; nothing was concluded", hint="look again"
            )


def standing_keys(job_id: JobId) -> tuple[Key, Key]:
    """Where a job stands: its progress and what is left in escrow."""
    return ("Jobs", "progress", job_id), ("Vault", "balance", _ESCROW, job_id)


def room_key(account: Address, role: Role, client: Address) -> Key:
    """What an account can still lock for a client's jobs."""
    return ("Stakes", "room", account, int(role), client)


def stake_keys(account: Address, role: Role) -> list[Key]:
    """An account's stake in a role, in the order of a ``StakeView``."""
    return [("Stakes", name, account, int(role)) for name in ("active", "locked", "unbonding")]
