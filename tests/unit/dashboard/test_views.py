"""Pages of a market in which a solver lies, all drawn verifiers vouch for it, and it is convicted."""

from __future__ import annotations

import json
from typing import Any

import pytest

from assay.chain.contracts.job_ledger import Payment
from assay.chain.contracts.ledger import Entry
from assay.dashboard.views import LEAST, account_flows, earned, money_view
from assay.protocol.errors import Unknown
from assay.protocol.types import ClaimId
from tests.fakes.dashboard import DaySource
from tests.fakes.jobs import account

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


def tasks(job: dict[str, Any]) -> list[dict[str, Any]]:
    return [line for line in job["work"] if line["kind"] == "task"]


def test_a_segment_is_unchecked_then_disputed_then_convicted(played: tuple[DaySource, Seen, Seen]) -> None:
    _, jobs, _ = played
    accused = next(task["claim"] for task in tasks(jobs[-1]) if "convicted" in task["segments"])
    past = [
        task["segments"][1] for job in jobs for task in tasks(job) if task["claim"] == accused
    ]  # step 3 is in segment 1 of two steps each
    told = list(dict.fromkeys(past))
    assert told[0] == "unchecked" and told[-2:] == ["disputed", "convicted"]
    last = next(task for task in tasks(jobs[-1]) if task["claim"] == accused)
    assert not last["standing"] and last["state"] == "convicted" and last["games"]


def test_a_task_is_attested_only_when_every_seat_vouches_for_it(played: tuple[DaySource, Seen, Seen]) -> None:
    source, jobs, _ = played
    seats = source.market.job(source.job_id).terms.verifiers
    seen = set()
    for job in jobs:
        for line in job["work"]:
            valid = sum(vote["said"] == "valid" for vote in line["votes"])
            if line["state"] in ("unchecked", "attested"):
                assert (line["state"] == "attested") == (valid == seats), line
            seen.add((line["kind"], line["state"]))
    wanted = {("task", state) for state in ("unchecked", "attested", "settled", "convicted")}
    assert seen == wanted | {("outer", "unchecked"), ("outer", "settled")}


