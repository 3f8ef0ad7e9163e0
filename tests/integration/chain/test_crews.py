"""A crew of three on a real local chain: formed by consents, paid by shares, and a liar charged alone."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import pytest

from assay.chain.contracts.artifacts import Artifacts
from assay.chain.contracts.consent import sign_invitation, sign_transcript, signer_of
from assay.chain.contracts.crews import CrewMember, CrewView, address_of, crew_view
from assay.chain.contracts.records import unpack_game
from assay.chain.eth.anvil import dev_account
from assay.chain.eth.clock import ChainClock
from assay.chain.eth.rpc import HttpRpc
from assay.protocol import trees
from assay.protocol.crew import Invitation, Member, Said, Transcript, from_json, to_json
from assay.protocol.dispute import Timeout
from assay.protocol.errors import Reverted, Stop
from assay.protocol.types import (
    ZERO_ADDRESS,
    Address,
    Claim,
    Phase,
    ProgramRef,
    Role,
    Seconds,
    Terms,
    Wei,
)
from tests.integration.chain.test_market_cycle import DELAYS, drafted, markets_on, pass_time, posted, run_out
from tests.property.markets import TERMS

SHARES = (5_000, 3_000, 2_000)
STAKE = Wei(10_000)
STAGES = tuple(ProgramRef(bytes([i + 1]) * 32, 9, 3, 1) for i in range(3))


class Rig:
    """A job with one shard, an outsider, and three accounts with an invitation to take the shard."""

    def __init__(
        self,
        rpc: HttpRpc,
        artifacts: Artifacts,
        folder: Path,
        base: Terms = TERMS,
        stages: Sequence[ProgramRef] = STAGES,
    ) -> None:
        self.rpc = rpc
        self.client, self.outsider, *self.accounts = markets_on(rpc, artifacts, folder, 5)
        self.job_id = posted(self.client, self.outsider, 1, base)
        members = (Member(m.me, share, s) for m, share, s in zip(self.accounts, SHARES, stages, strict=True))
        expiry = Seconds(ChainClock(rpc).now() + 3_600)
        self.invitation = Invitation(self.job_id, 0, Wei(1), STAKE, expiry, b"p" * 32, tuple(members))
        self.members = [CrewMember(market, self.invitation) for market in self.accounts]

    @property
    def terms(self) -> Terms:
        return self.client.job(self.job_id).terms

    def consents(self) -> list[bytes]:
        """The other members' signatures, once all have allowed their stakes."""
        for member in self.members:
            member.allow("allow")
        chain, crews = self.client.sender.chain_id, Address(self.client.contracts["Crews"].address)
        signed = [sign_invitation(dev_account(i), self.invitation, chain, crews) for i in (3, 4)]
        for market, signature in zip(self.accounts[1:], signed, strict=True):
            assert signer_of(self.invitation, signature, chain, crews) == market.me
        return signed

    def committed(self, ends: Sequence[bytes] = (b"\x21" * 32, b"\x22" * 32)) -> Claim:
        """The crew is formed, and its leader has committed its task: the states at its segments' ends."""
        leader = self.members[0]
        leader.form("form", self.consents())
        tree = trees.build([self.terms.genesis_root, *ends])
        claim_id = leader.commit("commit", drafted(self.job_id, 0, tree), tree.levels[0])
        return self.client.claim(claim_id).claim

    def settle(self, claim: Claim) -> None:
        """The claim is accepted without votes, and paid."""
        pass_time(self.rpc, 1, blocks=3)
        self.outsider.record_seed("seed", claim)
        pass_time(self.rpc, self.terms.vote_time + 1)
        self.outsider.tally("tally", claim)
        pass_time(self.rpc, 2 * self.terms.challenge_window + 1)
        self.outsider.settle("settle", claim)

    def convict(self, claim: Claim, root: bytes) -> None:
        """An outsider disputes the claim's last state, and the leader deliberately does not answer."""
        view = self.outsider.claims(self.job_id)[0]
        tree, salt = trees.build(view.roots), b"s" * 32
        self.outsider.announce("find", view.claim_id, 1, ZERO_ADDRESS, root, salt)
        pass_time(self.rpc, 1)
        leaves = (tree.levels[0][1], tree.proof(1), tree.levels[0][2], tree.proof(2))
        game = self.outsider.open_game("open", claim, 1, *leaves, root, salt)
        run_out(self.rpc, self.outsider, self.terms.move_time)
        self.outsider.move("timeout", game, self.outsider.game(game).game, Timeout())
        assert self.outsider.claim(view.claim_id).status.phase == Phase.CONVICTED

    def end(self) -> list[int]:
        """The crew is dissolved and paid back: what each member gets."""
        before = [market.free(market.me) for market in self.accounts]
        self.members[2].dissolve("dissolve")
        pass_time(self.rpc, DELAYS.unbond_s + 1)
        self.members[2].finish("finish")
        return [market.free(market.me) - b for market, b in zip(self.accounts, before, strict=True)]

    def view(self) -> CrewView:
        found = crew_view(self.client, self.invitation)
        assert found is not None
        return found

    def transcript(self, claim: Claim) -> tuple[Transcript, Said, bytes]:
        """Member 1's signed transcript of two steps, and the second step."""
        roots = [b"\x31" * 32, b"\x32" * 32, b"\x33" * 32]
        tree = trees.build([trees.leaf(a + b) for a, b in pairwise(roots)])
        made = Transcript(self.view().address, 1, claim.round, claim.attempt, 0, 2, tree.root)
        crews = Address(self.client.contracts["Crews"].address)
        signature = sign_transcript(dev_account(3), made, self.client.sender.chain_id, crews)
        return made, Said(1, roots[1], roots[2], tuple(tree.proof(1))), signature


