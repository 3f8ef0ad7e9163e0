"""The follower: every event once, none twice, through reorganisations, restarts and unreliable nodes."""

from __future__ import annotations

import random
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from eth_utils.crypto import keccak
from hypothesis import given, settings
from hypothesis import strategies as st

from assay.chain.eth import events
from assay.chain.eth.abi import topic
from assay.chain.eth.endpoints import PROBES, Endpoints, RetryPolicy
from assay.chain.eth.events import Event, EventFollower, RolledBack
from assay.chain.eth.headers import encode_header
from assay.chain.eth.journal import WrongChain
from assay.chain.eth.log_source import LogSource
from assay.chain.eth.rpc import Rpc, RpcFailed
from assay.protocol.errors import RpcUnreachable
from tests.marked import long
from tests.unit.chain.eth.fake_node import FakeNode

ADDRESS = "0x" + "Aa" * 20
ABI = [
    {
        "type": "event",
        "name": "Moved",
        "inputs": [
            {"name": "game", "type": "uint256", "indexed": True},
            {"name": "to", "type": "uint64", "indexed": False},
        ],
    }
]


def log(game: int, to: int = 0) -> dict[str, Any]:
    words = ["0x" + topic(ABI[0]).hex(), "0x" + game.to_bytes(32, "big").hex()]
    return {"address": ADDRESS.lower(), "topics": words, "data": "0x" + to.to_bytes(32, "big").hex()}


AT_ONCE = [1]
"""How many questions the followers of a test ask at once."""


@pytest.fixture(autouse=True, scope="module", params=[1, events.AT_ONCE], ids=["in turn", "together"])
def asked(request: pytest.FixtureRequest) -> None:
    """Each test of this file, with questions in turn and together."""
    AT_ONCE[0] = request.param


def follow(node: FakeNode, path: Path, **options: Any) -> EventFollower:
    options = {"at_once": AT_ONCE[0], **options}
    return EventFollower(node, {"Court": (ADDRESS, ABI)}, path / "events.db", **options)


def followed(path: Path, blocks: int) -> tuple[Any, EventFollower]:
    """A node with so many blocks, of one event each, and a follower that has read them."""
    node = FakeNode()
    for game in range(1, blocks + 1):
        node.mine([log(game)])
    follower = follow(node, path)
    follower.poll()
    return node, follower


def games(changes: list[Event | RolledBack]) -> list[int]:
    return [c.arguments["game"] for c in changes if isinstance(c, Event)]


def test_events_come_once_in_order_with_names(tmp_path: Path) -> None:
    node = FakeNode()
    node.mine([log(1, to=7), log(2)])
    node.mine()
    node.mine([log(3)])
    follower = follow(node, tmp_path)
    first, *rest = follower.poll()
    assert isinstance(first, Event)
    assert (first.name, first.contract, first.arguments) == ("Moved", "Court", {"game": 1, "to": 7})
    assert games(rest) == [2, 3]
    assert follower.poll() == []
    assert follower.cursor == 3


def test_restart_reads_nothing_twice_and_keeps_history(tmp_path: Path) -> None:
    node = FakeNode()
    node.mine([log(1)])
    first = follow(node, tmp_path)
    first.poll()
    first.close()
    node.mine([log(2)])
    again = follow(node, tmp_path)
    assert games(list(again.history())) == [1]
    assert games(again.poll()) == [2]
    assert games(list(again.history(lambda *of: of == ("Court", "Moved")))) == [1, 2]


@pytest.mark.parametrize("longer", [0, 1])
@pytest.mark.parametrize("depth", [1, 2, 3, 4])
def test_attack_46_reorganisation_of_any_depth_replays(tmp_path: Path, depth: int, longer: int) -> None:
    node, follower = followed(tmp_path, 4)
    node.reorganise(depth)
    for game in range(10, 10 + depth + longer):
        node.mine([log(game)])
    rolled_back, *new = follower.poll()
    assert isinstance(rolled_back, RolledBack)
    assert rolled_back.block_number <= 4 - depth
    assert games(list(rolled_back.events)) == list(range(4, 4 - depth, -1))
    assert games(new) == list(range(10, 10 + depth + longer))
    assert games(list(follower.history())) == list(range(1, 5 - depth)) + list(range(10, 10 + depth + longer))


