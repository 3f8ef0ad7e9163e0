"""Several endpoints as one node: repeated, replaced, doubted and compared."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from time import sleep
from typing import Any

import pytest

from assay.chain.eth.endpoints import PROBES, Endpoints, EndpointsDisagree, RetryPolicy
from assay.chain.eth.head_tracker import EndpointLagging
from assay.chain.eth.rpc import RateLimited, RpcFailed
from assay.protocol.errors import RpcUnreachable
from tests.unit.chain.eth.fake_node import FakeNode

DOWN = RpcUnreachable("it is down")
BUSY = RpcFailed("eth_call", -32005, "rate limit exceeded", "")
REVERTED = RpcFailed("eth_call", 3, "execution reverted: not found", "0x1234")


class Time:
    """Moves when somebody sleeps."""

    now = 0.0

    def clock(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


class Flaky:
    """An endpoint over a node that fails as a test says; counts what reaches it."""

    def __init__(self, name: str, node: FakeNode) -> None:
        self.shown_url, self.node = name, node
        self.faults: list[Exception | None] = []
        """Answers instead of the next ones."""
        self.change: Callable[[str, Any], Any] = lambda method, answer: answer
        self.asked: list[str] = []
        self.limits: list[float] = []

    def ask(self, method: str, params: list[Any], timeout_s: float) -> Any:
        self.asked.append(method)
        self.limits.append(timeout_s)
        fault = self.faults.pop(0) if self.faults else None
        if fault is not None:
            raise fault
        return self.change(method, self.node.request(method, params))


@pytest.fixture
def node() -> FakeNode:
    node = FakeNode()
    for _ in range(10):
        node.mine()
    return node


def made(*endpoints: Flaky, **patience: Any) -> tuple[Endpoints, Time]:
    time = Time()
    return Endpoints(endpoints, RetryPolicy(**patience), clock=time.clock, sleep=time.sleep, seed=1), time


def test_a_fault_costs_a_pause_and_no_more(node: FakeNode) -> None:
    one = Flaky("one", node)
    one.faults = [DOWN, BUSY, None, DOWN]
    endpoints, time = made(one)
    assert endpoints.request("eth_blockNumber", []) == "0xa"
    assert len(one.asked) == 3 and 0 < time.now < 0.5
    assert endpoints.request("eth_blockNumber", []) == "0xa"
    assert endpoints.counters["repeated"] == 3 and endpoints.troubles() == {}


def test_tries_are_bounded_and_have_ever_more_time(node: FakeNode) -> None:
    one = Flaky("one", node)
    one.faults = [DOWN] * 100
    endpoints, time = made(one, tries=4, first_limit_s=2.0, last_limit_s=10.0)
    with pytest.raises(RpcUnreachable):
        endpoints.request("eth_blockNumber", [])
    assert one.limits == [2.0, 4.0, 8.0, 10.0]
    assert time.now < 2 and list(endpoints.troubles()) == ["one"]


def test_a_refusal_is_an_answer_and_is_not_repeated(node: FakeNode) -> None:
    one = Flaky("one", node)
    one.faults = [REVERTED]
    endpoints, _ = made(one)
    with pytest.raises(RpcFailed):
        endpoints.request("eth_call", [{}, "latest"])
    assert len(one.asked) == 1


def test_a_development_nodes_own_methods_are_never_repeated(node: FakeNode) -> None:
    one = Flaky("one", node)
    one.faults = [DOWN]
    with pytest.raises(RpcUnreachable):
        made(one)[0].request("evm_mine", [])
    assert one.asked == ["evm_mine"]


def test_a_second_endpoint_takes_over_at_once_and_the_first_comes_back(node: FakeNode) -> None:
    one, two = Flaky("one", node), Flaky("two", node)
    one.faults = [DOWN] * 3
    endpoints, time = made(one, two)
    assert endpoints.request("eth_getBalance", ["0x", "0xa"])
    assert (len(one.asked), len(two.asked)) == (1, 1)
    assert endpoints.counters["taken_over"] == 1 and "one" in endpoints.troubles()
    endpoints.request("eth_getBalance", ["0x", "0xa"])
    assert (len(one.asked), len(two.asked)) == (1, 2), "it rests"
    one.faults = []
    time.now += 60
    endpoints.request("eth_getBalance", ["0x", "0xa"])
    assert len(one.asked) == 2 and endpoints.troubles() == {}


def test_attack_47_a_stale_head_is_not_believed_at_once(node: FakeNode) -> None:
    one = Flaky("one", node)
    endpoints, _ = made(one)
    assert endpoints.request("eth_blockNumber", []) == "0xa"
    stale = iter(["0x7", "0x6"])
    one.change = lambda method, answer: next(stale, answer)
    assert endpoints.request("eth_blockNumber", []) == "0xa"
    assert endpoints.counters["doubted"] == 2


def test_attack_T47_a_head_that_stays_behind_is_an_error_for_a_minute(node: FakeNode) -> None:
    """The chain was reorganised to a shorter one, as a development chain is: no head reaches the old one."""
    one = Flaky("one", node)
    endpoints, time = made(one, went_back_s=60.0)
    endpoints.request("eth_blockNumber", [])
    node.reorganise(5)
    for method, params in (("eth_blockNumber", []), LATEST):
        with pytest.raises(
            EndpointLagging, match="one is behind by 5 blocks: block 10 was seen before"
        ) as met:
            endpoints.request(method, params)
        assert met.value.blocks == 5 and isinstance(met.value, RpcUnreachable)
    assert endpoints.troubles() == {"one": "it is behind by 5 blocks"} and time.now < 30
    time.now += 60
    assert endpoints.request("eth_blockNumber", []) == "0x5"
    one.asked.clear()
    assert endpoints.request("eth_blockNumber", []) == "0x5" and len(one.asked) == 1
    time.now += 60.1
    assert endpoints.troubles() == {}


class Balanced(Flaky):
    """Two nodes behind one address, asked in turn: the second one is some blocks behind."""

    def __init__(self, node: FakeNode, blocks: int) -> None:
        super().__init__("one", node)
        self.behind, self.blocks = FakeNode(), blocks

    def ask(self, method: str, params: list[Any], timeout_s: float) -> Any:
        self.behind.blocks = self.node.blocks[: -self.blocks]
        self.asked.append(method)
        node = self.behind if len(self.asked) % 2 else self.node
        if method == "eth_call" and int(params[1], 16) >= len(node.blocks):
            raise RpcFailed("eth_call", -32000, "header not found", "")
        return node.request(method, params)


@pytest.mark.parametrize("blocks", [3, 8, 20])
def test_attack_T47_two_nodes_behind_one_address_are_the_newer_one(blocks: int) -> None:
    node = FakeNode()
    for _ in range(30):
        node.mine()
    endpoints, _ = made(Balanced(node, blocks), probes=PROBES)
    for _ in range(10):
        node.mine()
        newest = hex(len(node.blocks) - 1)
        assert endpoints.request(*LATEST)["number"] == newest == endpoints.request("eth_blockNumber", [])
        assert endpoints.request("eth_getBlockByNumber", [newest, False])["number"] == newest
        assert endpoints.request("eth_call", [{}, "latest"]) == "0x"
    assert endpoints.troubles() == {"one": f"it is behind by {blocks} blocks"}


def test_attack_T47_a_new_process_begins_with_the_newest_head_that_it_can_learn(node: FakeNode) -> None:
    """Were the first answer believed, a command that is given once would tell what was."""
    assert made(Balanced(node, 5), probes=1)[0].request("eth_blockNumber", []) == "0x5"
    assert made(Balanced(node, 5), probes=PROBES)[0].request("eth_blockNumber", []) == "0xa"


def test_attack_T47_a_new_process_knows_what_an_earlier_one_has_read(node: FakeNode) -> None:
    endpoints, _ = made(Flaky("one", node))
    endpoints.has_seen(30, Path("events.db"))
    with pytest.raises(EndpointLagging, match="by 20 blocks"):
        endpoints.request(*LATEST)


def test_attack_T47_what_is_asked_of_the_latest_state_is_asked_at_its_block(node: FakeNode) -> None:
    one = Flaky("one", node)
    named: list[str] = []
    node.eth_call = lambda transaction, tag: named.append(tag) or "0x"
    endpoints, _ = made(one)
    endpoints.request("eth_call", [{}, "latest"])
    node.mine()
    endpoints.request("eth_call", [{}, "latest"])
    endpoints.request("eth_call", [{}, "pending"])
    assert named == ["0xa", "0xb", "pending"]


def test_attack_T47_a_block_of_a_receipt_was_seen(node: FakeNode) -> None:
    """Effects of a transaction are not read from a node that lacks its block."""
    node.foreign("0x" + "33" * 20)
    (sent,) = node.blocks[-1].transactions
    sent.hash = "0x" + "44" * 32
    one = Flaky("one", node)
    endpoints, _ = made(one)
    assert endpoints.request("eth_getTransactionReceipt", [sent.hash])["blockNumber"] == "0xb"
    node.lag = 1
    with pytest.raises(EndpointLagging, match="by 1 block:"):
        endpoints.request("eth_call", [{}, "latest"])


def test_a_head_that_another_thread_has_overtaken_is_not_behind(node: FakeNode) -> None:
    one = Flaky("one", node)
    endpoints, _ = made(one)

    def overtaken(method: str, answer: Any) -> Any:
        one.change = lambda method, answer: answer
        node.mine()
        assert endpoints.request("eth_blockNumber", []) == "0xb"
        return answer

    one.change = overtaken
    assert endpoints.request("eth_blockNumber", []) == "0xa"
    assert not endpoints.counters["doubted"] and endpoints.troubles() == {}
    node.lag = 1
    with pytest.raises(EndpointLagging):
        endpoints.request("eth_blockNumber", [])


def test_attack_T47_of_two_endpoints_none_leads_back_behind_what_was_seen(node: FakeNode) -> None:
    slow = FakeNode()
    slow.blocks = node.blocks[:8]
    one, two = Flaky("one", node), Flaky("two", slow)
    endpoints, _ = made(one, two)
    two.faults = [DOWN]
    assert endpoints.request("eth_blockNumber", []) == "0xa"
    two.faults = []
    endpoints._all[1].rests_until = float("-inf")
    assert endpoints.request("eth_blockNumber", []) == "0xa", "the slower one has come back"
    one.faults = [DOWN] * 99
    with pytest.raises(EndpointLagging, match="two is behind by 3 blocks"):
        endpoints.request("eth_blockNumber", [])


def test_attack_47_a_block_that_is_suddenly_unknown_is_asked_for_again(node: FakeNode) -> None:
    one = Flaky("one", node)
    endpoints, _ = made(one)
    endpoints.request("eth_blockNumber", [])
    nulls = iter([None])
    one.change = lambda method, answer: next(nulls, answer)
    assert endpoints.request("eth_getBlockByNumber", ["0x5", False])["number"] == "0x5"


@pytest.mark.parametrize("method", ["eth_getLogs", "eth_getBlockByNumber", "eth_call"])
def test_attack_47_a_lie_of_either_endpoint_is_no_answer(node: FakeNode, method: str) -> None:
    log = {"address": "0x" + "11" * 20, "topics": [], "data": "0x"}
    node.mine([log])
    wanted: dict[str, list[Any]] = {
        "eth_getLogs": [{"fromBlock": "0x1", "toBlock": "0xb"}],
        "eth_getBlockByNumber": ["0x5", False],
        "eth_call": [{}, {"blockHash": node.blocks[5].hash}],
    }
    params = wanted[method]

    def lie(method: str, answer: Any) -> Any:
        if isinstance(answer, dict):
            return {**answer, "hash": "0x" + "99" * 32}
        return [] if isinstance(answer, list) else "0x99"

    for liar in (0, 1):
        pair = Flaky("one", node), Flaky("two", node)
        honest = made(*pair)[0].request(method, params)
        assert honest or method == "eth_call"
        pair[liar].change = lie
        with pytest.raises(EndpointsDisagree, match=r"one and two|two and one"):
            made(*pair)[0].request(method, params)


def _with(name: str, value: Any) -> Callable[[str, Any], Any]:
    """A lie about one field of a block, of each of its transactions, or of each log."""

    def lie(method: str, answer: Any) -> Any:
        if isinstance(answer, list):
            return [{**log, name: value} for log in answer]
        if name not in answer:
            return {**answer, "transactions": [{**each, name: value} for each in answer["transactions"]]}
        return {**answer, name: value}

    return lie


OTHER = "0x" + "99" * 32
LIES: list[tuple[str, str, Any]] = [
    *(("eth_getBlockByNumber", name, OTHER) for name in ("hash", "parentHash")),
    *(("eth_getBlockByNumber", name, "0x77") for name in ("number", "timestamp", "baseFeePerGas")),
    *(("eth_getBlockByNumber", name, value) for name, value in (("from", OTHER[:42]), ("nonce", "0x77"))),
    *(("eth_getLogs", name, OTHER) for name in ("data", "blockHash", "transactionHash")),
    *(("eth_getLogs", name, "0x77") for name in ("blockNumber", "logIndex")),
    *(
        ("eth_getLogs", name, lie)
        for name, lie in (("address", OTHER[:42]), ("topics", []), ("removed", True))
    ),
]


@pytest.mark.parametrize(("method", "name", "value"), LIES, ids=[f"{lie[0]}-{lie[1]}" for lie in LIES])
def test_attack_T33_a_lie_about_any_field_that_is_read_is_no_answer(
    node: FakeNode, method: str, name: str, value: Any
) -> None:
    """A false parent kept a dead block's events for good; a false time had a verifier fined."""
    node.foreign("0x" + "33" * 20)
    node.mine([{"address": "0x" + "11" * 20, "topics": [OTHER], "data": "0x"}])
    params = [{"fromBlock": "0x1", "toBlock": "0xc"}] if method == "eth_getLogs" else ["0xb", True]
    for liar in (0, 1):
        pair = Flaky("one", node), Flaky("two", node)
        assert made(*pair)[0].request(method, params)
        pair[liar].change = _with(name, value)
        with pytest.raises(EndpointsDisagree):
            made(*pair)[0].request(method, params)


