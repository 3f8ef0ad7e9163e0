"""A node's status: shown as text, bounded, and refused if it is anything else."""

from __future__ import annotations

import io
import json
import re
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import redirect_stdout, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from assay.app.invocation import App
from assay.app.node_status import MOST_BYTES, answer_of, show_status
from assay.app.output import Output
from assay.app.settings import Flags, Settings
from assay.blocks.public_net import LOOPBACK
from assay.protocol.errors import Ask, PeerUnreachable
from assay.protocol.types import Address
from tests.fakes.http_server import serving

ME = Address("0x" + "11" * 20)


@pytest.fixture
def node() -> Iterator[tuple[str, list[bytes]]]:
    """A node's URL, and what it answers."""
    answers = [b"{}"]
    with serving(lambda path, _: (200 if path == "/status" else 404, answers[0])) as url:
        yield f"{url}/", answers


def app_with(endpoints: dict[Address, str], private: str = "127.0.0.0/8") -> App:
    market = SimpleNamespace(endpoints=lambda: endpoints)
    view = SimpleNamespace(market=market)
    settings = Settings(Flags(home="/nowhere", private_peers=private))
    parts = {"view": lambda: view, "output": Output(False), "command": lambda words: f"assay {words}"}
    return cast(App, SimpleNamespace(settings=settings, **parts))


def test_what_a_node_counts_is_told_with_its_unit(node: tuple[str, list[bytes]]) -> None:
    url, answers = node
    answers[0] = (
        b'{"action": "x", "loss": 0.06453265, "counters": {"bytes_in_proof": 1535688, "clock_percent": 8}}'
    )
    out = io.StringIO()
    with redirect_stdout(out):
        show_status(app_with({ME: url}), ME, "solver run")
    assert {"received to check with", "1.5 MB", "8 %", "0.0645"} <= set(
        re.split(r"\s{2,}|\n", out.getvalue())
    )


def test_a_node_says_what_it_does_and_asks(node: tuple[str, list[bytes]]) -> None:
    url, answers = node
    answers[0] = (
        b'{"role": "solver", "action": "trains [/b] \\u001b[31m", "counters": {"moves": 3},'
        b' "questions": {"job": "look"}}'
    )
    out = io.StringIO()
    with redirect_stdout(out):
        show_status(app_with({ME: url}), ME, "solver run")
    text = out.getvalue()
    assert "trains [/b]" in text and "moves" in text and "job: look" in text and "\x1b" not in text


def test_a_node_that_nobody_announced_is_told_how_to_start() -> None:
    with pytest.raises(Ask) as refused:
        show_status(app_with({}), ME, "solver run")
    assert refused.value.code == "not-found" and "assay solver run" in refused.value.hint


@pytest.mark.parametrize("answer", [b"", b"[]", b"<html>", b"[" * 100_000, b" " * (MOST_BYTES + 1)])
def test_what_is_no_status_is_refused(answer: bytes, node: tuple[str, list[bytes]]) -> None:
    url, answers = node
    answers[0] = answer
    with pytest.raises(PeerUnreachable, match="gives no status"):
        answer_of(url, LOOPBACK)


@pytest.mark.parametrize("url", ["http://127.0.0.1:1", "ftp://x", "http://[", "not a url"])
def test_whoever_does_not_answer_is_named(url: str) -> None:
    with pytest.raises(PeerUnreachable) as refused:
        answer_of(url, LOOPBACK)
    assert url in refused.value.message


def test_attack_W14_a_strangers_status_is_not_asked_for_at_a_private_address(
    node: tuple[str, list[bytes]], tmp_path: Path
) -> None:
    url, _ = node
    with pytest.raises(PeerUnreachable) as refused:
        show_status(app_with({ME: url}, private=""), ME, "solver run")
    assert refused.value.code == "private-address"
    own = app_with({ME: url}, private="")
    own.settings = Settings(Flags(keystore=str(tmp_path), private_peers=""))
    (tmp_path / "me").write_text(json.dumps({"address": ME.removeprefix("0x"), "version": 3}))
    with redirect_stdout(io.StringIO()):
        show_status(own, ME, "solver run")


@pytest.mark.parametrize("head", [b"HTTP/1.1 200 OK\r\n\r\n", b"HTTP/1.1 200 OK\r\nX-Drip: "])
def test_w28_an_answer_that_drips_is_no_answer_after_its_time(head: bytes) -> None:
    """Each byte comes within the time of a read, and the whole never ends: in its headers, or its body."""
    listening = socket.create_server(("127.0.0.1", 0))

    def drip() -> None:
        with suppress(OSError):
            client, _ = listening.accept()
            client.recv(4_096)
            client.sendall(head)
            for _ in range(600):
                client.sendall(b"x")
                time.sleep(0.05)

    threading.Thread(target=drip, daemon=True).start()
    begin = time.monotonic()
    with pytest.raises(PeerUnreachable, match="not whole after"):
        answer_of(f"http://127.0.0.1:{listening.getsockname()[1]}", LOOPBACK, within_s=0.5)
    assert time.monotonic() - begin < 3.0
    listening.close()