def test_attack_47_head_that_goes_backwards_is_only_lag(tmp_path: Path) -> None:
    node, follower = followed(tmp_path, 4)
    node.lag = 3
    assert follower.poll() == []
    node.lag = 0
    node.mine([log(5)])
    assert games(follower.poll()) == [5]


def test_shorter_chain_with_other_blocks_is_a_reorganisation(tmp_path: Path) -> None:
    node, follower = followed(tmp_path, 4)
    node.reorganise(3)
    node.mine([log(9)])
    rolled_back, *new = follower.poll()
    assert isinstance(rolled_back, RolledBack) and rolled_back.block_number == 1
    assert games(new) == [9]


@pytest.fixture
def by_range(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also the newest blocks are read as a range, as all before them are."""
    monkeypatch.setattr(events, "NEWEST", 0)


def test_a_range_whose_empty_last_block_is_replaced_is_not_kept(tmp_path: Path, by_range: None) -> None:
    """The block of its last log stands, and the one that it follows; the one that it ends with does not."""
    node, follower = followed(tmp_path, 1)
    node.mine([log(2)])
    node.mine([])

    def change(method: str) -> None:
        if method == "eth_getLogs":
            node.after = lambda method: None
            node.reorganise(1)
            node.mine([log(3)])

    node.after = change
    assert follower.poll() == [] and follower.cursor == 1
    assert games(follower.poll()) == [2, 3]


@pytest.mark.parametrize(("options", "lag"), [({"confirmations": 4}, 0), ({}, 3)])
def test_where_nothing_is_to_be_read_no_block_is_asked_for(
    tmp_path: Path, options: dict[str, int], lag: int
) -> None:
    """A young chain with confirmations to wait for; a head below what was read."""
    node: Any = FakeNode()
    follower = follow(node, tmp_path, **options)
    if not options:
        for game in range(5):
            node.mine([log(game)])
        follower.poll()
    node.lag = lag
    own, asked = node.eth_getBlockByNumber, []

    def told(tag: str, full: bool) -> Any:
        asked.append(tag)
        return own(tag, full)

    node.eth_getBlockByNumber = told
    assert follower.poll() == []
    assert not follower._source._rpc._begun and asked == ["latest", *([hex(2)] if lag else [])]


def test_node_that_dies_between_ranges_loses_nothing(tmp_path: Path, by_range: None) -> None:
    node = FakeNode()
    for game in range(6):
        node.mine([log(game)])
    follower = follow(node, tmp_path, range_blocks=2)
    seen = 0

    def die(method: str) -> None:
        nonlocal seen
        seen += method == "eth_getLogs"
        node.down = seen == 3

    node.before = die
    with pytest.raises(RpcUnreachable):
        follower.poll()
    assert games(list(follower.history())) == [0, 1, 2], "two ranges had been read"
    node.before = lambda method: None
    node.down = False
    assert games(follower.poll()) == list(range(6)), "also those that were read before it died"
    assert games(list(follower.history())) == list(range(6))


def test_a_node_that_dies_after_a_reorganisation_hides_nothing_of_it(tmp_path: Path) -> None:
    node, follower = followed(tmp_path, 2)
    node.reorganise(1)
    node.mine([log(3)])

    def die(method: str) -> None:
        node.down = method == "eth_getLogs"

    node.before = die
    with pytest.raises(RpcUnreachable):
        follower.poll()
    assert games(list(follower.history())) == [1], "the follower itself has gone back"
    node.before, node.down = lambda method: None, False
    rolled_back, *new = follower.poll()
    assert isinstance(rolled_back, RolledBack) and games(list(rolled_back.events)) == [2]
    assert games(new) == [3]


@pytest.mark.parametrize(
    "text",
    [
        "query exceeds the block range limit",
        "the request is too large (HTTP status 400)",
        "eth_getLogs is for paying customers only",
    ],
)
def test_w28_a_range_that_is_refused_is_halved_whatever_the_words(
    tmp_path: Path, by_range: None, text: str
) -> None:
    node = FakeNode()
    for game in range(8):
        node.mine([log(game)])
    real = node.eth_getLogs

    def limited(query: dict[str, Any]) -> list[dict[str, Any]]:
        if int(query["toBlock"], 16) - int(query["fromBlock"], 16) >= 3:
            raise RpcFailed("eth_getLogs", -32005, text, "")
        return real(query)

    node.eth_getLogs = limited
    assert games(follow(node, tmp_path).poll()) == list(range(8))


def test_confirmations_keep_the_follower_behind_the_head(tmp_path: Path) -> None:
    node = FakeNode()
    for game in range(1, 4):
        node.mine([log(game)])
    assert games(follow(node, tmp_path, confirmations=2).poll()) == [1]


def test_events_are_read_again_from_a_block_on(tmp_path: Path) -> None:
    node = FakeNode()
    for game in range(1, 5):
        node.mine([log(game)])
    follower = follow(node, tmp_path)
    hidden = node.blocks[3].logs.pop()
    assert games(follower.poll()) == [1, 2, 4]
    node.blocks[3].logs.append(hidden)
    assert follower.poll() == []
    follower.read_again(2)
    taken_back, *again = follower.poll()
    assert isinstance(taken_back, RolledBack) and games(list(taken_back.events)) == [4]
    assert games(again) == [3, 4] and games(list(follower.history())) == [1, 2, 3, 4]


def test_first_block_leaves_out_what_was_before(tmp_path: Path) -> None:
    node = FakeNode()
    for game in range(1, 4):
        node.mine([log(game)])
    assert games(follow(node, tmp_path, first_block=3).poll()) == [3]


def test_cursor_of_another_chain_is_refused(tmp_path: Path) -> None:
    follow(FakeNode(), tmp_path)
    other = FakeNode()
    other.salt = 9
    other.blocks = [other._block(0)]
    with pytest.raises(WrongChain):
        follow(other, tmp_path)


def test_a_file_of_other_contracts_is_read_anew(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """After another deployment on the same chain, or with events that the program did not know before."""
    node = FakeNode()
    node.mine([log(1), {**log(2), "address": "0x" + "bb" * 20}])
    assert games(follow(node, tmp_path).poll()) == [1]
    assert games(follow(node, tmp_path).poll()) == [] and not caplog.text, "the same contracts"
    other = EventFollower(
        node, {"Court": ("0x" + "bb" * 20, ABI)}, tmp_path / "events.db", at_once=AT_ONCE[0]
    )
    assert "of other contracts" in caplog.text
    assert games(other.poll()) == games(list(other.history())) == [2]


@pytest.mark.parametrize("damage", ["no database", "a page overwritten"])
def test_a_damaged_file_is_moved_aside_and_read_anew(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, damage: str
) -> None:
    node = FakeNode()
    node.mine([log(game) for game in range(200)])
    follower = follow(node, tmp_path)
    truth = games(follower.poll())
    follower.close()
    path = tmp_path / "events.db"
    content = bytearray(path.read_bytes())
    if damage == "no database":
        content[:100] = bytes(range(100))
    else:
        content[4096 * 5 : 4096 * 7] = b"\xff" * 8192
    path.write_bytes(content)
    again = follow(node, tmp_path)
    assert "is damaged" in caplog.text and path.with_name("events.db.damaged").read_bytes() == content
    assert games(again.poll()) == games(list(again.history())) == truth == list(range(200))


@settings(max_examples=30)
@given(
    actions=st.lists(
        st.one_of(st.just("mine"), st.just("poll"), st.just("restart"), st.integers(1, 4)), max_size=25
    )
)
def test_attack_46_history_always_equals_the_chain(
    tmp_path_factory: pytest.TempPathFactory, actions: list
) -> None:
    path = tmp_path_factory.mktemp("follow")
    node = FakeNode()
    follower = follow(node, path, range_blocks=3)
    replayed: list[int] = []
    count = 0

    def take(changes: list[Event | RolledBack]) -> None:
        for change in changes:
            if isinstance(change, RolledBack):
                for event in change.events:
                    assert replayed.pop() == event.arguments["game"]
            else:
                replayed.append(change.arguments["game"])

    for action in [*actions, "mine", "poll"]:
        if action == "mine":
            count += 1
            node.mine([log(count)] if count % 3 else [])
        elif action == "poll":
            take(follower.poll())
        elif action == "restart":
            follower.close()
            follower = follow(node, path, range_blocks=3)
        else:
            depth = min(int(action), len(node.blocks) - 1)
            if depth:
                node.reorganise(depth)
                for _ in range(depth):
                    count += 1
                    node.mine([log(count)])
    truth = [int(g["topics"][1], 16) for block in node.blocks for g in block.logs]
    assert replayed == truth
    assert games(list(follower.history())) == truth
    follower.close()


def test_a_long_history_comes_part_by_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that nobody holds all of it decoded at once."""
    monkeypatch.setattr(events, "MOST_AT_ONCE", 6)
    monkeypatch.setattr(events, "NEWEST", 4)
    node = FakeNode()
    for number in range(20):
        node.mine([log(number)])
    follower = follow(node, tmp_path, range_blocks=4)
    read = [games(follower.poll())]
    assert follower.more and read[0] == list(range(7)), "the genesis block tells nothing"
    while follower.more:
        read.append(games(follower.poll()))
    assert [game for part in read for game in part] == list(range(20))
    assert max(map(len, read)) <= 8 and follower.poll() == []


def test_a_follower_beside_another_takes_no_event_from_it(tmp_path: Path) -> None:
    """A command next to a running node, on the same account: both read every event, one has the file."""
    node = FakeNode()
    node.mine([log(1)])
    first = follow(node, tmp_path)
    assert games(first.poll()) == [1]
    second = follow(node, tmp_path)
    assert games(list(second.history())) == [1], "it goes on from a copy"
    node.mine([log(2)])
    assert games(second.poll()) == [2] and games(first.poll()) == [2]
    node.reorganise(1)
    node.mine([log(3)])
    assert games(second.poll()) == [3] and games(first.poll()) == [3]
    second.close()
    first.close()
    third = follow(node, tmp_path)
    assert games(list(third.history())) == [1, 3], "what the first has read is on disk"


def test_a_block_costs_two_requests_and_none_costs_one(tmp_path: Path) -> None:
    node = FakeNode()
    follower = follow(node, tmp_path)
    node.mine([log(1)])
    follower.poll()
    node.requests.clear()
    assert follower.poll() == [] and node.requests == ["eth_getBlockByNumber"]
    node.mine([log(2)])
    node.requests.clear()
    assert games(follower.poll()) == [2] and node.requests == ["eth_getBlockByNumber", "eth_getLogs"]
    assert follower.cursor == 2


def test_a_node_that_takes_no_hashes_is_asked_by_range(tmp_path: Path) -> None:
    node, follower = followed(tmp_path, 1)
    real = node.eth_getLogs
    refused: list[str] = []

    def by_range(query: dict[str, Any]) -> list[dict[str, Any]]:
        if "blockHash" in query:
            refused.append(query["blockHash"])
            raise RpcFailed("eth_getLogs", -32602, "invalid params", "")
        return real(query)

    node.eth_getLogs = by_range
    node.mine([log(2)])
    assert games(follower.poll()) == [2] and set(refused) == {node.blocks[2].hash}


def forked(node: FakeNode) -> FakeNode:
    """Another node, which has the same blocks and mines others on them."""
    other = FakeNode()
    other.blocks, other.salt = list(node.blocks), node.salt + 1
    return other


def truth(node: FakeNode) -> list[int]:
    return [int(each["topics"][1], 16) for block in node.blocks for each in block.logs]


@pytest.mark.parametrize("newest", [0, events.NEWEST])
def test_attack_47_logs_of_another_fork_are_not_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, newest: int
) -> None:
    """Blocks come from one node behind the address, logs once from another one: what is read lies below the
    block whose hash is compared, and no reorganisation would ever have taken it back."""
    monkeypatch.setattr(events, "NEWEST", newest)
    node, follower = followed(tmp_path, 1)
    other = forked(node)
    node.mine([log(2)])
    other.mine([log(666)])
    for each in (node, other):
        each.mine([])
    own, asked = node.eth_getLogs, []

    def from_the_other(query: dict[str, Any]) -> list[dict[str, Any]]:
        asked.append(query)
        return other.eth_getLogs(query)

    node.eth_getLogs = from_the_other
    with suppress(RpcUnreachable):
        assert follower.poll() == []
    assert asked, "the wrong node was asked"
    assert newest or games([*map(follower._decode, other.eth_getLogs(asked[0]))]) == [666], "it had what lies"
    node.eth_getLogs = own
    node.mine([log(3)])
    assert games(follower.poll()) == [2, 3]
    assert games(list(follower.history())) == truth(node) == [1, 2, 3]