def test_the_same_answer_in_another_spelling_is_the_same(node: FakeNode) -> None:
    node.mine([{"address": "0x" + "ab" * 20, "topics": ["0x" + "cd" * 32], "data": "0xef"}])
    one, two = Flaky("one", node), Flaky("two", node)

    def spelt(method: str, answer: Any) -> Any:
        def other(value: Any) -> Any:
            return "0x" + value[2:].upper() if isinstance(value, str) else value

        answers = answer if isinstance(answer, list) else [answer]
        found = [{name: other(value) for name, value in each.items() if value} for each in answers]
        return found if isinstance(answer, list) else {**found[0], "size": "0x5", "transactions": []}

    two.change = spelt
    endpoints, _ = made(one, two)
    assert endpoints.request("eth_getLogs", [{"fromBlock": "0x1", "toBlock": "0xb"}])
    assert endpoints.request("eth_getBlockByNumber", ["0xa", False])
    assert not endpoints.counters["uncompared"] and len(two.asked) == 2


def test_a_difference_that_passes_is_none(node: FakeNode) -> None:
    """The chain moved on between the two questions."""
    one, two = Flaky("one", node), Flaky("two", node)
    endpoints, _ = made(one, two)
    old = iter([{**node.eth_getBlockByNumber("0x5", False), "hash": "0x" + "99" * 32}])  # type: ignore[dict-item]
    one.change = lambda method, answer: next(old, answer)
    assert endpoints.request("eth_getBlockByNumber", ["0x5", False])["hash"] == node.blocks[5].hash


