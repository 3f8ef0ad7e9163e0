"""The command line itself: misuse, exit statuses, error objects, amounts, settings; no chain is needed."""

from __future__ import annotations

import io
import json
import os
import re
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.text import Text

from assay.app.output import Exit, Output, exit_status, plain, table
from assay.app.settings import Flags, Settings
from assay.app.units import parse_amount, parse_duration, show_amount
from assay.chain.eth.rpc import RpcFailed
from assay.cli.main import tree
from assay.job.parts import schedule_of
from assay.job.read import BadJobFile, parse_job_file
from assay.job.templates import LOCAL, PUBLIC, stated, template
from assay.protocol.errors import (
    Ask,
    AssayError,
    BlockNotFound,
    InsufficientFunds,
    PeerUnreachable,
    Retry,
    Reverted,
    RpcUnreachable,
    Stop,
)
from assay.protocol.params import DEVNET_BOUNDS, L1_BOUNDS, L2_BOUNDS, most_voting
from assay.protocol.types import Bounds, Phase, Seconds
from assay.training.optimisers import OPTIMISERS
from tests.fakes.command import run
from tests.property.markets import TERMS


def assay(*arguments: str) -> tuple[int, str, str]:
    ran = run(*arguments, stdin=None)
    return ran.status, ran.out, ran.err


def commands(group: Any = None, path: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    """Every command and group, by its words."""
    group = tree() if group is None else group
    found = [path]
    for name, command in getattr(group, "commands", {}).items():
        found += commands(command, (*path, name))
    return found


@pytest.mark.parametrize(("given", "kept"), [(None, "passive"), ("active", "active")])
def test_pytorchs_threads_sleep_while_they_wait_unless_told_otherwise(
    monkeypatch: pytest.MonkeyPatch, given: str | None, kept: str
) -> None:
    monkeypatch.setenv("OMP_WAIT_POLICY", given or "")
    if given is None:
        monkeypatch.delenv("OMP_WAIT_POLICY")
    assert assay("config", "show")[0] == 0 and os.environ["OMP_WAIT_POLICY"] == kept


def leaves() -> list[tuple[str, ...]]:
    """The words of every command that is no group."""
    every = commands()
    return [path for path in every if path and not any(path == other[:-1] for other in every)]


@pytest.mark.parametrize("path", commands(), ids=" ".join)
def test_every_command_helps(path: tuple[str, ...]) -> None:
    status, out, _ = assay(*path, "--help")
    assert status == Exit.OK and "Usage:" in out
    described = [line for line in out.splitlines()[2:] if line.strip() and "Usage:" not in line]
    assert not described[0].lstrip().startswith("╭"), "a sentence stands before the options"


def leaf_commands(group: Any = None) -> Iterator[Any]:
    """Every command that is no group."""
    for command in (group or tree()).commands.values():
        if hasattr(command, "commands"):
            yield from leaf_commands(command)
        else:
            yield command


def test_no_word_of_a_help_text_is_taken_for_markup() -> None:
    texts = [text for command in leaf_commands() for text in (command.help, *_helps(command)) if text]
    assert len(texts) > 100
    assert [text for text in texts if Text.from_markup(text).plain != text] == []


def _helps(command: Any) -> list[str | None]:
    return [getattr(parameter, "help", None) for parameter in command.params]


def test_a_list_of_commands_wraps_their_sentences_itself() -> None:
    texts = [command.help for command in leaf_commands()]
    assert any("\n\n" in text for text in texts), "paragraphs stay"
    assert not [text for text in texts if re.search(r"[^\n]\n[^\n]", text)]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--json", "token", "deposit"), "amount"),
        (("--json", "job", "bogus"), "bogus"),
        (("--json", "token", "deposit", "1tok", "--bogus"), "--bogus"),
        (("--json", "job", "init", "--rounds", "0"), "--rounds"),
        (("--json", "dispute", "show", "seven"), "game_id"),
        (("--json", "dispute", "open", "latest", "--shard", "1"), "--round"),
        (("--json", "dispute", "open", "latest", "--outer"), "--round"),
        (("--json", "solver", "run", "--port", "99999"), "--port"),
        (("--json", "job", "post", "job.toml", "--budget", "1tok", "--port", "-1"), "--port"),
        (("--json", "dashboard", "--port", "99999"), "--port"),
        (("--json", "solver", "run", "--max-shards", "0"), "--max-shards"),
        (("--json", "verifier", "run", "--poll", "-1"), "--poll"),
        (("--json", "job", "watch", "latest", "--every", "0"), "--every"),
        (("--json", "devnet", "logs", "solver-1", "--lines", "0"), "--lines"),
    ],
)
def test_misuse_is_status_2_with_a_next_step(arguments: tuple[str, ...], says: str) -> None:
    status, out, err = assay(*arguments)
    body = json.loads(err)
    assert status == Exit.USAGE and out == "" and body["schema"] == "assay/error/1"
    assert body["error"]["code"] == "usage" and says in body["error"]["message"]
    assert body["error"]["hint"].endswith("--help` shows what it takes")


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (Stop("x"), Exit.USAGE),
        (Ask("x"), Exit.CONFIG),
        (BlockNotFound("x"), Exit.NOT_FOUND),
        (Ask("x", code="no-such-claim"), Exit.NOT_FOUND),
        (InsufficientFunds("x"), Exit.FUNDS),
        (Ask("x", code="unfunded"), Exit.FUNDS),
        (Reverted("x"), Exit.REVERTED),
        (RpcUnreachable("x"), Exit.UNREACHABLE),
        (RpcFailed("eth_call", -32005, "rate limited", ""), Exit.UNREACHABLE),
        (PeerUnreachable("x"), Exit.UNREACHABLE),
        (Retry("x"), Exit.TIMEOUT),
        (Ask("x", code="needs-confirmation"), Exit.CONFIRM),
    ],
)
def test_each_kind_of_error_has_its_status(error: AssayError, status: Exit) -> None:
    assert exit_status(error) is status


