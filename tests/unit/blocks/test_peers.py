"""In which order peers are asked, and how long they are left alone."""

from __future__ import annotations

from itertools import pairwise

import pytest

from assay.blocks.peers import MAX_PEERS, MAX_RECORDS, RESTING_ASKED, PeerInfo, Peers


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def peers(clock: Clock) -> Peers:
    return Peers(clock, ban_s=900.0, max_ban_s=86_400.0, rest_s=0.2, max_rest_s=3600.0)


def names(peers: Peers, first: str | None = None) -> list[str]:
    return [peer.url.removeprefix("http://") for peer in peers.order(first)]


def test_publishers_come_first_then_stake_and_a_stranger_in_four(peers: Peers) -> None:
    peers.replace(
        [
            PeerInfo("http://stranger"),
            PeerInfo("http://little", 10),
            PeerInfo("http://much", 10_000),
            PeerInfo("http://client", 0, publishes=True),
            PeerInfo("http://solver", 5_000, publishes=True),
        ]
    )
    for _ in range(5):
        assert names(peers) == ["solver", "client", "much", "stranger", "little"]
        assert names(peers, "http://little/")[0] == "little"
        assert names(peers, "http://elsewhere")[0] == "solver"
        assert names(peers, "not a url")[0] == "solver"


def test_who_delivers_comes_before_anybody_the_fastest_first(peers: Peers) -> None:
    peers.replace([PeerInfo("http://rich", 10**30, publishes=True), "http://slow", "http://quick"])
    peers.delivered(peers.peer("http://slow"), 2.0)
    peers.delivered(peers.peer("http://quick"), 0.02)
    assert names(peers) == ["quick", "slow", "rich"]


def test_those_that_deliver_alike_take_turns(peers: Peers) -> None:
    peers.replace(["http://a", "http://b", "http://c", "http://stranger"])
    for name in "abc":
        peers.delivered(peers.peer(f"http://{name}"), 0.05)
    heads = [names(peers)[0] for _ in range(40)]
    assert {name: heads.count(name) for name in heads} == {"a": 20, "b": 10, "c": 10}


def test_who_mostly_says_no_loses_its_place_but_is_not_blamed(peers: Peers, clock: Clock) -> None:
    peers.replace([PeerInfo("http://rich", 1), "http://once"])
    once = peers.peer("http://once")
    peers.delivered(once, 0.1)
    assert names(peers) == ["once", "rich"]
    peers.absent(once)
    assert names(peers) == ["rich", "once"]
    assert once.record.failures == 0 and once.record.rest_until == 0.0


def test_rests_double_up_to_an_hour_and_a_delivery_forgives_half(peers: Peers, clock: Clock) -> None:
    peers.replace(["http://a"])
    a = peers.peer("http://a")
    rests = []
    for _ in range(20):
        peers.failed(a)
        rests.append(a.record.rest_until - clock.now)
    assert rests[:4] == [0.4, 0.8, 1.6, 3.2]
    assert rests[-1] == 3600.0 and all(b >= a for a, b in pairwise(rests))
    peers.delivered(a, 0.1)
    assert a.record.failures == 10 and not a.delivers
    peers.absent(a)
    assert a.record.failures == 10, "saying no makes up for nothing"


def test_bans_grow_and_outlast_the_list(peers: Peers, clock: Clock) -> None:
    bans = []
    for _ in range(6):
        peers.replace(["http://a/x"])
        peers.lied(peers.peer("http://a/x"))
        bans.append(peers.peer("http://a/x").record.banned_until - clock.now)
        peers.replace([])
        peers.replace(["http://a/y", "http://b"])
        assert peers.banned() == ["http://a/y"], "another path of the same origin"
        assert names(peers) == ["b"]
        clock.now += bans[-1] + 1
        assert peers.banned() == []
    assert bans == [900.0, 3600.0, 14_400.0, 57_600.0, 86_400.0, 86_400.0]


def test_of_those_that_rest_only_a_few_are_asked(peers: Peers) -> None:
    peers.replace([f"http://p{i}" for i in range(100)] + [PeerInfo("http://staked", 1)])
    for url in peers.urls():
        peers.failed(peers.peer(url))
    assert len(names(peers)) == RESTING_ASKED and names(peers)[0] == "staked"


def test_the_list_and_the_records_are_bounded(peers: Peers) -> None:
    for wave in range(6):
        staked = PeerInfo("http://staked", 7)
        peers.replace([f"http://p{wave}-{i}" for i in range(MAX_PEERS)] + [staked])
        assert len(peers.urls()) == MAX_PEERS and "http://staked" in peers.urls()
    assert len(peers._records) <= MAX_RECORDS


def test_who_fails_often_comes_later_whatever_its_stake(peers: Peers, clock: Clock) -> None:
    peers.replace([PeerInfo("http://rich", 10**20), PeerInfo("http://poor", 1)])
    firsts = []
    for _ in range(6):
        clock.now += 10_000.0
        firsts.append(names(peers)[0])
        peers.failed(peers.peer("http://rich"))
    assert firsts == ["rich"] * 4 + ["poor"] * 2