def test_an_endpoint_that_is_behind_is_no_liar_and_the_lower_head_counts(node: FakeNode) -> None:
    behind = FakeNode()
    behind.blocks = node.blocks[:8]
    one, two = Flaky("one", node), Flaky("two", behind)
    endpoints, _ = made(one, two)
    assert endpoints.request("eth_blockNumber", []) == "0x7"
    assert endpoints.request("eth_getBlockByNumber", ["0x9", False])["number"] == "0x9"
    assert endpoints.counters["uncompared"] == 1


def test_an_endpoint_that_stands_still_is_left_behind(node: FakeNode) -> None:
    stuck = FakeNode()
    stuck.blocks = list(node.blocks)
    one, two = Flaky("one", node), Flaky("two", stuck)
    endpoints, time = made(one, two, still_s=60.0)
    heads = []
    for _ in range(10):
        node.mine()
        time.now += 10
        heads.append(int(endpoints.request("eth_blockNumber", []), 16))
    assert heads[0] == 10 and heads[-1] == 20


def test_an_endpoint_that_invents_a_head_holds_nobody_up(node: FakeNode) -> None:
    one, two = Flaky("one", node), Flaky("two", node)
    one.change = lambda method, answer: "0xffffff"
    endpoints, time = made(one, two)
    for _ in range(5):
        node.mine()
        time.now += 30
        assert endpoints.request("eth_blockNumber", []) == hex(len(node.blocks) - 1)