def test_statuses_are_those_of_the_documentation() -> None:
    assert [int(status) for status in Exit] == list(range(11)) and int(Exit.FRAUD) == 9


def test_an_error_keeps_its_brackets() -> None:
    err = io.StringIO()
    with redirect_stderr(err):
        Output(False).report(Stop("refused: [1, 2] and [bold] and [/red]", hint="see [x]"))
    assert "[1, 2] and [bold] and [/red]" in err.getvalue() and "see [x]" in err.getvalue()


def test_what_is_said_is_not_markup() -> None:
    out = io.StringIO()
    with redirect_stdout(out):
        Output(False).result("x", {}, 'log {"segments": [/1]} [info]')
    assert out.getvalue() == 'log {"segments": [/1]} [info]\n'


def test_a_table_outside_a_terminal_is_not_cut() -> None:
    out, rows = io.StringIO(), table("t", "id", "#n")
    rows.add_row("ab" * 32, "7")
    rows.add_row("cd" * 200, "8")
    with redirect_stdout(out):
        Output(False).result("x", {}, rows)
    assert "ab" * 32 in out.getvalue() and "…" not in out.getvalue()


def test_a_table_without_rows_says_so() -> None:
    out = io.StringIO()
    with redirect_stdout(out):
        Output(False).result("x", [], table("games [1]", "game"))
    assert out.getvalue() == "games [1]: none\n"


def test_json_keeps_every_digit() -> None:
    assert plain({"a": 2**53, "b": 2**53 - 1, "c": b"\x01", "d": Phase.SETTLED, "e": True}) == {
        "a": str(2**53),
        "b": 2**53 - 1,
        "c": "0x01",
        "d": "settled",
        "e": True,
    }


@given(st.integers(0, 10**30))
def test_amounts_are_read_as_they_are_shown(amount: int) -> None:
    assert parse_amount(show_amount(amount).replace(" ", "")) == amount