@pytest.mark.parametrize("blocks", [1, 2, events.NEWEST])
def test_attack_47_a_node_that_is_behind_hides_no_event(tmp_path: Path, blocks: int) -> None:
    """Of several nodes behind one address the one that is asked for logs does not have the newest block: of a
    range it shows what it has, and says nothing of the rest."""
    node, follower = followed(tmp_path, 1)
    for game in range(blocks):
        node.mine([log(10 + game)])
    own, hidden = node.eth_getLogs, list[Any]()

    def behind(query: dict[str, Any]) -> list[dict[str, Any]]:
        if query.get("blockHash") == node.blocks[-1].hash:
            raise RpcFailed("eth_getLogs", -32000, "unknown block", "")
        shown = own(query)
        hidden.extend(each for each in shown if each["blockHash"] == node.blocks[-1].hash)
        return [each for each in shown if each not in hidden]

    node.eth_getLogs = behind
    newest = hex(blocks + 1)
    assert not behind({"fromBlock": newest, "toBlock": newest}) and hidden, "as a range it is hidden"
    with pytest.raises(RpcUnreachable, match="unknown block"):
        follower.poll()
    node.eth_getLogs = own
    assert games(follower.poll()) == list(range(10, 10 + blocks))
    assert games(list(follower.history())) == truth(node)


