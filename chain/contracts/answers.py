"""What contracts' views answer at one block, each asked once, and in batches where more is known to be asked.

Contract: all answers are of `block`, since `move` forgets them; no view may depend on who asks. Not safe to
share between threads; its owner takes turns.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from assay.chain.contracts.lens import Lens
from assay.chain.eth.contract import Contract

Key = tuple[Any, ...]
"""A question: the contract's name, its view's name, and the arguments."""


class Answers:
    """Reads of named contracts."""

    def __init__(self, contracts: Mapping[str, Contract], block: int) -> None:
        self.block = block
        self._contracts = contracts
        self._lens = Lens(contracts["Lens"])
        self._known: dict[Key, Any] = {}

    def __contains__(self, key: Key) -> bool:
        return key in self._known

    @property
    def batch(self) -> int:
        """Questions that go in one request at present."""
        return self._lens.size

    def move(self, block: int) -> None:
        """Answer as of this block from now on."""
        self.block = block
        self._known.clear()

    def read(self, *key: Any) -> Any:
        """The answer to one question. Raises what `Contract.read` raises."""
        if key not in self._known:
            contract, view, *arguments = key
            self._known[key] = self._contracts[contract].read(view, *arguments, block=self.block)
        return self._known[key]

    def gather(self, keys: Iterable[Key]) -> None:
        """Ask together what is not known. What reverts is left for `read` to explain.

        Raises what `Lens.answers` raises.
        """
        missing = [key for key in dict.fromkeys(keys) if key not in self._known]
        if len(missing) > 1:
            views = [(self._contracts[key[0]], key[1], key[2:]) for key in missing]
            for place, answer in self._lens.answers(views, self.block):
                self._known[missing[place]] = answer

    def forget(self, keys: Iterable[Key]) -> None:
        """Give room back: these will not be asked again at this block."""
        for key in keys:
            self._known.pop(key, None)