def test_with_one_endpoint_down_the_other_serves_and_that_is_said(node: FakeNode) -> None:
    one, two = Flaky("one", node), Flaky("two", node)
    two.faults = [DOWN] * 1000
    endpoints, _ = made(one, two)
    for _ in range(5):
        assert endpoints.request("eth_blockNumber", []) == "0xa"
        assert endpoints.request("eth_getLogs", [{"fromBlock": "0x1", "toBlock": "0x5"}]) == []
    assert endpoints.counters["uncompared"] == 5 and endpoints.troubles() == {"two": "it is down"}


LATEST = ("eth_getBlockByNumber", ["latest", False])


def test_a_fresh_latest_block_serves_all_who_ask_until_something_may_have_moved(node: FakeNode) -> None:
    one = Flaky("one", node)
    endpoints, time = made(one, fresh_s=0.2)
    assert endpoints.request(*LATEST) == endpoints.request(*LATEST)
    assert len(one.asked) == 1
    block = node.mine()
    assert endpoints.request(*LATEST)["number"] == "0xa", "not older than 0.2 s"
    endpoints.request("eth_blockNumber", [])
    assert endpoints.request(*LATEST)["hash"] == block.hash
    node.mine()
    time.now += 0.2
    assert endpoints.request(*LATEST)["number"] == "0xc"
    node.mine()
    endpoints.request("eth_getTransactionReceipt", ["0x" + "11" * 32])
    assert endpoints.request(*LATEST)["number"] == "0xd"