@pytest.mark.parametrize(("text", "seconds"), [("90s", 90), ("5m", 300), ("2h", 7200), ("7d", 604_800)])
def test_durations_are_read(text: str, seconds: int) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize(
    ("name", "optimiser"), [("gpt", ""), ("mlp", ""), ("cnn", ""), *(("mlp", o) for o in OPTIMISERS)]
)
@pytest.mark.parametrize("times", [LOCAL, PUBLIC], ids=["local", "public"])
def test_a_template_is_a_whole_job_file(name: str, optimiser: str, times: dict[str, str]) -> None:
    text = template(name, source="stdlib", rounds=3, times=times, optimiser=optimiser)
    assert not optimiser or f'name = "{optimiser}"' in text
    assert parse_job_file(text, "a template").training.rounds == 3
    for line in [line for line in text.splitlines() if " = " in line]:
        with pytest.raises(BadJobFile):  # no key has a default
            parse_job_file(text.replace(line + "\n", "", 1), "a template without " + line)


def test_a_template_names_a_text_by_any_path() -> None:
    text = template("gpt", source='my "input".txt', rounds=3, times=LOCAL)
    data = parse_job_file(text, "a template").data
    assert data is not None and data.source == 'my "input".txt'


def test_a_schedule_that_ends_within_its_warm_up_is_refused() -> None:
    text = template("mlp", source="digits", rounds=1, times=LOCAL)
    for key, value in (("warmup_steps", "64"), ("decay", '"cosine"')):
        text = stated(text, f"schedule.{key}", value)
    with pytest.raises(Stop, match="within its warm-up"):
        schedule_of(parse_job_file(text, "a template"))


@pytest.mark.parametrize(
    ("times", "bounds"),
    [(LOCAL, DEVNET_BOUNDS), (PUBLIC, L2_BOUNDS), (PUBLIC, L1_BOUNDS)],
    ids=["devnet", "l2", "l1"],
)
def test_a_template_gives_stragglers_the_time_of_all_calls(times: dict[str, str], bounds: Bounds) -> None:
    """Rule 3.1: the client may lower min_shards without another look at the times."""
    file = parse_job_file(template("gpt", source="stdlib", rounds=3, times=times), "a template")
    found, delay = file.times, file.verification.seed_delay_blocks
    asked = replace(TERMS, vote_time=Seconds(found.vote), seed_delay=delay)
    assert found.straggler >= most_voting(asked, bounds)
    given = template("gpt", source="stdlib", rounds=3, times={**times, "straggler": "7s"})
    assert parse_job_file(given, "a template").times.straggler == 7


def test_on_a_public_chain_no_run_of_one_proposer_spans_the_seeds_delay() -> None:
    delays = [
        parse_job_file(
            template("gpt", source="stdlib", rounds=3, times=times), "a template"
        ).verification.seed_delay_blocks
        for times in (LOCAL, PUBLIC)
    ]
    assert delays == [2, 32]  # docs/decisions/0026


def test_settings_are_found_in_their_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("ASSAY_RPC_URL", "ETH_RPC_URL"):
        monkeypatch.delenv(name, raising=False)

    def found(flags: Flags) -> tuple[str, str]:
        setting = Settings(flags).find("rpc_url")
        return (setting.value, setting.origin) if setting else ("", "")

    assert found(Flags()) == ("", "")
    (tmp_path / "assay.toml").write_text('rpc_url = "file"\n')
    assert found(Flags()) == ("file", "assay.toml")
    monkeypatch.setenv("ETH_RPC_URL", "foundry")
    assert found(Flags()) == ("foundry", "ETH_RPC_URL")
    monkeypatch.setenv("ASSAY_RPC_URL", "assay")
    assert found(Flags()) == ("assay", "ASSAY_RPC_URL")
    assert found(Flags(rpc_url="flag")) == ("flag", "flag")


def test_without_a_chain_the_next_step_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("ASSAY_RPC_URL", "ETH_RPC_URL", "ASSAY_HOME"):
        monkeypatch.delenv(name, raising=False)
    status, _, err = assay("--json", "job", "ls")
    assert status == Exit.CONFIG and "assay devnet up" in json.loads(err)["error"]["hint"]
