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
from assay.job.read import BadJobFile, GptModel, parse_job_file
from assay.job.templates import LOCAL, PUBLIC, preset, stated, template
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
    ran = run(*arguments)
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


@pytest.mark.parametrize("times", [LOCAL, PUBLIC], ids=["local", "public"])
def test_the_shakespeare_preset_is_nanogpts_setting(times: dict[str, str]) -> None:
    """4 layers, 4 heads, width 128, context 64, 12 rows, 2,000 steps; and a stake that is enough."""
    text = preset("shakespeare-char", source='my "input".txt', times=times)
    made = parse_job_file(text, "a preset")
    assert isinstance(made.model, GptModel) and made.data is not None and made.schedule is not None
    shape = (made.model.layers, made.model.heads, made.model.width, made.model.context)
    assert shape == (4, 4, 128, 64) and made.data.source == 'my "input".txt'
    training, money = made.training, made.money
    assert (training.batch, training.rounds * training.steps_per_round) == (12, 2000)
    assert (made.schedule.warmup_steps, made.schedule.decay, made.schedule.floor) == (100, "cosine", 0.1)
    optimiser: Any = made.optimiser
    assert optimiser is not None and optimiser.name == "adamw"
    assert (optimiser.learning_rate, optimiser.beta2) == (1e-3, 0.99)
    task = money.price_cap + made.verification.verifiers * money.verifier_fee
    ahead = made.verification.max_unsettled_rounds
    wasted = (ahead - 1) * training.shards * task + ahead * money.outer_fee
    assert 3 * money.solver_stake >= 8 * wasted, "rule 3.1"
    assert "Shakespeare" in text and "toy" not in text


def test_a_preset_is_of_as_many_rounds_as_are_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "input.txt").write_text("To be, or not to be.")
    given = ("job", "init", "--preset", "shakespeare-char", "--data", "input.txt")
    assert assay(*given, "p.toml")[0] == assay(*given, "q.toml", "--rounds", "7")[0] == 0
    whole, short = ((tmp_path / name).read_text() for name in ("p.toml", "q.toml"))
    assert parse_job_file(whole, "p").training.rounds == 40 and "Here rounds" not in whole
    assert parse_job_file(short, "q").training.rounds == 7
    assert "# Here rounds = 7: 40 are as many steps as were published." in short


def test_a_preset_has_rounds_after_its_warm_up() -> None:
    least = preset("shakespeare-char", source="input.txt", times=LOCAL, rounds=3)
    schedule_of(parse_job_file(least, "a preset"))
    with pytest.raises(BadJobFile, match="first 2 rounds, so 2 rounds are too few"):
        preset("shakespeare-char", source="input.txt", times=LOCAL, rounds=2)
    with pytest.raises(Stop, match="within its warm-up"):
        schedule_of(parse_job_file(stated(least, "training.rounds", "2"), "a preset"))


@pytest.mark.parametrize(("name", "source"), [("nobody's", "input.txt"), ("shakespeare-char", "stdlib")])
def test_an_unknown_preset_or_one_without_its_text_is_refused(name: str, source: str) -> None:
    with pytest.raises(BadJobFile, match="preset"):
        preset(name, source=source, times=LOCAL)


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
    stated = template("gpt", source="stdlib", rounds=3, times={**times, "straggler": "7s"})
    assert parse_job_file(stated, "a template").times.straggler == 7


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
