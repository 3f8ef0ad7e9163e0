"""An endpoint's address may have a key in it: nothing that is shown has more of it than the host."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from assay.app.invocation import App
from assay.app.output import Output
from assay.app.settings import Flags
from assay.cli.node import alarms
from assay.protocol.words import masked_url
from tests.unit.cli.test_command_line import assay

KEY = "0f1e2d3c4b5a69788796a5b4c3d2e1f0"
URLS = (
    f"https://eth.example.org/v2/{KEY}",
    f"https://user:{KEY}@eth.example.org:8443/",
    f"https://eth.example.org/?apikey={KEY}",
    f"http://127.0.0.1:1/{KEY},http://127.0.0.1:2/{KEY}",
)


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    yield


@pytest.mark.parametrize("url", URLS)
def test_w29_no_command_shows_what_may_be_a_key(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    local = f"http://127.0.0.1:1/{KEY}"
    for words in (
        ("-r", url, "config", "show", "--origin"),
        ("-r", url, "--json", "config", "show"),
        ("-r", local, "doctor"),
        ("-r", local, "--json", "doctor", "--role", "solver"),
        ("-r", local, "job", "ls"),
        ("-r", local, "--dry-run", "dashboard"),
    ):
        _, out, err = assay(*words)
        assert KEY not in out + err, words
    monkeypatch.setenv("ETH_RPC_URL", url)
    assert KEY not in assay("config", "show")[1]
    hint = App(Flags(rpc_url=url), Output(False), False, False, None).command("solver run")
    assert KEY not in hint and hint.startswith("assay --rpc-url http") and hint.endswith(" solver run")


def test_w29_nor_does_a_webhook_that_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    import httpx

    def refuse(url: str, **_: object) -> httpx.Response:
        return httpx.Response(404, request=httpx.Request("POST", url))

    monkeypatch.setattr(httpx, "post", refuse)
    said = alarms.post(f"https://hooks.example.org/{KEY}", {})
    assert "404" in said and KEY not in said


def test_what_is_masked_still_names_the_host() -> None:
    assert masked_url(URLS[0]) == "https://eth.example.org"
    assert masked_url(URLS[1]) == "https://eth.example.org:8443"
    assert masked_url("http://[") == "?"
    assert json.dumps(masked_url(URLS[2])) == '"https://eth.example.org"'
