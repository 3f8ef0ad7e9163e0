"""Whether cheating pays: strategies, stakes and audits, drawn by chance and set beside the formulas.

The market is ``labs.economics.market`` (10,000 accounts, 100,000 tasks; money divided by
``spec.settlement``), the questions ``labs.economics.experiments``, the formulas
``labs.economics.incentives``, their derivation ``docs/economics.md``. Terms are those that `assay job
init` writes, at the cap and at the floor of the price. Amounts are in tokens.

Usage: `python labs/economics/simulate.py [--quick] [--seed 1] [--json [FILE]] [--plots DIR]`.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from scripts.bench.report import report, table
from labs.economics.svg import Series, plot
from labs.economics import attacks, classes, rings, strangers
from labs.economics import experiments as ask
from labs.economics import incentives as formulas
from labs.economics.strategies import TOK, Rules


def plots(results: dict[str, Any], size: ask.Size, rules: Rules) -> dict[str, str]:
    """SVG by file name."""
    found = [row for row in results["detection"] if row["fault"] == "cartel"]
    series = []
    for verifiers in (1, 2, 3, 5):
        name = f"{verifiers} verifier" + "s" * (verifiers > 1)
        mine = [row for row in found if row["verifiers"] == verifiers]
        rules_m = replace(rules, verifiers=verifiers)
        exact = [(x / 50, formulas.cartel_detection(rules_m, x * 200, 10_000)) for x in range(51)]
        series += [Series(name, exact), Series(name, [(r["share"], r["simulated"]) for r in mine], False)]
    text = "An invented claim of a cartel is caught (audits: 10 % of claims)"
    out = {"detection.svg": plot(text, "cartel's share of verifier stake", "chance", series)}
    series = []
    for audits in (0.05, 0.1, 0.2):
        name = f"{audits:.0%} of claims audited"
        at = [replace(rules, claim_audits=audits, solver_stake=stake * TOK) for stake in range(80, 601, 120)]
        exact = [(r.solver_stake / TOK, formulas.capture_gain(r)) for r in at]
        dots = [(r.solver_stake / TOK, attacks.capture_gain(size, r)) for r in at]
        series += [Series(name, exact), Series(name, dots, False)]
    text = "Gain of a solver with a bought quorum that also disputes itself"
    out["capture.svg"] = plot(text, "solver stake (tokens)", "tokens a task", series)
    series = []
    for lazy in (0.1, 0.9):
        rows = [row for row in results["forcing"] if row["lazy"] == lazy and row["sighted"]]
        name = f"{lazy:.0%} of the others lazy"
        series.append(Series(name, [(row["rate"], row["formula"]) for row in rows]))
        series.append(Series(name, [(row["rate"], row["lazy gain"]) for row in rows], False))
    text = "What laziness gains where nobody audits, by the rate of planted faults"
    out["planted-faults.svg"] = plot(
        text, "wholly invented planted faults, of all tasks", "tokens a vote", series
    )
    return out


def run(size: ask.Size) -> dict[str, Any]:
    """Everything, for the template's terms at the cap of its price and at its floor."""
    results: dict[str, Any] = {"size": asdict(size), "terms": {}}
    for name, rules in (("cap", ask.template_rules()), ("floor", ask.template_rules(capped=False))):
        rows, out = ask.strategies(size, rules)
        results["terms"][name] = {
            "rules": asdict(rules),
            "strategies": rows,
            "imbalance": out.imbalance(),
            "faulty": out.faulty,
            "convicted": out.convicted,
            "honest_stakes_lost": out.honest_stakes_lost,
            "attacks": attacks.attacks(size, rules),
            "bounds": ask.bounds(rules),
        }
    rules = ask.template_rules()
    results["detection"] = ask.detection(size)
    results["whistleblowing"] = ask.whistleblowing(size, rules)
    results["mixing"], results["forcing"] = ask.mixing(size, rules), ask.forcing(size, rules)
    results["losses"] = attacks.losses(size)
    results["rings"], results["seats"] = rings.table(rules), rings.seats(rules)
    results["absence"] = ask.absence(size, rules)
    results["staking"] = ask.staking(rules)
    results["proposing"] = ask.proposing(size, rules)
    results["elsewhere"] = strangers.elsewhere(size, rules)
    results["clients"] = strangers.clients(size, rules)
    results["stolen"] = strangers.stolen_keys(rules)
    results["slicing"], results["learning"] = classes.slicing(rules), classes.learning()
    results["matrix"], results["classes"] = classes.matrix(), classes.table()
    return results


def describe(results: dict[str, Any]) -> str:
    """The results as tables."""
    parts = []
    for name, block in results["terms"].items():
        caught = f"{block['convicted']} of {block['faulty']} faulty claims fell"
        caught += f"; imbalance {block['imbalance']}"
        caught += f"; {block['honest_stakes_lost']} stakes of honest verifiers lost"
        parts += [f"## The template's terms, price at its {name}"]
        parts += ["Profit by strategy (tokens an action). " + caught]
        parts += [_rows(block["strategies"]), "Gain over honesty, and the smallest stake that ends it"]
        parts += [_rows(block["attacks"]), "By the formulas"]
        parts.append(_rows([{"what": k, "value": v} for k, v in block["bounds"].items()]))
    for key, title in (
        ("detection", "Detection"),
        ("whistleblowing", "An audit of a whole claim"),
        ("mixing", "Where nobody audits, and where the client does"),
        ("forcing", "Planted faults, where nobody audits"),
        ("losses", "True claims lost on purpose"),
        ("rings", "Rings of claims and jobs"),
        ("seats", "All seats of a class locked"),
        ("absence", "Verifiers that never vote"),
        ("staking", "Stakes that pay for what a conviction wastes"),
        ("proposing", "Who makes the seed's block"),
        ("elsewhere", "Stake that is locked elsewhere"),
        ("clients", "Clients that mean no good"),
        ("stolen", "An operator's stolen key"),
        ("slicing", "Slices of the outer step, each with a fee"),
        ("learning", "Outer claims, on which nobody votes"),
        ("matrix", "Every strategy, by algorithm: the most over templates and prices"),
        ("classes", "Every class that the templates make"),
    ):
        parts += [f"## {title}", _rows(results[key])]
    return "\n\n".join(parts)


def _rows(rows: ask.ROWS) -> str:
    return table(list(rows[0]), [[_cell(value) for value in row.values()] for row in rows])


def _cell(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.4g}" if abs(value) >= 1e-9 else "0"
    return "" if value is None else str(value)


def main() -> None:
    """Simulate, print, and write plots if asked."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="1,000 accounts, 20,000 tasks")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", nargs="?", const="-", help="print one object, or write it to a file")
    parser.add_argument("--plots", type=Path, help="directory for the SVG files")
    asked = parser.parse_args()
    accounts, tasks = (1_000, 20_000) if asked.quick else (10_000, 100_000)
    size = ask.Size(accounts, tasks, tasks // 4, asked.seed)
    results = run(size)
    if asked.plots:
        asked.plots.mkdir(parents=True, exist_ok=True)
        for name, text in plots(results, size, ask.template_rules()).items():
            (asked.plots / name).write_text(text)
    report(results, describe(results), asked.json)


if __name__ == "__main__":
    main()
