// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {IGuardian} from "../../src/interfaces/IGuardian.sol";
import {IVault} from "../../src/interfaces/IVault.sol";
import {Claim, ClaimStatus, Phase, Role, Vote} from "../../src/interfaces/Types.sol";
import {Actions} from "./Actions.sol";
import {AuditsHandler} from "./AuditsHandler.sol";

/// @notice The handler with what is true of it at any time, numbered as in docs/invariants.md.
contract CheckedMarket is AuditsHandler {
    function check1_theVaultHoldsExactlyItsBuckets() external view {
        assertEq(token.balanceOf(address(vault)), entriesSum() + vault.undestroyed() + donated);
    }

    function check2_everyEntryIsWhatItStandsFor() external view {
        uint256 active;
        uint256 unbonding;
        for (uint256 i; i < solvers.length; ++i) {
            active += activeOf(solvers[i], Role.SOLVER);
            unbonding += stakes.unbonding(solvers[i], Role.SOLVER);
        }
        for (uint256 i; i < verifiers.length; ++i) {
            active += activeOf(verifiers[i], Role.VERIFIER);
            unbonding += stakes.unbonding(verifiers[i], Role.VERIFIER);
        }
        assertEq(stakeSum(IVault.Bucket.STAKE), active, "stake");
        assertEq(stakeSum(IVault.Bucket.UNBONDING), unbonding, "unbonding");
        assertEq(free(address(tasks)), rewardsDue + feesDue(), "nothing stays with the module but what waits");
        assertEq(bondSum(), (open.length + demanded.length) * CHALLENGE_BOND, "bonds");
    }

    function check3_theSupplyChangesOnlyByBurns() external view {
        assertEq(token.totalSupply(), SUPPLY - (vault.burnt() - vault.undestroyed()));
    }

    function check4_escrowIsWhatWasFundedLessPaidAndRefundedAndCoversTheRest() external view {
        for (uint256 i; i < jobIds.length; ++i) {
            bytes32 id = jobIds[i];
            uint256 escrow = vault.balance(IVault.Bucket.ESCROW, id);
            assertEq(escrow, funded[id] - paid[id] - refunded[id], "escrow");
            assertGe(escrow, outstanding[id], "what may still be owed is there");
        }
    }

    function check5_locksAreExactlyLiveClaimsAndVotes() external view {
        for (uint256 i; i < solvers.length; ++i) {
            uint256 expected;
            for (uint256 c; c < claims.length; ++c) {
                if (claims[c].claimant == solvers[i] && _live(claims[c])) expected += 100 ether;
            }
            expected += _shardsHeld(solvers[i]) * 7 ether;
            assertEq(lockedOf(solvers[i], Role.SOLVER), expected, "solver");
            assertLe(expected, activeOf(solvers[i], Role.SOLVER), "locked <= active");
        }
        for (uint256 i; i < verifiers.length; ++i) {
            uint256 expected;
            for (uint256 c; c < claims.length; ++c) {
                if (_holdsSeats(claims[c]) && _voteLocked(claims[c], verifiers[i])) expected += 30 ether;
            }
            assertEq(lockedOf(verifiers[i], Role.VERIFIER), expected, "verifier");
            assertLe(expected, activeOf(verifiers[i], Role.VERIFIER), "locked <= active");
        }
    }

    function _holdsSeats(Claim memory claim) private view returns (bool) {
        return _live(claim) || statusOf(claim).phase == Phase.CONVICTED;
    }

    function _voteLocked(Claim memory claim, address verifier) private view returns (bool) {
        bytes32 id = idOf(claim);
        Vote[] memory cast = tasks.votes(id);
        for (uint256 i; i < cast.length; ++i) {
            if (cast[i].verifier != verifier) continue;
            assertTrue(cast[i].gone || !convictedVote[id][verifier], "a vote that has fallen is gone");
            return !cast[i].gone;
        }
        return false;
    }

    function _shardsHeld(address solver) private view returns (uint256 n) {
        for (uint256 i; i < jobIds.length; ++i) {
            for (uint32 shard; shard < SHARDS; ++shard) {
                (address holder,,) = tasks.holder(jobIds[i], shard);
                if (holder == solver) ++n;
            }
        }
    }

    function check8_noRequestsDateEverMoves() external view {
        for (uint256 i; i < unbondings.length; ++i) {
            (, uint64 due) = stakes.request(unbondings[i].account, unbondings[i].role, unbondings[i].index);
            assertEq(due, unbondings[i].due);
        }
    }

    function check14_phasesOnlyMoveForward() external {
        for (uint256 i; i < claims.length; ++i) {
            Phase now_ = statusOf(claims[i]).phase;
            Phase before = lastPhase[i];
            bool redrawn = before == Phase.SEEDED && now_ == Phase.COMMITTED;
            assertTrue(now_ >= before || redrawn, "forward");
            bool ended = before == Phase.SETTLED || before == Phase.CONVICTED || before == Phase.VOID;
            assertTrue(!ended || now_ == before, "the end is the end");
            lastPhase[i] = now_;
        }
    }

    function check15_countedVotesAreDrawnVotes() external view {
        for (uint256 i; i < claims.length; ++i) {
            bytes32 id = idOf(claims[i]);
            ClaimStatus memory st = tasks.status(id);
            Vote[] memory cast = tasks.votes(id);
            uint256 shown_;
            uint256 valid;
            for (uint256 v; v < cast.length; ++v) {
                assertTrue(cast[v].verifier != claims[i].claimant, "nobody votes on his own claim");
                if (cast[v].shown && !cast[v].gone) ++shown_;
                if (cast[v].valid) ++valid;
                for (uint256 w; w < v; ++w) {
                    assertTrue(cast[v].verifier != cast[w].verifier, "distinct");
                }
            }
            assertEq(st.shown, shown_, "shown_");
            assertEq(st.valid, valid, "valid");
        }
    }

    function check16_nobodyWithdrawsMoreThanCameIn() external view {
        assertEq(withdrawn + vault.burnt() + entriesSum(), deposited);
    }

    /// @dev Wind everything up: whatever happened, and with everything paused that can be, every game ends, every claim ends,
    /// every unbonded token comes out.
    function check18_everythingThatIsDueCanBeCarriedOut() external {
        for (uint8 i; i <= uint8(type(IGuardian.Business).max); ++i) {
            vm.prank(pauser);
            guardian.setPaused(IGuardian.Business(i), true);
        }
        while (open.length > 0) {
            this.decide(open.length << 17 | open.length - 1);
        }
        while (demanded.length > 0) {
            _answer(demanded.length - 1, demanded.length % 2 == 0);
        }
        skip(UNBOND_DELAY);
        for (uint256 i; i < claims.length; ++i) {
            if (_live(claims[i]) && !_stands(claims[i])) tasks.void(claims[i]);
        }
        for (uint256 i; i < claims.length; ++i) {
            if (_seatsDue(claims[i])) tasks.freeSeats(claims[i]);
        }
        assertEq(feesDue(), 0);
        for (uint256 i; i < unbondings.length; ++i) {
            if (unbondings[i].done) continue;
            vm.prank(unbondings[i].account);
            stakes.finishUnbond(unbondings[i].role, unbondings[i].index);
            unbondings[i].done = true;
        }
        for (uint256 i; i < solvers.length; ++i) {
            uint256 amount = free(solvers[i]);
            vm.prank(solvers[i]);
            vault.withdraw(solvers[i], amount);
            withdrawn += amount;
        }
    }
}

