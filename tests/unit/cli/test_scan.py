"""`assay whistle scan`: what keeps one claim from being recomputed keeps no other one."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import typer

from assay.app.output import Exit
from assay.cli.commands import whistle
from assay.protocol.errors import RpcUnreachable
from assay.protocol.types import Kind, Phase
from tests.fakes.any_error import ENDS, ERRORS, name_of


def claim(number: int) -> Any:
    named = SimpleNamespace(kind=Kind.TASK, round=0, shard=number, claimant="0x")
    status = SimpleNamespace(phase=Phase.ACCEPTED, valid=0)
    return SimpleNamespace(stale=False, status=status, claim=named, claim_id=bytes([number]) * 32)


def scanned(monkeypatch: pytest.MonkeyPatch, error: BaseException, finding: object) -> tuple[Any, Any]:
    """The output for four claims, the second of which fails, and the command's exit status."""
    shown: list[Any] = []
    market = SimpleNamespace(claims=lambda job_id: [claim(number) for number in range(4)])
    inspection = SimpleNamespace(
        connection=SimpleNamespace(market=market),
        job=SimpleNamespace(job_id=b"", terms=SimpleNamespace(verifiers=2)),
        close=lambda: None,
    )

    def audit(_: object, view: Any) -> object:
        if view.claim.shard == 1:
            raise error
        return finding if view.claim.shard == 3 else None

    app = SimpleNamespace(output=SimpleNamespace(result=lambda schema, data, rows: shown.append(data)))
    monkeypatch.setattr(whistle, "app_of", lambda context: app)
    monkeypatch.setattr(whistle, "open_inspection", lambda app, job: inspection)
    monkeypatch.setattr(whistle, "audit_view", audit)
    context: Any = object()
    with pytest.raises(BaseException) as ended:
        whistle.scan(context, "job")
    return shown, ended.value


@pytest.mark.parametrize("error", ERRORS, ids=name_of)
def test_attack_T46_a_claim_that_cannot_be_recomputed_hides_no_other(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    (shown,), ended = scanned(monkeypatch, error, "WrongSegment")
    said = [each["said"] for each in shown["claims"]]
    assert said[0] == said[2] == "right" and said[3] == "WrongSegment" and shown["false"] == 1
    assert said[1].startswith("not recomputed: ") and isinstance(ended, typer.Exit)
    assert ended.exit_code == Exit.FRAUD
    (shown,), ended = scanned(monkeypatch, error, None)
    assert ended is error and not shown["false"], "not all was recomputed: that is no success"


@pytest.mark.parametrize("error", [*ENDS, RpcUnreachable("away")], ids=name_of)
def test_what_is_no_claims_fault_ends_the_scan(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    assert scanned(monkeypatch, error, None) == ([], error)
