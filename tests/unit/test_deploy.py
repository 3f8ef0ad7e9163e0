"""deploy/: units, images and dashboards name existing commands, options and metrics."""

from __future__ import annotations

import configparser
import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml
from starlette.testclient import TestClient

from assay.app.node_problems import why_not_ready
from assay.app.web import node_app
from assay.blocks.blockstore import BlockStore
from assay.cli.main import tree
from assay.node.report import Status
from tests.e2e.test_tutorials import parsed

DEPLOY = Path(__file__).parents[2] / "deploy"
ROLES = ("solver", "verifier", "whistle")


def unit() -> configparser.ConfigParser:
    found = configparser.ConfigParser(strict=False, interpolation=None)
    found.optionxform = str  # type: ignore[assignment]
    found.read(DEPLOY / "systemd" / "assay@.service")
    return found


@pytest.mark.parametrize("role", ROLES)
def test_the_unit_runs_a_role(role: str) -> None:
    words = shlex.split(unit()["Service"]["ExecStart"].replace("%i", role).replace(" $OPTIONS", ""))
    assert words[0].endswith("/bin/assay")
    parsed(tree(), words[1:])


def test_the_unit_lets_a_node_stop_in_peace_and_starts_it_again() -> None:
    service = unit()["Service"]
    assert service["Restart"] == "always" and service["KillSignal"] == "SIGTERM"
    assert int(service["TimeoutStopSec"]) >= 120


def test_compose_runs_commands_that_there_are() -> None:
    services: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]
    ours = {name: s for name, s in services.items() if s["image"] == "assay"}
    assert set(ours) == {"solver", "whistle", "dashboard"}
    for name, service in ours.items():
        parsed(tree(), service["command"])
        assert service["restart"] == "always", name
    asked = yaml.safe_load((DEPLOY / "prometheus.yaml").read_text())["scrape_configs"][0]["static_configs"]
    assert {target.split(":")[0] for target in asked[0]["targets"]} <= set(services)


def metrics(folder: Path) -> set[str]:
    """Names of the metrics of a node that has counted one of everything."""
    counters = ("alarms", "clock_percent", "reverted", "retries", "bugs", "shortages", "rpc_repeated")
    status = Status("solver", loss=2.5, counters=dict.fromkeys((*counters, "bytes_training_in"), 1))
    answer = TestClient(node_app(BlockStore(folder), lambda: status, "solver")).get("/metrics")
    return set(re.findall(r"^(assay_\w+)\{", answer.text, re.MULTILINE))


def test_the_dashboard_of_grafana_draws_metrics_that_there_are(tmp_path: Path) -> None:
    panels = json.loads((DEPLOY / "grafana" / "assay.json").read_text())["panels"]
    known = metrics(tmp_path)
    assert len(panels) >= 6 and len({panel["id"] for panel in panels}) == len(panels)
    for panel in panels:
        (target,) = panel["targets"]
        named = re.findall(r"\b(assay_\w+)\b(?!\()", re.sub(r'"[^"]*"', "", target["expr"]))
        chosen = re.findall(r'__name__=~"([^"]*)"', target["expr"])
        assert named or chosen or "up{" in target["expr"], panel["title"]
        assert set(named) <= known, panel["title"]
        for pattern in chosen:
            assert any(re.fullmatch(pattern, name) for name in known), panel["title"]


def test_a_node_is_ready_once_it_has_begun_and_while_it_sees_the_chain() -> None:
    assert why_not_ready({"action": "starting", "error": ""})
    assert not why_not_ready({"action": "waiting for work", "error": ""})
    assert not why_not_ready({"action": "waiting", "error": "commit: out of gas"})
    assert why_not_ready({"action": "waiting", "error": "tick: the node does not answer; wait"})
    assert not why_not_ready({"action": "serving", "role": "client"})