def test_a_stretch_is_as_checked_as_its_least_checked_shard(played: tuple[DaySource, Seen, Seen]) -> None:
    source, jobs, _ = played
    terms = source.market.job(source.job_id).terms
    found = set()
    for job in jobs:
        standing = {(task["round"], task["unit"]): task for task in tasks(job)}  # the last one of a place
        for stretch in job["curve"]["stretches"]:
            round_, step = divmod(stretch["from"], terms.steps_per_round)
            places = [standing.get((round_, shard)) for shard in range(terms.shards)]
            each = [line["segments"][step // terms.segment_steps] if line else "unchecked" for line in places]
            if any(line and not line["standing"] and line["state"] != "convicted" for line in places):
                continue  # overtaken
            assert stretch["state"] == min(each, key=LEAST.index), (job["now"], stretch)
            found.add((stretch["state"], len(set(each)) > 1))
    assert ("unchecked", True) in found, "one shard's was attested, and the stretch was not"
    assert {state for state, _ in found} >= {"convicted", "disputed", "unchecked"}


def test_what_was_convicted_and_trained_again_is_not_drawn_over(played: tuple[DaySource, Seen, Seen]) -> None:
    _, jobs, _ = played
    assert any(task["state"] == "convicted" for task in tasks(jobs[-1]))
    last = jobs[-1]["curve"]["stretches"]
    assert last and {stretch["state"] for stretch in last} <= {"attested", "unchecked"}


def test_the_curve_has_a_loss_for_every_segment_that_counts(
    played: tuple[DaySource, Seen, Seen],
) -> None:
    source, _, _ = played
    for _ in range(40):
        source.work([("job",), ("job", source.job_id.hex())])  # the first is a page that a stranger invents
    curve = source.view(("job", source.job_id.hex()))["curve"]
    assert curve["steps"] == 16
    for points in curve["shards"]:
        assert [step for step, _ in points] == list(range(2, 17, 2))
        assert all(loss > 0 for _, loss in points)


def test_what_goes_on_is_said_at_every_moment(played: tuple[DaySource, Seen, Seen]) -> None:
    _, jobs, _ = played
    said = [one["now"] for job in jobs for one in job["doing"]]
    assert all(job["doing"] for job in jobs)
    for words in (
        "trains shard",
        "verifiers drawn for it have voted",
        "can be challenged",
        "outer step of round",
    ):
        assert any(words in text for text in said), words
    by_name = ("game 1: the defender, ann, is to", "game 1: the defender, bob, is to")
    assert any(text.startswith(by_name) for text in said)
    assert jobs[-1]["doing"][-1]["now"].startswith(("closed", "all rounds are settled"))
    clocks = [one["until"] for job in jobs for one in job["doing"] if one["now"].startswith("game")]
    assert all(clocks)


def test_flows_of_a_job_are_each_accounts_and_add_up() -> None:
    ann, bob = account("ann"), account("bob")
    payments = [
        Payment(1, 0, "escrow", "budget", ann, "client", 100),
        Payment(2, 0, "escrow", "budget", ann, "client", 20),
        Payment(3, 0, "taken stakes", "stake", bob, "solver", 50),
        Payment(3, 1, "taken stakes", "burnt", None, "", -25),
        Payment(3, 2, "taken stakes", "set aside", None, "", -10),
        Payment(3, 2, "set aside", "set aside", None, "", 10),
        Payment(4, 0, "bonds", "bond", ann, "finder", 7),
        Payment(5, 0, "bonds", "bond back", ann, "finder", -7),
    ]
    shown = money_view(
        payments, {"escrow": 120, "taken stakes": 15, "set aside": 10, "bonds": 0}, {bob: "bob"}
    )
    came = [(line["kind"], line["who"] and line["who"]["name"], line["amount"]) for line in shown["in"]]
    assert came == [("budget", "", "120"), ("stake", "bob", "50"), ("bond", "", "7")]
    assert [(line["kind"], line["amount"]) for line in shown["out"]] == [("burnt", "25"), ("bond back", "7")]
    total = {side: sum(int(line["amount"]) for line in shown[side]) for side in ("in", "out", "held")}
    assert total["in"] == total["out"] + total["held"] == 177


def test_an_accounts_flows_leave_out_stake_that_changes_its_pot() -> None:
    def entry(pot: str, kind: str, amount: int) -> Entry:
        return Entry(1, 0, "0x", pot, kind, amount, "")

    entries = [
        entry("free", "deposit", 100),
        entry("free", "staked", -60),
        entry("solver stake", "staked", 60),
        entry("free", "pay", 8),
        entry("solver stake", "slashed", -50),
        entry("solver stake", "unbonded", -10),
        entry("free", "unbonded", 10),
    ]
    assert account_flows(entries) == {"deposit": 100, "pay": 8, "slashed": -50}
    assert earned(entries) == -42


def test_coverage_counts_what_verifiers_drew(played: tuple[DaySource, Seen, Seen]) -> None:
    source, jobs, _ = played
    terms = source.market.job(source.job_id).terms
    full = [task for job in jobs for task in tasks(job) if any(v["said"] == "valid" for v in task["votes"])]
    assert full
    for task in full:
        said = sum(vote["said"] == "valid" for vote in task["votes"])
        shown = sum(state in ("attested", "disputed", "convicted") for state in task["segments"])
        assert 1 <= shown <= said * terms.samples + 1


def test_the_chance_of_escape_is_that_of_the_segments_nobody_vouched_for(
    played: tuple[DaySource, Seen, Seen],
) -> None:
    source, jobs, _ = played
    terms = source.market.job(source.job_id).terms
    found = jobs[-1]["coverage"]
    standing = [task for task in tasks(jobs[-1]) if task["standing"]]
    assert found["segments"] == len(standing) * terms.segments > 0
    seen = sum(state == "attested" for task in standing for state in task["segments"])
    assert found["attested"] == seen and found["escaped"] == 1 - seen / found["segments"]
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
