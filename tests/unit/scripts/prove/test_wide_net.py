"""Links of the small internet: what is lost, and when the rest arrives."""

from __future__ import annotations

from scripts.prove.wide_net import Link


def test_a_link_loses_its_share_each_way_and_the_same_packets_again() -> None:
    first, second = Link("a", 1, loss=0.01), Link("a", 1, loss=0.01)
    ways = [[link.lost(way) for _ in range(20_000)] for link in (first, second) for way in ("up", "down")]
    assert ways[:2] == ways[2:] and ways[0] != ways[1]
    assert all(120 < sum(lost) < 280 for lost in ways)
    assert not any(Link("a", 1).lost("up") for _ in range(1_000))


def test_what_is_not_lost_arrives_after_the_rate_and_the_delay() -> None:
    link = Link("a", 1, bits_per_s=8_000, delay_s=0.5)
    assert link.arrival("up", 500, 10.0) == 11.0
    assert link.arrival("up", 500, 10.0) == 11.5, "it waits for the one before"
    assert link.arrival("down", 500, 10.0) == 11.0
    assert Link("a", 1, loss=1.0).arrival("up", 500, 10.0) is None
