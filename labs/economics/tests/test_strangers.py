"""Parasites, stake that is elsewhere, clients and thieves: what they gain, by the rules' own division."""

from __future__ import annotations

from dataclasses import replace
from math import sqrt

import pytest

from assay.job.amounts import LEARNERS, OUTER_GAS
from assay.job.read import parse_job_file
from assay.job.templates import LOCAL
from assay.job.use_templates import grpo_template
from assay.protocol.types import Role
from labs.economics import attacks, classes, strangers
from labs.economics import experiments as ask
from labs.economics import incentives as formulas
from labs.economics.market import Market, simulate
from labs.economics.strategies import OUTER_GAS as GAS
from labs.economics.strategies import TOK, Population, Rules, S

SIZE = ask.Size(accounts=400, tasks=4_000, sweep=4_000, seed=7)
RULES = Rules()
CODED = ask.template_rules(algorithm="diloco-4bit")


def test_R10_seats_of_stake_that_is_elsewhere_go_to_others_and_pay_nothing() -> None:
    rows = strangers.elsewhere(SIZE, RULES, accounts=24)
    for row in rows:
        spread = 4 * sqrt(row["formula"] * (1 - row["formula"]) / 1_000) + 2e-3
        assert abs(row["empty at first"] - row["formula"]) < spread, row
        assert row["gains a draw if silent"] < row["gains a draw"] < 0
        assert row["unattested"] < row["if silent, unattested"], "it is passed over, who is silent is not"
    assert rows[-1]["empty at first"] > 0.1, "with three quarters elsewhere it shows"


def test_no_client_gains_but_the_fees_of_a_check_that_it_forgoes() -> None:
    rows = {row["client"]: row for row in strangers.clients(SIZE, RULES)}
    forgone = rows.pop("hides its files, and saves the fees")
    assert forgone["gains"] == RULES.verifiers * RULES.verifier_fee / TOK
    assert max(row["gains"] for row in rows.values()) <= 0
    assert min(row["solver"] for row in rows.values()) >= 0, "a solver that follows its policy loses nothing"
    assert -0.05 < min(row["verifier"] for row in rows.values()) <= 0, "a verifier the gas of abstaining"


def test_R7_felling_ones_own_job_costs_what_the_formula_says() -> None:
    assert strangers.felling(SIZE, RULES) == pytest.approx(formulas.felling_gain(RULES), abs=8)


def test_R6_a_stolen_key_loses_what_its_owners_cap_leaves_and_half_burns() -> None:
    rows = {(row["role"], row["cap for others"]): row for row in strangers.stolen_keys(RULES)}
    for role in ("solver", "verifier"):
        uncapped, one, none = (rows[role, name] for name in ("none", "one at a time", "nothing"))
        assert uncapped["owner loses"] >= 0.9 * uncapped["staked"], "the theft is real"
        assert uncapped["thief gains"] > 0.4 * uncapped["owner loses"]
        assert one["jobs"] == 1 and one["owner loses"] == uncapped["owner loses"] / uncapped["jobs"]
        assert none["owner loses"] == none["thief gains"] == 0
        for row in (uncapped, one):
            assert row["burnt"] == row["owner loses"] / 2
    assert strangers.theft(Role.SOLVER, 440 * TOK, 20 * TOK, 4_400 * TOK, None)[2] == 9


def test_every_vote_replays_the_loops_beside_the_training() -> None:
    assert CODED.other_loops == 1 and CODED.replay > ask.template_rules().replay
    people = Population({S.HONEST_SOLVER: 1, S.HONEST_VERIFIER: 9})
    chosen = Market(CODED, people, 1, 3)._sample((500,))
    assert all(int(bits) >> CODED.segments == 1 for bits in chosen)
    assert all(int(bits).bit_count() == CODED.samples + 1 for bits in chosen)
    out = simulate(replace(CODED, claim_audits=0.0), ask.crowd(SIZE, {S.CHEAT: 1.0}, ask.HONEST), 500, 3)
    assert out.detection == 1.0 and out.imbalance() == 0
    honest = simulate(CODED, ask.crowd(SIZE, {S.HONEST_SOLVER: 1.0}, ask.HONEST), 500, 3)
    assert honest.profit(S.HONEST_SOLVER)[0] == pytest.approx(attacks.honest_task(CODED))


def test_what_is_written_pays_honesty_alone_and_codings_want_other_amounts() -> None:
    """The templates write `diloco`. What other algorithms want stands in docs/economics.md."""
    rows = classes.table()
    written = [row for row in rows if row["algorithm"] == "diloco"]
    assert len(written) == 2 * len(classes.TEMPLATES) and all(row["pays honesty alone"] for row in written)
    short = {row["algorithm"] for row in rows if not row["pays honesty alone"]}
    coded = {"diloco-u8", "diloco-4bit", "diloco-int4", "diloco-2bit"}
    coded |= {"streaming", "sparseloco", "powersgd", "eager"}
    assert short == coded | {"held out"}, "and not grpo, whose template writes its own"
    for row in rows:
        rules = ask.template_rules(row["template"], row["price at its"] == "cap", row["algorithm"])
        enough = {
            "verifier_fee": max(row["least fee"], rules.verifier_fee / TOK),
            "verifier_stake": max(row["least verifier stake"], rules.verifier_stake / TOK),
            "solver_stake": max(row["least solver stake"], rules.solver_stake / TOK),
        }
        amounts = {name: round(1.001 * amount * TOK) for name, amount in enough.items()}
        mended = replace(rules, **amounts, miss_penalty=amounts["verifier_stake"] // 2)
        assert max(classes.gains(mended).values()) < 0 <= classes.honest_vote(mended), row
        assert min(formulas.vote_dispute(mended, in_game) for in_game in (False, True)) > 0, row
        assert formulas.least_class_stake(replace(mended, most_wasted=0)) <= mended.solver_stake / TOK


def test_grpos_outer_claim_is_paid_what_it_takes_and_the_warning_is_of_the_same() -> None:
    file = parse_job_file(grpo_template(2, LOCAL), "the template")
    assert file.money.outer_fee == classes.OUTER_FEE * 10**18
    for row in classes.learning():
        assert row["least outer_fee"] <= row["outer_fee"]
        assert row["inventing it gains"] < 0 and row["least audits"] < 0.1
        assert row["its finder keeps at least"] > 16.4, "what a whole audit of GRPO's costs"
    weight = float(LEARNERS["grpo"])
    assert classes.LEARNER_TIME <= weight * classes.LEARNER_OPERATIONS <= 1.03 * classes.LEARNER_TIME
    assert float(OUTER_GAS) >= ask.template_rules().gas(GAS) / TOK


def test_slices_are_paid_out_of_what_a_conviction_may_waste() -> None:
    rows = {row["slices"]: row for row in classes.slicing(ask.template_rules())}
    assert rows[1]["least stake, each paid 1"] <= 440 < rows[4]["least stake, each paid 1"]
    assert rows[16]["each paid its gas"] <= 440 < rows[64]["each paid its gas"]
    for slices, row in rows.items():
        rules = ask.template_rules()
        most = round(row["most that each may be paid"] * slices * TOK)
        wasted = formulas.most_wasted(rules, 2, 4, most)
        assert abs(8 * wasted / 3 - rules.solver_stake) <= 8 * 4, slices


def test_the_matrix_has_every_strategy_in_every_algorithm() -> None:
    rows = {row["strategy"]: row for row in classes.matrix()}
    assert rows["cheat, other loops alone"]["diloco"] is None
    assert len(rows) == 13 and all(len(row) == 1 + len(ask.OTHER_LOOPS) for row in rows.values())
