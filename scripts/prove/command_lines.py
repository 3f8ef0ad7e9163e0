"""Random command lines and damaged files: whatever is given, nobody is shown a traceback or told of a bug.

    python scripts/prove/command_lines.py [--lines 3000] [--files 1500] [--seed 1]

In this process, in a folder of its own. Every command is given random numbers of arguments and options, its
own and others', with odd values; those that would run until they are stopped, or start processes, are parsed
and not carried out. Files are templates and real ones with bytes, lines and values changed: job files,
assay.toml, deployment files, terms, recordings, receipts. Prints each finding with what repeats it, and exits
with 1 if there is one.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import random
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

from typer.main import get_command

from assay.app.output import Exit
from assay.cli import main as cli
from assay.job.templates import LOCAL, template
from assay.protocol.errors import Stop
from drills import main as drills
from drills.recording import SCHEMA

PARSED_ONLY = {
    *(("solver", "run"), ("verifier", "run"), ("whistle", "run"), ("dashboard",), ("solver", "bench")),
    *(("devnet", word) for word in ("up", "down", "restart", "snapshot", "restore", "warp")),
    *(("job", "serve"), ("drills", "run"), ("drills", "up")),
    *(("drills", role, "run") for role in ("solver", "verifier", "whistle")),
}
ODD = (
    *("", " ", "-", "--", "-1", "0", "1", "7", "latest", "0x", "0x" + "ab" * 20, "ab" * 32, "ab" * 4, "1tok"),
    *("1e3tok", "-1tok", "0.0000000000000000001tok", "9" * 40 + "tok", "٣tok", "1d", "99999999d", "1GB"),
    *("a" * 5000, "\x00", "é\udcff", "../../etc/passwd", "/dev/null", "/proc/self/mem", "/", ".", "no/such"),
    *("http://127.0.0.1:1", "http://[", "file:///etc/passwd", "{}", "[]", "nan", "inf", "1:2", "1:2:3", "%s"),
    *("[/b]", "solver", "verifier", "all", "auto", "job.toml", "model", "recording.jsonl", "💥", "\r\n", "="),
)
LIMIT_S = 20


class TooLong(Exception):
    """A command that has not ended in its time."""


@contextmanager
def _time_limit(seconds: int) -> Iterator[None]:
    def over(*_: object) -> None:
        raise TooLong(f"{seconds} s")

    before = signal.signal(signal.SIGALRM, over)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def leaves(group: Any = None, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every command that does something, by its words."""
    group = get_command(cli.root) if group is None else group
    if not hasattr(group, "commands"):
        yield path, group
    for name, command in getattr(group, "commands", {}).items():
        yield from leaves(command, (*path, name))


def given(words: list[str]) -> tuple[int, str, str]:
    """What a command line ends with: status, output, errors."""
    out, err, kept, stdin = io.StringIO(), io.StringIO(), sys.argv, sys.stdin
    root = drills.root if "drills" in words else cli.root
    words = [word for word in words if word != "drills"]
    sys.argv, sys.stdin = ["assay", *words], io.StringIO("\x00 odd\n")
    try:
        with redirect_stdout(out), redirect_stderr(err), _time_limit(LIMIT_S):
            cli.main(root)
    except SystemExit as ended:
        return int(ended.code or 0), out.getvalue(), err.getvalue()
    finally:
        sys.argv, sys.stdin = kept, stdin
    return 0, out.getvalue(), err.getvalue()


def fault(words: list[str]) -> str:
    """What is wrong with how a command line ended, or nothing."""
    try:
        status, _, err = given(words)
    except BaseException as error:  # noqa: BLE001 - whatever gets out of `main` is the finding
        return f"{type(error).__name__}: {error} got out"
    if status == Exit.BUG and "replay" not in words:
        return f"a bug: {err[-300:]}"
    if "Traceback" in err:
        return f"a traceback: {err[-300:]}"
    known = status in {int(one) for one in Exit}
    return "" if known else f"status {status}"


def line(rng: random.Random, path: tuple[str, ...], command: Any) -> list[str]:
    """A random command line for a command."""
    own = [
        option for p in command.params for option in p.opts if option.startswith("-") and option != "--help"
    ]
    words = list(
        rng.choice(((), ("--json",), ("--yes",), ("--yes", "--dry-run"), ("--account", rng.choice(ODD))))
    )
    words += path
    for _ in range(rng.randrange(5)):
        if own and rng.random() < 0.5:
            option = rng.choice(own)
            words += [f"{option}={rng.choice(ODD)}"] if rng.random() < 0.3 else [option, rng.choice(ODD)]
        else:
            words.append(rng.choice(ODD))
    return words


def parse_only(command: Any, words: list[str]) -> str:
    """What is wrong with how a command's own arguments are parsed, or nothing."""
    try:
        command.make_context("x", list(words), resilient_parsing=False)
    except cli.UsageProblem:
        return ""
    except (SystemExit, Exception) as error:  # noqa: BLE001 - the finding
        told = type(error).__name__
        return "" if told in ("Exit", "Abort", "SystemExit", "NoArgsIsHelpError") else f"{told}: {error}"
    return ""