def test_the_latest_block_of_several_is_the_one_that_they_share(node: FakeNode) -> None:
    behind = FakeNode()
    behind.blocks = node.blocks[:-2]
    endpoints, _ = made(Flaky("one", node), Flaky("two", behind))
    assert endpoints.request(*LATEST)["number"] == "0x8"
    behind.blocks = node.blocks
    assert endpoints.request(*LATEST)["number"] == "0xa"


@pytest.mark.parametrize(
    "text",
    [
        "missing trie node 12ab (path ) state 0x12 is not available, not found",
        "historical state 12ab is not available",
        "old data not available due to pruning",
        "No state available for block 0x12",
        "BlockOutOfRangeError: block height is 12 but requested was 11",
    ],
)
def test_an_endpoint_without_the_state_is_not_said_to_disagree(node: FakeNode, text: str) -> None:
    """A pruning endpoint next to an archive one: the answer stands, uncompared. Alone, it is asked again."""
    one, other = Flaky("one", node), Flaky("other", node)
    endpoints, _ = made(one, other)
    other.faults = [RpcFailed("eth_call", -32000, text, "")] * 3
    assert endpoints.request("eth_call", [{}, "0x3"]) == "0x"
    assert endpoints.counters["uncompared"] == 1 and len(other.asked) == 3
    one.faults = [RpcFailed("eth_call", -32000, text, "")]
    assert endpoints.request("eth_call", [{}, "0x3"]) == "0x"
    assert endpoints.counters["repeated"] == 1, "the other one had it"


def test_attack_47_a_refusal_or_nothing_where_a_block_was_given_is_no_answer(node: FakeNode) -> None:
    """The witness refuses the question, and the first endpoint then has no answer either."""
    one, two = Flaky("one", node), Flaky("two", node)
    two.faults = [REVERTED] * 9
    endpoints, _ = made(one, two)
    with pytest.raises(EndpointsDisagree):
        endpoints.request("eth_getBlockByNumber", ["0x5", False])
    assert two.asked

    one.change = lambda method, answer: answer if len(one.asked) < 2 else None
    one.asked.clear()
    two.faults = []
    two.change = lambda method, answer: {**answer, "hash": "0x" + "12" * 32}
    with pytest.raises(EndpointsDisagree):
        endpoints.request("eth_getBlockByNumber", ["0x5", False])
    assert len(one.asked) >= 2