class Lagging(Rpc):
    """Two nodes behind one address, asked in turn: the second is some blocks behind, and says so only where a
    block is named by its hash."""

    def __init__(self, node: FakeNode, blocks: int) -> None:
        self.node, self.behind, self.blocks, self.asked = node, FakeNode(), blocks, 0

    def ask(self, method: str, params: list[Any], timeout_s: float) -> Any:
        return self.request(method, params)

    shown_url = "one"

    def request(self, method: str, params: list[Any]) -> Any:
        self.behind.blocks = self.node.blocks[: max(len(self.node.blocks) - self.blocks, 1)]
        self.asked += 1
        return (self.behind if self.asked % 2 else self.node).request(method, params)


@pytest.mark.parametrize("since", [1, 7, long(140)])
@pytest.mark.parametrize("blocks", [3, 8, 20, 500])
def test_attack_T47_every_second_answer_from_behind_hides_no_event(
    tmp_path: Path, blocks: int, since: int
) -> None:
    """However many blocks have come since the last look, and however far behind the second node is."""
    node = FakeNode()
    for game in range(40):
        node.mine([log(game)] if game % 3 else [])
    lagging = Lagging(node, blocks)
    patience = RetryPolicy(first_pause_s=0.0, longest_pause_s=0.0, probes=PROBES)
    endpoints: Any = Endpoints([lagging], patience, sleep=lambda s: None)
    follower = follow(endpoints, tmp_path, range_blocks=50)
    for number in range(5):
        with suppress(RpcUnreachable):
            follower.poll()
        for game in range(since):
            node.mine([log(1000 * number + game)] if game % 3 else [])
    for _ in range(3):
        with suppress(RpcUnreachable):
            follower.poll()
    assert games(list(follower.history())) == truth(node)
    assert endpoints.troubles()["one"].startswith("it is behind by ")
    follower.close()