def damaged(rng: random.Random, data: bytes) -> bytes:
    """The same bytes with something changed."""
    kind, lines = rng.randrange(6), data.split(b"\n")
    at = rng.randrange(max(len(lines), 1))
    if kind == 0:
        spot = rng.randrange(len(data) + 1)
        return data[:spot] + rng.randbytes(rng.randrange(1, 9)) + data[spot + rng.randrange(9) :]
    if kind == 1:
        return data[: rng.randrange(len(data) + 1)]
    if kind == 2:
        return b"\n".join([*lines[:at], lines[rng.randrange(len(lines))], *lines[at + rng.randrange(2) :]])
    odd = rng.choice(
        (b"-1", b"0", b'""', b"[]", b"{}", b"true", b"1e99", b'"\\u0000"', b"9" * 30, b'"x"', b"nan")
    )
    for sign in (b" = ", b": "):
        if sign in lines[at]:
            lines[at] = lines[at].split(sign)[0] + sign + odd + (b"," if lines[at].endswith(b",") else b"")
    return b"\n".join(lines)


def subjects(folder: Path) -> dict[str, tuple[bytes, list[str]]]:
    """Files by name: what they are undamaged, and the command that reads them."""
    recording = [{"schema": SCHEMA, "scenario": "one-ulp"}]
    recording += [{"at": 1.0, "node": "client", "event": {"event": "said", "text": "x"}}]
    amounts = {"parties": {"solver-1": "5"}, "held": 0, "burnt": 0, "undestroyed": 0, "supply": 5}
    report: dict[str, Any] = dict.fromkeys(("secondsReady", "secondsRun", "parameters"), 1)
    report |= {key: [] for key in ("convicted", "lies", "demands", "missingShards", "games", "heldOutLoss")}
    report |= {
        "gasUsed": {"Court.open": [1]},
        "verified": {},
        "sample": "x",
        "before": amounts,
        "after": amounts,
    }
    told = "\n".join(json.dumps(part) for part in [*recording, {"report": report}]).encode()
    job = [template(name, source="stdlib", rounds=2, times=LOCAL) for name in ("gpt", "mlp", "cnn")]
    deployment = json.dumps(
        {"chainId": 1, "addresses": {"Jobs": "0x" + "11" * 20}, "block": 1}, indent=1
    ).encode()
    return {
        "gpt.toml": (job[0].encode(), ["job", "estimate", "gpt.toml"]),
        "mlp.toml": (job[1].encode(), ["job", "validate", "mlp.toml"]),
        "cnn.toml": (job[2].encode(), ["--account", "client", "job", "post", "cnn.toml", "--budget", "1tok"]),
        "assay.toml": (b'rpc_url = "http://127.0.0.1:1"\naccount = "a"\nhome = "h"\n', ["config", "show"]),
        "deployment.json": (deployment, ["--deployment", "deployment.json", "job", "ls"]),
        "told.jsonl": (told, ["drills", "replay", "told.jsonl", "--speed", "0"]),
        "model/receipt.json": (
            b'{"schema": "assay/receipt/1",\n "job": {},\n "claims": []}',
            ["job", "verify", "model"],
        ),
        "home/devnet.json": (b'{"kind": "x",\n "value": {}}', ["--home", "home", "devnet", "status"]),
        "home/fitness.json": (
            b'{"kind": "x",\n "value": {}}',
            ["--home", "home", "doctor", "--role", "solver"],
        ),
        "home/keystore/a": (
            b'{"version": 3,\n "address": "ab",\n "crypto": {}}',
            ["--home", "home", "account", "ls"],
        ),
    }


def untraced(*_: object, **__: object) -> None:
    raise Stop("it can be read", hint="no model is traced here", code="untraced")


def search(rng: random.Random, lines: int, files: int, told: Callable[[str], None]) -> Counter[str]:
    """Give so many lines and files; `told` gets each finding. Counts by status and finding."""
    commands = [*leaves(), *leaves(get_command(drills.root), ("drills",))]
    counted = Counter[str]()
    for _ in range(lines):
        path, command = rng.choice(commands)
        words = line(rng, path, command)
        if path in PARSED_ONLY:
            found = parse_only(command, words[words.index(path[-1]) + 1 :])
        else:
            found = fault(words)
        counted["lines"] += 1
        if found:
            counted["findings"] += 1
            told(f"{words!r}: {found}")
    for number in range(files):
        name, (data, words) = rng.choice(list(subjects(Path()).items()))
        path = Path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        for _ in range(rng.randrange(1, 4)):
            data = damaged(rng, data)
        path.write_bytes(data)
        counted["files"] += 1
        if found := fault(words):
            kept = Path(tempfile.gettempdir()) / f"assay-damaged-{number}"
            kept.write_bytes(data)
            counted["findings"] += 1
            told(f"{words!r} with {kept} as {name}: {found}")
        path.unlink()
    return counted


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--lines", type=int, default=3_000)
    parser.add_argument("--files", type=int, default=1_500)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    import assay.job.build as build

    build.build = untraced  # type: ignore[assignment]
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("ASSAY_", "ETH_"))}
        os.environ.clear()
        os.environ |= kept | {"HOME": folder, "ASSAY_HOME": ""}
        counted = search(
            random.Random(options.seed), options.lines, options.files, lambda text: print(text[:600])
        )
    print(f"{counted['lines']:,} lines and {counted['files']:,} files: {counted['findings']} findings")
    sys.exit(counted["findings"] > 0)


if __name__ == "__main__":
    main()