@pytest.mark.parametrize("down", [0, 1])
def test_attack_T31_an_endpoint_that_is_down_for_a_night_blinds_nobody(node: FakeNode, down: int) -> None:
    """After a thousand failures in a row its rest was no number, and every request raised OverflowError."""
    pair = Flaky("one", node), Flaky("two", node)
    pair[down].faults = [DOWN] * 2_000
    endpoints, time = made(*pair)
    for _ in range(1_200):
        time.now += 60
        assert endpoints.request("eth_blockNumber", []) == "0xa"
    assert len(pair[down].asked) == 1_200 and endpoints._all[down].rests_until <= time.now + 30
    pair[down].faults = []
    time.now += 60
    assert endpoints.request("eth_blockNumber", []) == "0xa" and not endpoints.troubles()


class Hanging(Flaky):
    """Answers nothing; a question ends when the test says."""

    def __init__(self, node: FakeNode) -> None:
        super().__init__("hanging", node)
        self.ends: list[threading.Event] = []

    def ask(self, method: str, params: list[Any], timeout_s: float) -> Any:
        self.ends.append(threading.Event())
        assert self.ends[-1].wait(10)
        raise DOWN


def test_attack_47_an_endpoint_that_hangs_rests_ever_longer(node: FakeNode) -> None:
    """Even if many questions overlap: of those that begin a second apart and time out after two, every
    second or third counts as a failure."""
    endpoints, time = made(hanging := Hanging(node))
    watched, asking = endpoints._all[0], []

    def asks() -> None:
        with suppress(RpcUnreachable):
            watched.ask("eth_blockNumber", [], 2.0)

    for second in range(20):
        time.now = float(second)
        asking.append(threading.Thread(target=asks))
        asking[-1].start()
        while len(hanging.ends) < len(asking):
            sleep(0.001)
        if second >= 2:
            hanging.ends[second - 2].set()
            asking[second - 2].join(10)
    assert watched.rests_until == 19.0 + 30.0
    for end in hanging.ends:
        end.set()


@pytest.mark.parametrize("after_s", [None, 1.0], ids=["times out", "is over its rate"])
def test_attack_T39_what_fails_together_is_one_failure(node: FakeNode, after_s: float | None) -> None:
    """Six questions at once, as a look asks them, cost an honest endpoint a rest of half a second, not 16;
    else what the other one says would be compared with nothing meanwhile."""
    honest, other = Flaky("honest", node), Flaky("other", node)
    endpoints, time = made(honest, other)
    together = threading.Barrier(6)

    def fails(method: str, params: list[Any], timeout_s: float) -> Any:
        together.wait(10)
        time.now = after_s or timeout_s
        raise DOWN

    honest.ask, answered = fails, honest.ask
    asking = [
        threading.Thread(target=endpoints.request, args=("eth_getBlockByNumber", [hex(n), False]))
        for n in range(6)
    ]
    for each in asking:
        each.start()
    for each in asking:
        each.join(10)
    assert endpoints.counters["uncompared"] == 6, "each was answered by the other one alone"
    failed_s = after_s or RetryPolicy().first_limit_s
    assert failed_s < endpoints._all[0].rests_until <= failed_s + 0.5
    assert list(endpoints.troubles()) == ["honest"]
    time.now, honest.ask = failed_s + 0.6, answered
    endpoints.request("eth_getBlockByNumber", ["0x1", False])
    assert endpoints.counters["uncompared"] == 6 and not endpoints.troubles()


def receipt_of(node: FakeNode, block: int, **said: Any) -> dict[str, Any]:
    found = {"transactionHash": OTHER, "blockNumber": hex(block), "blockHash": node.blocks[-1].hash}
    return {**found, "gasUsed": "0x5208", "status": "0x1", "contractAddress": None, "logs": [], **said}


RECEIPT = ("eth_getTransactionReceipt", [OTHER])


@pytest.mark.parametrize("liar", [0, 1])
@pytest.mark.parametrize(
    "lie", [{"status": "0x0"}, {"blockNumber": "0x3"}, {"contractAddress": OTHER[:42]}, None], ids=str
)
def test_attack_T41_a_receipt_is_what_two_endpoints_give(
    node: FakeNode, liar: int, lie: dict[str, Any] | None
) -> None:
    """One that is invented, or denied, or says of a failed transaction that it went well."""
    true = receipt_of(node, 10)
    pair = Flaky("one", node), Flaky("two", node)
    for flaky in pair:
        flaky.change = lambda method, answer: true if method == RECEIPT[0] else answer
    assert made(*pair)[0].request(*RECEIPT) == true
    told = None if lie is None else {**true, **lie}
    pair[liar].change = lambda method, answer: told if method == RECEIPT[0] else answer
    endpoints, time = made(*pair)
    if lie is None and liar == 0:
        for _ in range(2):
            assert endpoints.request(*RECEIPT) is None and not endpoints.troubles(), "for a moment any may"
        time.now += 60
        assert endpoints.request(*RECEIPT) is None, "the sender looks who has the nonce"
        assert endpoints.troubles() == {"one": "it has no receipt of what two has in a block of both"}
        pair[0].change = lambda method, answer: true if method == RECEIPT[0] else answer
        assert endpoints.request(*RECEIPT) == true and not endpoints.troubles()
        return
    with pytest.raises(EndpointsDisagree):
        endpoints.request(*RECEIPT)