def header(node: FakeNode, number: int, emitters: list[str]) -> dict[str, Any]:
    """A block's complete header, with its hash and the Bloom filter of these contracts."""
    bloom = 0
    for emitter in emitters:
        digest = keccak(bytes.fromhex(emitter[2:]))
        for place in (0, 2, 4):
            bloom |= 1 << (int.from_bytes(digest[place : place + 2], "big") & 2047)
    words = ("sha3Uncles", "stateRoot", "transactionsRoot", "receiptsRoot", "mixHash")
    block = {
        **(node.eth_getBlockByNumber(hex(number), False) or {}),
        **dict.fromkeys(words, "0x" + "00" * 32),
        **dict.fromkeys(("difficulty", "gasLimit", "gasUsed"), "0x0"),
        "miner": "0x" + "00" * 20,
        "logsBloom": "0x" + bloom.to_bytes(256, "big").hex(),
        "extraData": "0x",
        "nonce": "0x" + "00" * 8,
    }
    return {**block, "hash": "0x" + keccak(encode_header(block)).hex()}


OTHER = "0x" + "cd" * 20


@pytest.mark.parametrize(
    ("emitters", "change", "asked"),
    [
        ([], {}, 0),
        ([OTHER], {}, 0),
        ([ADDRESS], {}, 1),
        ([ADDRESS, OTHER], {}, 1),
        ([ADDRESS], {"logsBloom": "0x" + "00" * 256}, 1),  # a lie, or another kind of header
        ([], {"logsBloom": "0x"}, 1),
        ([], {"gasUsed": None}, 1),
        ([], {"unknown": "0x1"}, 0),
    ],
)
def test_attack_T47_only_a_header_that_proves_itself_spares_a_question(
    tmp_path: Path, emitters: list[str], change: dict[str, Any], asked: int
) -> None:
    node: Any = FakeNode()
    source = LogSource(node, [ADDRESS.lower()], 1)
    block = {**header(node, 0, emitters), **change}
    node.blocks[0].hash = block["hash"]
    node.blocks[0].logs = [{"blockNumber": "0x0"}]
    node.requests.clear()
    assert source.logs_of(block) == node.blocks[0].logs[: 1 if asked else 0]
    assert node.requests == ["eth_getLogs"] * asked


