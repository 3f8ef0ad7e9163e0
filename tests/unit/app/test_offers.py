"""Solvers' announced prices and speeds: parsed strictly, and shown with the chain's stakes."""

from __future__ import annotations

import json
from contextlib import redirect_stdout
from io import StringIO
from types import SimpleNamespace
from typing import Any, cast

import pytest

from assay.app import offers
from assay.app.invocation import App
from assay.app.offers import Offer, offer_of, show_offers
from assay.app.output import Output
from assay.protocol.errors import PeerUnreachable
from assay.protocol.types import Address, Role, Wei

ANN, BOB, EVE = (Address("0x" + digit * 40) for digit in "123")
TOK = 10**18


def read(**body: Any) -> Offer:
    return offer_of(ANN, "http://ann", Wei(5), body)


def test_an_hour_is_the_price_times_the_speed() -> None:
    one = read(min_price="50 tok/1e15op", operations_per_second=10**12, up_s=90, action="waits")
    assert (one.price, one.operations_per_second, one.up_s, one.action) == (50 * TOK, 10**12, 90, "waits")
    assert one.hour == 180 * TOK, "3.6 times 10^15 operations"


@pytest.mark.parametrize(
    "price", ["", "12tok", "12tok/task", "nan tok/1e15op", "-1tok/1e15op", "9" * 500, 7, None]
)
def test_what_is_no_price_is_none(price: object) -> None:
    assert read(min_price=price, operations_per_second=1).price is read(min_price=price).hour is None


@pytest.mark.parametrize("value", [-1, 10**21, 1.5, True, "7", None, [], float("nan")])
def test_what_is_no_count_is_none(value: object) -> None:
    one = read(operations_per_second=value, up_s=value)
    assert one.operations_per_second is None and one.up_s is None


def shown(monkeypatch: pytest.MonkeyPatch, as_json: bool = False, **more: Any) -> str:
    """The output for three solvers, of which one does not answer."""
    stakes = {ANN: 5, BOB: 9, EVE: 7}
    urls = {ANN: "http://ann", BOB: "http://bob", EVE: "http://eve", Address("0x" + "4" * 40): ""}
    market = SimpleNamespace(
        endpoints=lambda: urls,
        stake=lambda account, role: SimpleNamespace(
            active=stakes[account] * TOK if role == Role.SOLVER else 0
        ),
    )

    def answer(url: str, private: object) -> dict[str, Any]:
        if url == "http://eve":
            raise PeerUnreachable("nobody")
        return {"min_price": "1 tok/1e15op" if url == "http://ann" else "0 tok/1e15op", "action": "a\x1b[31m"}

    monkeypatch.setattr(offers, "answer_of", answer)
    monkeypatch.setattr(offers, "networks_of", lambda app, account: ())
    output, out = Output(as_json, quiet=True), StringIO()
    settings = SimpleNamespace(keystore=more.pop("keystore"))
    app = cast(
        App, SimpleNamespace(view=lambda: SimpleNamespace(market=market), output=output, settings=settings)
    )
    with redirect_stdout(out):
        output.__post_init__()
        show_offers(app)
    return out.getvalue()


def test_the_most_staked_come_first_and_whoever_is_silent_is_counted(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    text = shown(monkeypatch, keystore=tmp_path)
    assert text.index("0x222222") < text.index("0x111111") and "0x333333" not in text
    assert "any price" in text and "1 tok/1e15op" in text and "\x1b" not in text
    assert "1 with a solver's stake do not answer" in text and "node's own word" in text
    monkeypatch.setattr(offers, "MOST_ASKED", 1)
    data = json.loads(shown(monkeypatch, as_json=True, keystore=tmp_path))["data"]
    assert [one["account"] for one in data["offers"]] == [BOB] and data["notAsked"] == 2


@pytest.mark.parametrize(
    ("says", "price"), [({"min_price": "3 tok/1e15op"}, 3 * TOK), ({"min_price": 7}, 0), ({}, 0), (None, 0)]
)
def test_the_price_of_ones_own_node_is_what_it_announces(
    monkeypatch: pytest.MonkeyPatch, says: dict[str, Any] | None, price: int
) -> None:
    monkeypatch.setattr(offers, "_answer", lambda app, urls, account: says)
    for url, expected in (("http://ann", price), ("", 0)):
        market = cast(Any, SimpleNamespace(me=ANN, endpoints=lambda url=url: {ANN: url}))
        assert offers.announced_price(cast(App, None), market) == expected
