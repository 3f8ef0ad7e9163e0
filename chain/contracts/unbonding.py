"""Lists unbonding requests with their present worth and due times.

Contract: at the view's latest block. Withdrawn and fully slashed requests are left out.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain

from assay.chain.contracts.view import ChainView
from assay.protocol.types import Address, Role, Seconds, Wei


@dataclass(frozen=True)
class UnbondRequest:
    """`index`: its number among the account's requests of this role."""

    role: Role
    index: int
    amount: Wei
    due: Seconds


def unbond_requests(view: ChainView, account: Address, role: Role) -> list[UnbondRequest]:
    """An account's unbonding requests of a role, oldest first. Raises RpcUnreachable."""
    stakes, found = view.contracts["Stakes"], []
    named = account.removeprefix("0x").lower()
    with view.snapshot():
        transactions = view.reader(lambda log: named in log).news().transactions
    for event in chain.from_iterable(transactions):
        a = event.arguments
        if event.name == "UnbondStarted" and a["account"] == account and a["role"] == role:
            left = stakes.read("request", account, int(role), a["index"])
            if left["amount"]:
                index = int(a["index"])
                found.append(UnbondRequest(role, index, Wei(left["amount"]), Seconds(left["due"])))
    return found