@pytest.fixture
def rig(rpc: HttpRpc, artifacts: Artifacts, tmp_path: Path) -> Rig:
    return Rig(rpc, artifacts, tmp_path)


@pytest.mark.long
def test_a_crew_works_is_paid_by_shares_and_gets_out_without_its_leader(rig: Rig) -> None:
    assert from_json(to_json(rig.invitation)) == rig.invitation
    assert crew_view(rig.client, rig.invitation) is None
    consents = rig.consents()
    with pytest.raises(Reverted) as refused:
        rig.members[0].form("early", consents[::-1])
    assert refused.value.error == "WrongConsent"
    claim = rig.committed()
    crew = address_of(rig.client, rig.invitation)
    assert claim.claimant == crew == rig.view().address and rig.view().holds
    assert rig.client.stake(crew, Role.SOLVER).locked == rig.terms.solver_stake + rig.terms.miss_penalty

    rig.settle(claim)
    earned = [standing.earned for standing in rig.view().members]
    assert sum(earned) == claim.price and earned[1] == claim.price * 3 // 10
    before = [market.free(market.me) for market in rig.accounts]
    rig.members[2].pay("pay")
    assert [m.free(m.me) - b for m, b in zip(rig.accounts, before, strict=True)] == earned

    with pytest.raises(Stop) as stranger:
        CrewMember(rig.outsider, rig.invitation).release("release")
    assert stranger.value.code == "not-member"
    rig.members[2].release("release")
    assert (rig.view().holds, rig.view().locked, rig.view().lost) == (False, 0, 0)
    assert rig.end() == [STAKE] * 3 and rig.view().ended


@pytest.mark.long
def test_a_member_that_lied_is_charged_alone(rig: Rig) -> None:
    claim = rig.committed()
    made, said, signature = rig.transcript(claim)
    leader = rig.members[0]
    with pytest.raises(Reverted) as early:
        leader.accuse("early", claim, made, signature, said)
    assert early.value.error == "WrongClaim"

    rig.convict(claim, b"r" * 32)
    assert rig.view().lost == rig.terms.solver_stake

    accused = leader.accuse("accuse", claim, made, signature, said)
    assert rig.view().members[1].accusations == 1
    logged = rig.accounts[0].logged("accuse", "CrewsCourt", "GameOpened")
    opened = unpack_game(logged["game"])
    assert (opened.defender, opened.challenger) == (rig.accounts[1].me, rig.accounts[0].me)
    run_out(rig.rpc, rig.outsider, rig.terms.move_time)
    rig.outsider.do("decide", "CrewsCourt", "timeout", accused, opened)
    charged = [standing.charged for standing in rig.view().members]
    assert charged == [0, rig.terms.solver_stake, 0]

    lost = rig.terms.solver_stake
    assert rig.end() == [STAKE - lost // 2 + rig.terms.challenge_bond, STAKE - lost, STAKE]


@pytest.mark.long
def test_an_approval_that_another_call_has_spent_is_sent_again(rig: Rig) -> None:
    leader, crews = rig.accounts[0], Address(rig.client.contracts["Crews"].address)
    sent = []
    for turn in range(3):
        sent.append(leader.approve("accuse/approve", crews, Wei(5)))
        assert leader.approve("other/approve", crews, Wei(5)) is None, "there is enough"
        leader.do(f"spend/{turn}", "Token", "approve", crews, 0)
    assert len({result.tx_hash for result in sent if result is not None}) == 3
