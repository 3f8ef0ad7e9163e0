"""Random programs with planted faults before the deployed Court: its verdicts are the pure twin's."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest

from assay.chain.contracts.artifacts import Artifacts
from assay.chain.eth.journal import Journal
from tests.adversaries.random_games import arrange, judge, play_pure
from tests.fakes.anvil import Anvil
from tests.twin.court_table import CourtTable
from tests.twin.deployed import DeployedMarket


@pytest.fixture(scope="module")
def table(artifacts: Artifacts, tmp_path_factory: pytest.TempPathFactory) -> Iterator[CourtTable]:
    with Anvil(DeployedMarket.options()) as node:
        journal = Journal(tmp_path_factory.mktemp("court") / "journal.db")
        yield CourtTable(DeployedMarket(node, artifacts, journal))
        journal.close()


def play(table: CourtTable, seeds: range) -> Counter[str]:
    """Both games of each seed on chain, judged and compared with the pure ones; the kinds of fault."""
    kinds: Counter[str] = Counter()
    moves = 0
    for seed in seeds:
        case = arrange(seed)
        liar, honest = case.planted.liar, case.honest
        convicted = table.play(case.accusation(), liar, honest)
        acquitted = table.play(case.slander(), honest, liar)
        judge(case, convicted, acquitted)
        for chain, pure in zip((convicted, acquitted), play_pure(case), strict=True):
            assert (chain.challenger_won, chain.reason) == (pure.challenger_won, pure.reason), f"seed {seed}"
        kinds[case.planted.kind] += 1
        moves += convicted.moves + acquitted.moves
    print(f"\n{kinds.total()} programs, {2 * kinds.total()} games, {moves} moves on chain: {dict(kinds)}")
    return kinds


@pytest.mark.long
def test_the_deployed_court_convicts_and_acquits_as_its_twin(table: CourtTable) -> None:
    assert len(play(table, range(1_000_000, 1_000_008))) >= 4


@pytest.mark.slow
def test_hundreds_of_random_games_on_the_deployed_court(table: CourtTable) -> None:
    assert min(play(table, range(300)).values()) >= 10
