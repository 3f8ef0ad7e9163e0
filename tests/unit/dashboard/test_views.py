"""What pages show, on a day on which one solver lies, everybody drawn covers for it, and it is caught."""

from __future__ import annotations

import json
from typing import Any

import pytest

from assay.protocol.errors import Unknown
from assay.protocol.types import ClaimId
from tests.fakes.dashboard import DaySource

Seen = list[dict[str, Any]]


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> tuple[DaySource, Seen, Seen]:
    """The day, played to the job's end, and the pages of the job and of game 1 after each turn."""
    source = DaySource(tmp_path_factory.mktemp("day"))
    jobs, games = [], []
    for _ in range(400):
        source.turn()
        source.work([("job", source.job_id.hex())])
        jobs.append(source.view(("job", source.job_id.hex())))
        if source.market.games():
            games.append(source.view(("game", str(source.market.games()[0].game_id))))
        if jobs[-1]["done"]:
            return source, jobs, games
    raise AssertionError("the job came to no end")


@pytest.mark.long
def test_the_fault_was_there_and_was_convicted(played: tuple[DaySource, Seen, Seen]) -> None:
    _, jobs, games = played
    assert jobs[-1]["convictions"] == 1
    assert games[-1]["decided"] and games[-1]["challengerWon"]


def test_a_segment_is_committed_then_disputed_then_convicted(played: tuple[DaySource, Seen, Seen]) -> None:
    _, jobs, _ = played
    accused = next(task["claim"] for task in jobs[-1]["tasks"] if "convicted" in task["segments"])
    past = [
        task["segments"][1] for job in jobs for task in job["tasks"] if task["claim"] == accused
    ]  # step 3 is in segment 1 of two steps each
    told = list(dict.fromkeys(past))
    assert told[0] == "committed" and told[-2:] == ["disputed", "convicted"]
    last = next(task for task in jobs[-1]["tasks"] if task["claim"] == accused)
    assert not last["standing"] and last["phase"] == "convicted" and last["games"]


def test_the_curve_has_a_loss_for_every_segment_of_every_claim(played: tuple[DaySource, Seen, Seen]) -> None:
    source, _, _ = played
    for _ in range(40):
        source.work([("job", source.job_id.hex())])
    points = source.view(("job", source.job_id.hex()))["points"]
    assert points and all(point["loss"] is not None for point in points)
    steps = {point["step"] for point in points}
    assert steps <= set(range(2, 17, 2)) and max(steps) >= 8


def test_coverage_counts_what_verifiers_drew(played: tuple[DaySource, Seen, Seen]) -> None:
    source, jobs, _ = played
    terms = source.market.job(source.job_id).terms
    full = [task for job in jobs for task in job["tasks"] if any(v["said"] == "valid" for v in task["votes"])]
    assert full
    for task in full:
        said = sum(vote["said"] == "valid" for vote in task["votes"])
        shown = sum(state in ("replayed", "disputed", "convicted") for state in task["segments"])
        assert 1 <= shown <= said * terms.samples + 1


def test_the_chance_of_escape_is_that_of_the_segments_nobody_vouched_for(
    played: tuple[DaySource, Seen, Seen],
) -> None:
    source, jobs, _ = played
    terms = source.market.job(source.job_id).terms
    found = jobs[-1]["coverage"]
    standing = [task for task in jobs[-1]["tasks"] if task["standing"]]
    assert found["segments"] == len(standing) * terms.segments > 0
    seen = sum(state == "replayed" for task in standing for state in task["segments"])
    assert found["replayed"] == seen and found["escaped"] == 1 - seen / found["segments"]
    # Two verifiers of one sample each among four segments: both miss one of them in 9 of 16 draws.
    assert (terms.verifiers, terms.samples, terms.segments) == (2, 1, 4) and found["escapesDraw"] == 9 / 16
    assert jobs[0]["coverage"]["escaped"] is None


def test_a_game_narrows_down_and_one_clock_runs_at_a_time(played: tuple[DaySource, Seen, Seen]) -> None:
    _, _, games = played
    moves = [game["moves"] for game in games]
    assert moves == sorted(moves) and moves[-1] >= 3
    for game in games:
        running = [side for side in ("challenger", "defender") if game["clocks"][side]["runs"]]
        assert running == ([] if game["decided"] else [game["toMove"]])
        assert all(game["clocks"][side]["seconds"] >= 0 for side in ("challenger", "defender"))
    accused = played[0].market.claim(ClaimId(bytes.fromhex(games[0]["claim"])))
    end = accused.roots[games[0]["segment"] + 1].hex()[:16]
    assert {game["path"][0]["detail"] for game in games} == {f"{end} is its claimed end"}, "at every move"
    levels = [len(game["path"]) for game in games]
    assert levels[-1] > levels[0] and games[-1]["path"][0]["what"].startswith("segment ")


def test_this_machines_replay_says_who_is_right_and_where(played: tuple[DaySource, Seen, Seen]) -> None:
    source, _, games = played
    said = source.replay(games[-1]["id"])
    assert said["right"] == "challenger"
    agrees = {level["what"].split(" step")[0]: level["agrees"] for level in said["levels"]}
    assert agrees == {"end of segment 1": False, "state before": True, "state after": False}


def test_all_of_it_is_json_and_amounts_keep_every_digit(played: tuple[DaySource, Seen, Seen]) -> None:
    source, jobs, games = played
    market, accounts = source.view(("market",)), source.view(("accounts",))
    for body in (market, accounts, jobs[-1], games[-1]):
        assert json.loads(json.dumps(body)) == body
    assert market["jobs"][0]["escrow"] == str(source.market.job(source.job_id).escrow)
    names = {line["name"] for line in accounts["accounts"]}
    assert {"ann", "bob", "v0", "v1", "wendy", "client"} <= names
    with pytest.raises(Unknown):
        source.view(("job", "ab" * 32))


def test_the_past_is_told_in_order_and_only_once(played: tuple[DaySource, Seen, Seen]) -> None:
    _, jobs, _ = played
    last = [event["text"] for event in jobs[-1]["events"]]
    assert any("convicted" in text for text in last) and any("rewound" in text for text in last)
    blocks = [event["block"] for event in jobs[-1]["events"]]
    assert blocks == sorted(blocks, reverse=True)
