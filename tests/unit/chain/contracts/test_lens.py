"""Batches of views: their order, what a node that refuses them gets, and what a refused view costs."""

from __future__ import annotations

from typing import Any

import pytest

from assay.chain.contracts.artifacts import Artifacts
from assay.chain.contracts.lens import MOST_VIEWS, Lens, View
from assay.chain.eth.contract import Contract
from assay.chain.eth.rpc import RpcFailed
from assay.protocol.errors import AssayError, Reverted, RpcUnreachable
from tests.fakes.market_node import ADDRESSES, MarketNode


class Picky(MarketNode):
    """A node that takes only so many views at once, and tells how many each batch had."""

    def __init__(self, artifacts: Artifacts, most: int, refusal: AssayError) -> None:
        super().__init__(artifacts)
        self.most, self.refusal = most, refusal
        self.sizes: list[int] = []
        self.answers = {"free": lambda account: int(account, 16)}

    def eth_call(self, transaction: dict[str, Any], tag: str) -> str:
        before = len(self.views)
        answer = super().eth_call(transaction, tag)
        self.sizes.append(len(self.views) - before)
        if self.sizes[-1] > self.most:
            raise self.refusal
        return answer


TOO_MUCH = [
    RpcFailed("eth_call", -32000, "out of gas: gas required exceeds: 50000000", ""),
    RpcFailed("eth_call", -32000, "execution aborted (timeout = 5s)", ""),
    RpcFailed("eth_call", 3, "execution reverted", ""),
    RpcFailed("eth_call", 413, "the request is too large", ""),
]


def lens_of(node: MarketNode) -> Lens:
    return Lens(Contract(node, "Lens", ADDRESSES["Lens"], node.artifacts["Lens"].abi))


def views_of(node: MarketNode, count: int) -> list[View]:
    """Views whose answers are 0, 1, 2, ..."""
    vault = Contract(node, "Vault", ADDRESSES["Vault"], node.artifacts["IVault"].abi)
    return [(vault, "free", (f"0x{number:040x}",)) for number in range(count)]


def numbered(count: int) -> list[tuple[int, int]]:
    return [(number, number) for number in range(count)]


@pytest.mark.parametrize("count", [0, 1, MOST_VIEWS, MOST_VIEWS + 1, 3 * MOST_VIEWS - 1])
def test_every_view_is_answered_in_its_place_by_as_few_requests_as_go(
    artifacts: Artifacts, count: int
) -> None:
    node = Picky(artifacts, MOST_VIEWS, TOO_MUCH[0])
    assert list(lens_of(node).answers(views_of(node, count), 0)) == numbered(count)
    assert len(node.sizes) == -(-count // MOST_VIEWS)


@pytest.mark.parametrize("refusal", TOO_MUCH, ids=lambda refusal: refusal.text)
def test_what_a_node_refuses_is_asked_in_halves_that_stay(artifacts: Artifacts, refusal: RpcFailed) -> None:
    node = Picky(artifacts, 100, refusal)
    lens = lens_of(node)
    assert list(lens.answers(views_of(node, 620), 0)) == numbered(620)
    assert node.sizes == [500, 250, 125, *([62] * 8), 124, 62, 62]
    assert lens.size == 62


@pytest.mark.long
def test_a_batch_grows_again_and_never_beyond_the_most(artifacts: Artifacts) -> None:
    node = Picky(artifacts, 100, TOO_MUCH[0])
    lens = lens_of(node)
    list(lens.answers(views_of(node, 500), 0))
    node.most = MOST_VIEWS
    list(lens.answers(views_of(node, 20_000), 0))
    assert lens.size == MOST_VIEWS == max(node.sizes)


def test_a_node_that_refuses_even_one_view_is_heard_after_nine_requests(artifacts: Artifacts) -> None:
    """One that is over its rate, say: it is not asked view by view."""
    node = Picky(artifacts, 0, RpcFailed("eth_call", -32005, "rate limited", ""))
    lens = lens_of(node)
    with pytest.raises(RpcFailed, match="rate limited"):
        list(lens.answers(views_of(node, 1_000), 0))
    assert node.sizes == [500, 250, 125, 62, 31, 15, 7, 3, 1]
    assert lens.size == MOST_VIEWS, "it was not the size"


def test_a_batch_without_an_answer_is_half_as_large_the_next_time(artifacts: Artifacts) -> None:
    """A gateway that gives up on what takes long, say: asked again at once it would only take as long."""
    node = Picky(artifacts, 100, RpcUnreachable("HTTP status 504", hint="wait"))
    lens = lens_of(node)
    for _ in range(2):
        with pytest.raises(RpcUnreachable):
            list(lens.answers(views_of(node, 300), 0))
    assert list(lens.answers(views_of(node, 300), 0)) == numbered(300)
    assert node.sizes == [300, 150, 75, 75, 75, 75]


def test_a_view_that_reverts_is_left_out_alone(artifacts: Artifacts) -> None:
    node = Picky(artifacts, MOST_VIEWS, TOO_MUCH[0])

    def free(account: str) -> int:
        if int(account, 16) == 3:
            raise Reverted("no", error="No", args={})
        return int(account, 16)

    node.answers = {"free": free}
    assert list(lens_of(node).answers(views_of(node, 5), 0)) == [(0, 0), (1, 1), (2, 2), (4, 4)]
