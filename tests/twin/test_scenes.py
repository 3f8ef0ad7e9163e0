"""Scenes of the pure market's tests, played on the contracts as well: rules that random lives seldom meet."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from tests.twin.conftest import Stage
from tests.twin.told import begin_on
from tests.unit.spec import test_left_out as left_out
from tests.unit.spec import test_liability as liability
from tests.unit.spec import test_rewards as rewards

MODULES = (left_out, liability, rewards)
EITHER = (False, True)
SCENES: list[Callable[[], None]] = [
    *(partial(left_out.test_a_task_that_is_left_out_gets_no_seed, fixed) for fixed in EITHER),
    *(
        partial(left_out.test_of_a_task_that_is_left_out_nobody_is_fined_and_nobody_called, fixed)
        for fixed in EITHER
    ),
    left_out.test_a_seat_of_a_task_that_stands_abstains_in_time_alone,
    *(
        partial(left_out.test_A3_a_task_that_is_left_out_is_voided_only_when_nobody_may_challenge_it, fixed)
        for fixed in EITHER
    ),
    *(
        partial(left_out.test_A3_a_game_of_the_windows_last_second_keeps_a_task_from_being_voided, fixed)
        for fixed in EITHER
    ),
    *(
        partial(left_out.test_a_task_that_is_left_out_falls_and_nothing_is_rewound, fixed, by)
        for fixed in EITHER
        for by in ("game", "demand", "binding")
    ),
    *(partial(left_out.test_A4_a_halted_job_ends_once_its_late_task_has, falls) for falls in EITHER),
    left_out.test_a_task_that_was_left_out_stands_again_once_its_round_begins_again,
    left_out.test_a_task_that_is_left_out_of_a_round_that_can_be_closed_is_wasted_with_it,
    left_out.test_a_round_that_was_stalled_waits_a_votes_time_for_those_that_are_voted_on,
    left_out.test_a_round_that_was_stalled_waits_no_longer,
    liability.test_A3_a_lost_game_about_an_overtaken_claims_input_costs_nothing,
    liability.test_a_lost_game_about_a_standing_claims_input_pays_its_claimant,
    liability.test_a_game_about_an_overtaken_claim_that_is_lost_pays_its_claimant,
    liability.test_a_wrong_binding_convicts_no_overtaken_claim_without_a_game,
    *(
        partial(rewards.test_T53_who_wins_its_game_has_its_part_though_the_job_goes_on_without_the_claim, how)
        for how in ("overtaken", "late", "left out")
    ),
    rewards.test_a_reward_whose_finders_disagree_ends_with_its_job,
    rewards.test_T53_a_demand_that_convicts_has_its_part_beside_a_game_that_is_won,
    rewards.test_a_reward_of_a_place_that_is_settled_is_shared_by_its_claim_alone,
    *(
        partial(rewards.test_a_finding_about_the_input_counts_where_its_sources_or_the_winner_say_so, fell)
        for fell in ("for its input", "alone", "before an earlier one")
    ),
    *(
        partial(rewards.test_a_finding_about_an_outer_claims_input_counts_while_no_task_has_come, comes)
        for comes in EITHER
    ),
]


def named(scene: Callable[[], None]) -> str:
    if not isinstance(scene, partial):
        return scene.__name__.removeprefix("test_")
    said = "-".join(str(argument) for argument in scene.args)
    return f"{scene.func.__name__.removeprefix('test_')}-{said}"


@pytest.mark.parametrize("scene", SCENES, ids=named)
def test_the_contracts_play_a_scene_as_the_rules_do(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, scene: Callable[[], None]
) -> None:
    for module in MODULES:
        monkeypatch.setattr(module, "begin", lambda **changes: begin_on(stage.enter(), **changes))
    scene()