/// forge-config: default.invariant.runs = 8
/// forge-config: default.invariant.depth = 80
/// forge-config: nightly.invariant.runs = 256
/// forge-config: nightly.invariant.depth = 256
contract MarketInvariantTest is Actions {
    CheckedMarket private market;

    function renew() internal override returns (address) {
        market = new CheckedMarket();
        return address(market);
    }

    function setUp() external {
        handler = renew();
        act(market.advance.selector, 8);
        act(market.challenge.selector, 1);
        act(market.challengeVote.selector, 3);
        act(market.decide.selector, 2);
        act(market.settle.selector, 1);
        act(market.voidStale.selector, 1);
        act(market.releaseShard.selector, 1);
        act(market.unbond.selector, 1);
        act(market.finishUnbond.selector, 1);
        act(market.wait.selector, 1);
        act(market.withdraw.selector, 1);
        act(market.haltJob.selector, 1);
        act(market.demand.selector, 2);
        act(market.answer.selector, 2);
        act(market.share.selector, 1);
        act(market.freeSeats.selector, 1);
    }

    function invariant_theMarketKeepsItsBooks() external {
        check();
    }

    function check() internal override {
        market.check1_theVaultHoldsExactlyItsBuckets();
        market.check2_everyEntryIsWhatItStandsFor();
        market.check3_theSupplyChangesOnlyByBurns();
        market.check4_escrowIsWhatWasFundedLessPaidAndRefundedAndCoversTheRest();
        market.check5_locksAreExactlyLiveClaimsAndVotes();
        market.check8_noRequestsDateEverMoves();
        market.check14_phasesOnlyMoveForward();
        market.check15_countedVotesAreDrawnVotes();
        market.check16_nobodyWithdrawsMoreThanCameIn();
    }

    /// @dev Nothing is asked of a run that chance may leave out.
    function afterInvariant() external {
        market.check18_everythingThatIsDueCanBeCarriedOut();
        check();
    }

    function test_everyActionOfTheHandlerHappens() external {
        string memory claims = "advance, commit, outer, missing, slice, slice of a round that stays open, release, expire, "
            "accept, unattested, abstain, recall, missed vote, settle, void, late void, free seats, halt, close";
        string memory money = "unbond, finish unbond, withdraw, share";
        string memory disputes = "challenge, challenge vote, decide, convict, convict vote, "
            "convict vote of a fallen claim, demand, supply, withhold, expire demand";
        assertAllHappen(string.concat(claims, ", ", money, ", ", disputes), 40, 160);
    }
}