def test_a_newest_block_that_is_replaced_while_it_is_read_is_no_error(tmp_path: Path) -> None:
    node, follower = followed(tmp_path, 1)
    node.mine([log(2)])
    node.mine([log(3)])

    def change(method: str) -> None:
        if method == "eth_getLogs":
            node.before = lambda method: None
            node.reorganise(2)
            node.mine([log(4)])
            node.mine([log(5)])

    node.before = change
    assert follower.poll() == []
    assert games(follower.poll()) == [4, 5]


class Shared(Rpc):
    """Nodes behind one address: each request is answered by any of them."""

    def __init__(self, nodes: list[FakeNode], seed: int) -> None:
        self.nodes, self.random = nodes, random.Random(seed)

    def request(self, method: str, params: list[Any]) -> Any:
        return self.random.choice(self.nodes).request(method, params)


@pytest.mark.parametrize("seed", range(3))
def test_attack_47_nodes_behind_one_address_make_up_one_chain(tmp_path: Path, seed: int) -> None:
    """One of them is up to `NEWEST` blocks behind the other, or on a fork of as many."""
    r = random.Random(seed)
    node, other = FakeNode(), FakeNode()
    either: Any = Shared([node, other], seed)
    follower = follow(either, tmp_path, range_blocks=5)
    differed = failed = 0
    for number in range(60):
        for step in range(r.choice([1, 1, 2, 5, 9])):
            node.mine([log(10 * number + step)] if r.random() < 0.7 else [])
        other.blocks = node.blocks[
            : len(node.blocks) - r.randint(0, min(events.NEWEST, len(node.blocks) - 1))
        ]
        other.salt = number + 1
        if r.random() < 0.4:
            while len(other.blocks) < len(node.blocks):
                other.mine([log(9_000 + number)])
        differed += other.blocks[-1].hash != node.blocks[-1].hash
        for _ in range(r.randint(0, 3)):
            try:
                follower.poll()
            except RpcUnreachable:
                failed += 1
        if r.random() < 0.1:
            node.blocks, other.blocks = other.blocks, node.blocks
            node.salt, other.salt = other.salt, node.salt
    other.blocks = list(node.blocks)
    node.mine([])
    other.blocks.append(node.blocks[-1])
    follower.poll()
    assert games(list(follower.history())) == truth(node)
    assert differed > 20 and failed


@pytest.mark.parametrize("blocks", [1, 2, 8])
def test_attack_47_two_logs_at_one_place_are_no_answer(tmp_path: Path, blocks: int) -> None:
    node, follower = followed(tmp_path, 1)
    for game in range(blocks):
        node.mine([log(10 + game), log(20 + game)])
    own = node.eth_getLogs
    node.eth_getLogs = lambda query: [{**each, "logIndex": "0x0"} for each in own(query)]
    assert follower.poll() == [] and follower.cursor == 1
    node.eth_getLogs = own
    assert len(games(follower.poll())) == 2 * blocks
    assert games(list(follower.history())) == truth(node)


