"""Junk challenges on one honest claim, whose solver is the real one: what they cost it, and whom else.

    PYTHONPATH=. python scripts/prove/junk_challenges.py [--challenges 500] [--json FILE]

Somebody announces and opens so many games on true segments of one accepted claim, and says nothing more but
in every twentieth, where it denies the first step that it is shown. Beside it the same day without a
challenge. The solver answers in each game, ends it when its time is over, and has half of each bond; what it
loses is time, and the gas of its moves. Exits with status 1 where it has fewer tokens than undisturbed.
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import torch

from assay.chain.contracts.artifacts import load_artifacts
from assay.chain.contracts.market import ChainMarket
from assay.chain.eth.anvil import Anvil
from assay.chain.eth.rpc import HttpRpc
from assay.protocol import trees
from assay.protocol.dispute import PickStep
from assay.protocol.game_state import GamePhase
from assay.protocol.types import ZERO_ADDRESS, Address, ClaimView, Kind, Phase, Wei
from tests.adversaries.chain_day import TRANSFER, ChainDay

BLOCKS_EACH = 8
"""Seconds of the window for each challenge, which takes two blocks and its answer one."""
TURNS = 5_000
_MALLORYS = Wei(10**6)


def junk(challenges: int, folder: Path) -> dict[str, Any]:
    """What so many false challenges cost the solver of one honest claim, beside one that has none."""
    window = 200 + BLOCKS_EACH * challenges
    calm, disturbed = (_challenged(count, window, folder / str(count)) for count in (0, challenges))
    assert calm["model"] == disturbed["model"], "the same bits"
    return {
        "challenges": challenges,
        "deeper": disturbed["deeper"],
        "settled_after_s": [calm["after_s"], disturbed["after_s"]],
        "move_time_s": disturbed["move_time"],
        "challenge_window_s": disturbed["window"],
        "solver_gas": [calm["gas"], disturbed["gas"]],
        "solver_tokens": [calm["gained"], disturbed["gained"]],
        "challenger_tokens": disturbed["challenger"],
        "unsound": calm["unsound"] + disturbed["unsound"],
    }


def _challenged(challenges: int, window: int, folder: Path) -> dict[str, Any]:
    with Anvil() as chain:
        day = ChainDay(HttpRpc(chain.url, timeout_s=60), load_artifacts(), folder)
        mallory = _mallory(day)
        job_id = day.post(challenge_window=window)

        def accepted() -> list[ClaimView]:
            ann = day.markets["ann"].me
            found = [v for v in day.claims(job_id) if v.claim.claimant == ann and v.claim.kind == Kind.TASK]
            return [v for v in found if v.status.phase == Phase.ACCEPTED]

        assert day.run(lambda: bool(accepted()))
        claim, at = accepted()[0], day.markets["ann"]
        begun, spent = _time(day), _spent(day, at.me)
        before = at.wallet(at.me) + at.free(at.me)
        opened = [_open(day, mallory, claim, number) for number in range(challenges)]
        deeper = 0
        for _ in range(TURNS):
            if at.claim(claim.claim_id).status.phase == Phase.SETTLED:
                break
            day.turn()
            deeper += _pick(mallory, opened[: challenges // 20])
        assert at.claim(claim.claim_id).status.phase == Phase.SETTLED, "the claim is paid in the end"
        settled = _time(day)
        gained = at.wallet(at.me) + at.free(at.me) - before
        gas = _spent(day, at.me) - spent
        assert day.run(day.closed(job_id))
        terms = at.job(job_id).terms
        return {
            "after_s": settled - begun,
            "gas": gas,
            "gained": gained,
            "deeper": deeper,
            "move_time": terms.move_time,
            "window": terms.challenge_window,
            "challenger": mallory.free(mallory.me) - _MALLORYS,
            "model": day.model(job_id),
            "unsound": [] if challenges else day.unsound(job_id),
        }


def _mallory(day: ChainDay) -> ChainMarket:
    sender = day._sender("mallory", 8)
    parts_ = (sender.rpc, day.deployment, day.artifacts, sender, day.folder / "mallory" / "events.db")
    market = ChainMarket(*parts_, max_age_s=0.0)
    deployer = day._sender("deployer", 9)
    token = market.contracts["Token"]
    token.abi = [*token.abi, TRANSFER]
    deployer.send("give mallory", token.call("transfer", market.me, _MALLORYS))
    market.deposit("deposit", _MALLORYS)
    return market


def _open(day: ChainDay, mallory: ChainMarket, view: ClaimView, number: int) -> int:
    """A challenge of a true segment; the game's id."""
    salt, tree = number.to_bytes(32, "big"), trees.build(list(view.roots))
    segment = number % (len(view.roots) - 1)
    root = b"\x01" * 32  # what it says that the segment ends in
    mallory.announce(f"find {number}", view.claim_id, segment, ZERO_ADDRESS, root, salt)
    ends = [leaf for end in (segment, segment + 1) for leaf in (tree.levels[0][end], tree.proof(end))]
    return mallory.open_game(f"open {number}", view.claim, segment, *ends, root, salt)


def _pick(mallory: ChainMarket, games: Sequence[int]) -> int:
    """In these games, deny the first step that was shown, once; in how many."""
    done = 0
    for number in games:
        view = mallory.game(number)
        if not view.decided and view.game.phase == GamePhase.PICK_STEP:
            mallory.move(f"deny {number}", number, view.game, PickStep(view.digests, 0))
            done += 1
    return done


def _time(day: ChainDay) -> int:
    return int(day.rpc.request("eth_getBlockByNumber", ["latest", False])["timestamp"], 16)


def _spent(day: ChainDay, account: Address) -> int:
    """Gas of all that an account has sent."""
    used = 0
    for number in range(day.height() + 1):
        for receipt in day.rpc.request("eth_getBlockReceipts", [hex(number)]) or []:
            if receipt["from"].lower() == account.lower():
                used += int(receipt["gasUsed"], 16)
    return used


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--challenges", type=int, default=500)
    parser.add_argument("--json", type=Path)
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    logging.disable(logging.CRITICAL)
    with tempfile.TemporaryDirectory(prefix="assay-junk-") as name:
        found = junk(chosen.challenges, Path(name))
    if chosen.json is not None:
        chosen.json.write_text(json.dumps(found, indent=1))
    print(json.dumps(found, indent=1))
    return 1 if found["unsound"] or found["solver_tokens"][1] < found["solver_tokens"][0] else 0


if __name__ == "__main__":
    sys.exit(main())
