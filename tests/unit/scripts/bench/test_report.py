"""Recording a benchmark replaces its section of docs/measurements.md and nothing else."""

from __future__ import annotations

import argparse
import json
import re
from pathlib import Path

import pytest

from scripts.bench import gas, report

DOCUMENT = """# Figures

Before.

<!-- one: begin -->
old
<!-- one: end -->

Between.

<!-- two: begin -->
<!-- two: end -->

After.
"""
TABLE = report.table(["size", "ms"], [["small", "1.5"], ["large", "20.0"]])


def test_a_section_is_replaced_and_nothing_else() -> None:
    new = report.recorded(DOCUMENT, "one", TABLE, "2 × Fast (AVX2); commit abc; 2026-01-02.")
    section = "2 × Fast (AVX2); commit abc; 2026-01-02.\n\n| size  | ms   |\n"
    assert new.split("<!-- one: begin -->\n")[1].startswith(section)
    assert "old" not in new and "| large | 20.0 |\n<!-- one: end -->" in new
    assert new.replace(new.split("begin -->\n")[1].split("<!-- one: end")[0], "old\n") == DOCUMENT


def test_a_section_is_recorded_again_and_again() -> None:
    once = report.recorded(DOCUMENT, "two", TABLE, "here.")
    assert report.recorded(once, "two", TABLE, "here.") == once
    assert "there.\n" in report.recorded(once, "two", TABLE, "there.")


@pytest.mark.parametrize(
    "document",
    [
        "nothing",
        DOCUMENT + "<!-- one: begin -->\n",
        "<!-- one: end -->\n<!-- one: begin -->\n",
        DOCUMENT.replace("<!-- one: end -->", ""),
    ],
)
def test_a_section_whose_markers_are_not_one_pair_is_not_touched(document: str) -> None:
    with pytest.raises(ValueError, match="section one"):
        report.recorded(document, "one", TABLE, "here.")


def parsed(*arguments: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true")
    report.add_options(parser, "one")
    chosen = parser.parse_args(arguments)
    report.refuse_partial(parser, chosen, "quick")
    return chosen


def test_a_run_records_only_when_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "measurements.md"
    path.write_text(DOCUMENT)
    monkeypatch.setattr(report, "MEASUREMENTS", path)
    results = tmp_path / "results.json"
    chosen = parsed("--json", str(results))
    report.report({"ms": 1.5}, TABLE, chosen.json, chosen.record)
    assert path.read_text() == DOCUMENT and json.loads(results.read_text())["ms"] == 1.5
    chosen = parsed("--record")
    report.report({"ms": 1.5}, TABLE, chosen.json, chosen.record)
    section = path.read_text().split("<!-- one: begin -->\n")[1].split("<!-- one: end -->")[0]
    assert TABLE in section and re.search(r"commit \S+; \d{4}-\d\d-\d\d\.\n", section)
    assert TABLE in capsys.readouterr().out


def test_part_of_a_benchmark_is_not_recorded(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parsed("--record", "--quick")
    assert "not with --quick" in capsys.readouterr().err


@pytest.mark.parametrize("section", ["numerics", "proof", "gas"])
def test_the_document_has_each_benchmarks_section(section: str) -> None:
    report.recorded(report.MEASUREMENTS.read_text(), section, TABLE, "here.")


def test_the_gas_that_is_told_is_the_snapshots() -> None:
    """After a change of gas: `python scripts/bench/gas.py --record`."""
    assert gas.text(gas.measured()) in report.MEASUREMENTS.read_text()


def test_the_readmes_gas_is_the_snapshots() -> None:
    told = (report.ROOT / "README.md").read_text().split("## Figures")[1]
    known = gas.measured()
    one = "prove one element of a product of 1,024 terms"
    for what in (one, *(x for x in known if "whole dispute" in x)):
        assert f"{known[what]:,}" in told, what