@pytest.mark.parametrize("blocks", [events.NEWEST + 1, events.NEWEST + 3])
def test_attack_46_a_known_block_replaced_after_it_was_compared_is_taken_back(
    tmp_path: Path, blocks: int
) -> None:
    """All that is new is read from the other chain, whole and consistent: only the known block is not its."""
    node, follower = followed(tmp_path, 2)
    for game in range(blocks):
        node.mine([log(10 + game)])
    known, compared = node.blocks[2].hash, list[str]()

    def change(method: str) -> None:
        if method == "eth_getBlockByNumber" and known in compared:
            assert AT_ONCE[0] > 1 or len(compared) == 2, "the head and the known block, and nothing new"
            node.after = lambda method: None
            node.reorganise(blocks + 1)
            node.mine([log(3)])
            for game in range(blocks):
                node.mine([log(20 + game)])

    own = node.eth_getBlockByNumber

    def told(tag: str, full: bool) -> Any:
        found = own(tag, full)
        compared.append(found["hash"])
        return found

    node.eth_getBlockByNumber, node.after = told, change
    follower.poll()
    assert node.blocks[2].hash != known and known in compared, "it was compared, and then replaced"
    follower.poll()
    assert games(list(follower.history())) == truth(node) == [1, 3, *range(20, 20 + blocks)]


class Meeting(Rpc):
    """A node that answers only when as many questions wait for it as it is told."""

    def __init__(self, node: FakeNode) -> None:
        self.node, self.together, self.rounds = node, [1], 0
        self.waiting = 0
        self.changed = threading.Condition()

    def request(self, method: str, params: list[Any]) -> Any:
        with self.changed:
            self.waiting += 1
            if self.waiting == self.together[0]:
                self.waiting, self.rounds = 0, self.rounds + 1
                self.together = self.together[1:] or [1]
                self.changed.notify_all()
            else:
                before = self.rounds
                assert self.changed.wait_for(lambda: self.rounds > before, 10), f"{method} waits alone"
        return self.node.request(method, params)


@pytest.mark.parametrize(
    ("blocks", "rounds"),
    [
        (1, [1, 1]),  # the head; its logs
        (2, [1, 3, 2]),  # the head; it, the one before and the known one; their logs
        (9, [1, 6, 5, 2]),  # and a range with the block it ends on; both its ends are compared again
    ],
)
def test_what_need_not_be_asked_in_turn_is_asked_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, blocks: int, rounds: list[int]
) -> None:
    """Were one of a round asked only after another one's answer, both would wait."""
    monkeypatch.setattr(events, "NEWEST", 4)
    node: Any = FakeNode()
    node.mine([log(1)])
    meeting: Any = Meeting(node)
    follower = follow(meeting, tmp_path, at_once=events.AT_ONCE)
    follower.poll()
    for game in range(blocks):
        node.mine([log(10 + game)])
    meeting.together, meeting.rounds = [*rounds, 99], 0
    assert games(follower.poll()) == list(range(10, 10 + blocks))
    assert meeting.rounds == len(rounds) and not meeting.waiting
    follower.close()


def test_a_range_whose_end_the_node_no_longer_has_is_not_kept(tmp_path: Path, by_range: None) -> None:
    """A block that it does not show is no block that stands."""
    node, follower = followed(tmp_path, 1)
    node.mine([log(2)])
    node.mine([])

    def behind(method: str) -> None:
        if method == "eth_getLogs":
            node.lag = 1

    node.after = behind
    assert follower.poll() == [] and follower.cursor == 1 and node.lag
    node.after, node.lag = lambda method: None, 0
    assert games(follower.poll()) == [2]


def test_a_follower_that_is_closed_has_no_threads(tmp_path: Path) -> None:
    node, others = FakeNode(), set(threading.enumerate())
    follower = follow(node, tmp_path)
    for game in range(9):
        node.mine([log(game)])
    follower.poll()
    threads = set(threading.enumerate()) - others
    assert bool(threads) == (AT_ONCE[0] > 1)
    follower.close()
    for each in threads:
        each.join(10)
    assert not any(each.is_alive() for each in threads)