def test_a_receipt_that_the_second_alone_has_is_never_believed(node: FakeNode) -> None:
    """It may be invented, of a block to come; or the first lags behind."""
    one, two = Flaky("one", node), Flaky("two", node)
    ahead = receipt_of(node, 1_000)
    one.change = lambda method, answer: None if method == RECEIPT[0] else answer
    two.change = lambda method, answer: ahead if method == RECEIPT[0] else answer
    endpoints, time = made(one, two)
    for _ in range(3):
        assert endpoints.request(*RECEIPT) is None and not endpoints.troubles()
        time.now += 61


def test_attack_T41_a_receipt_of_a_block_that_only_one_knows_is_none_yet(node: FakeNode) -> None:
    behind = FakeNode()
    behind.blocks = node.blocks[:-1]
    one, two = Flaky("one", node), Flaky("two", behind)
    one.change = lambda method, answer: receipt_of(node, 10) if method == RECEIPT[0] else answer
    endpoints, time = made(one, two, still_s=60.0)
    assert endpoints.request(*RECEIPT) is None
    time.now += 61
    endpoints.request("eth_blockNumber", [])
    assert endpoints.request(*RECEIPT) is None, "its head was seen to move a moment ago"
    time.now += 61
    assert endpoints.request(*RECEIPT) == receipt_of(node, 10), "whoever stands still holds nobody up"
    assert endpoints.counters["uncompared"] == 1


def test_a_receipt_that_nobody_knows_is_none(node: FakeNode) -> None:
    pair = Flaky("one", node), Flaky("two", node)
    for flaky in pair:
        flaky.change = lambda method, answer: None if method == RECEIPT[0] else answer
    assert made(*pair)[0].request(*RECEIPT) is None
    pair[1].faults = [DOWN]
    assert made(*pair)[0].request(*RECEIPT) is None, "who does not answer knows none"


def test_attack_T45_who_is_past_a_receipts_block_and_has_none_denies_it(node: FakeNode) -> None:
    """Its head advances, and it denies only the receipt's block."""
    one, two = Flaky("one", node), Flaky("two", node)
    one.change = lambda method, answer: receipt_of(node, 10) if method == RECEIPT[0] else answer
    hidden = (RECEIPT[0], "eth_getBlockByNumber")
    two.change = lambda method, answer: None if method in hidden else answer
    endpoints, _ = made(one, two, still_s=60.0)
    assert endpoints.request(*RECEIPT) is None and endpoints.counters["awaited"] == 1
    endpoints.request("eth_blockNumber", [])
    with pytest.raises(EndpointsDisagree):
        endpoints.request(*RECEIPT)


@pytest.mark.parametrize("second", ["denies", "differs"])
def test_a_receipt_that_is_gone_when_asked_for_again_is_none(node: FakeNode, second: str) -> None:
    """As after a reorganisation between both questions."""
    true = receipt_of(node, 10)
    given: list[dict[str, Any] | None] = [true]
    told = None if second == "denies" else {**true, "status": "0x0"}
    pair = Flaky("one", node), Flaky("two", node)
    pair[0].change = lambda m, answer: (given.pop() if given else None) if m == RECEIPT[0] else answer
    pair[1].change = lambda method, answer: told if method == RECEIPT[0] else answer
    assert made(*pair)[0].request(*RECEIPT) is None
    assert not given


def test_an_error_that_passes_is_no_other_receipt(node: FakeNode) -> None:
    """Asked for again, the one fails for a moment, while the other comes round."""
    true = receipt_of(node, 10)
    told = [true, {**true, "status": "0x0"}]
    pair = Flaky("one", node), Flaky("two", node)

    def fails(method: str, answer: Any) -> Any:
        if pair[0].asked.count(RECEIPT[0]) == 2:
            raise RpcFailed(method, -32000, "temporarily unavailable", "")
        return true

    pair[0].change = fails
    pair[1].change = lambda method, answer: told.pop() if method == RECEIPT[0] else answer
    assert made(*pair)[0].request(*RECEIPT) == true
    assert not told


@pytest.mark.parametrize("how", ["swallows", "refuses", "is down"])
@pytest.mark.parametrize("evil", [0, 1])
def test_attack_T41_a_transaction_goes_to_every_endpoint(node: FakeNode, how: str, evil: int) -> None:
    sent: list[str] = []

    class Takes(Flaky):
        def ask(self, method: str, params: list[Any], timeout_s: float) -> Any:
            assert method == "eth_sendRawTransaction" and params == ["0x12"]
            sent.append(self.shown_url)
            if self.shown_url == ("one", "two")[evil] and how != "swallows":
                raise DOWN if how == "is down" else RpcFailed(method, -32000, "nonce too low", "")
            return OTHER

    endpoints, _ = made(Takes("one", node), Takes("two", node))
    assert endpoints.request("eth_sendRawTransaction", ["0x12"]) == OTHER
    assert sent == ["one", "two"]


def test_a_transaction_that_all_refuse_is_refused(node: FakeNode) -> None:
    pair = Flaky("one", node), Flaky("two", node)
    for flaky in pair:
        flaky.faults = [REVERTED] * 3
    with pytest.raises(RpcFailed, match="reverted"):
        made(*pair)[0].request("eth_sendRawTransaction", ["0x12"])


class Limited(Flaky):
    """Takes so many requests a second, by a clock, and refuses the others as a provider does."""

    def __init__(self, name: str, node: FakeNode, a_second: int, clock: Time, error: Exception) -> None:
        super().__init__(name, node)
        self.a_second, self.clock, self.error = a_second, clock, error
        self.taken: list[float] = []
        self.refused: list[float] = []

    def ask(self, method: str, params: list[Any], timeout_s: float) -> Any:
        self.clock.now += 0.001
        if sum(self.clock.now - at < 1.0 for at in self.taken) >= self.a_second:
            self.refused.append(self.clock.now)
            raise self.error
        self.taken.append(self.clock.now)
        return super().ask(method, params, timeout_s)


TOO_OFTEN = [
    RateLimited("http://one is asked too often (HTTP status 429)", hint=""),
    RpcFailed("eth_call", -32005, "project ID request rate exceeded", ""),
    RpcFailed("eth_call", -32000, "Too Many Requests", ""),
]


@pytest.mark.parametrize("error", TOO_OFTEN)
def test_w7_an_endpoint_with_a_limit_is_asked_below_it(node: FakeNode, error: Exception) -> None:
    clock = Time()
    limited = Limited("http://one", node, 5, clock, error)
    rpc = Endpoints([limited], RetryPolicy(), clock=clock.clock, sleep=clock.sleep, seed=1)
    for number in range(200):
        assert rpc.request("eth_getBlockByNumber", [hex(number % 10), False]) is not None
    late = [at for at in limited.refused if at > 5.0]
    assert limited.refused and len(late) < 0.25 * sum(at > 5.0 for at in limited.taken)
    assert clock.now < 1.5 * 200 / 5, "and not far below it"
    assert "refuses more than some" in rpc.troubles()["http://one"]


def test_a_gateway_that_refuses_one_now_and_then_is_not_asked_less(node: FakeNode) -> None:
    one = Flaky("http://one", node)
    rpc, time = made(one)
    for number in range(200):
        if number % 40 == 0:
            one.faults.append(TOO_OFTEN[0])
        rpc.request("eth_getBlockByNumber", [hex(number % 10), False])
    assert time.now < 3.0 and rpc.troubles() == {}


def test_w7_a_second_endpoint_takes_over_from_one_over_its_limit(node: FakeNode) -> None:
    one, two = Flaky("http://one", node), Flaky("http://two", node)
    rpc, _ = made(one, two)
    one.faults = [TOO_OFTEN[0]]
    assert rpc.request("eth_chainId", []) == hex(31337)
    assert two.asked == ["eth_chainId"] and rpc.counters["taken_over"] == 1
