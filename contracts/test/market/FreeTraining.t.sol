// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {IVault} from "../../src/interfaces/IVault.sol";
import {Claim, Phase, Role, Terms} from "../../src/interfaces/Types.sol";
import {RealCourt} from "./RealCourt.sol";

/// @notice R7: a client whose own solver passes a fault in round 0, lets others train on it, and fells it when their work is
/// public. The real Court plays: the Sybil lets its time pass.
contract FreeTrainingTest is RealCourt {
    uint32 private constant ROUNDS = 4; // all of them unsettled when the first falls

    address private sybil;
    address private puppet = makeAddr("the client's whistleblower");
    Claim[] private honest;
    Claim private wrong;

    function setUp() external {
        setUpMarket();
        Terms memory t = aTerms();
        (t.rounds, t.maxUnsettled, t.challengeWindow) = (ROUNDS + 1, ROUNDS, 5000);
        (t.verifiers, t.solverStake) = (1, 230 ether); // 8/3 of 3 rounds of 2 tasks at 11, and 4 outer claims at 5
        postJob(t);
        sybil = newSolver("sybil", 4000 ether);
        stakeAs(solvers[0], Role.SOLVER, 4000 ether);
        stakeAs(solvers[1], Role.SOLVER, 4000 ether);
        fund(puppet, 100 ether);
        takeAs(sybil, 0);
        takeAs(solvers[1], 1);
    }

    function posted_() private view returns (Terms memory) {
        return jobs.terms(jobId);
    }

    /// @dev Round 0 with the fault; then shard 0 is an honest solver's, and everybody works on.
    function train() private {
        wrong = acceptedTask(0, 0);
        acceptedTask(0, 1);
        releaseAs(sybil, 0);
        takeAs(solvers[0], 0);
        honest.push(commitOuter(0));
        for (uint32 round = 1; round < ROUNDS; ++round) {
            honest.push(acceptedTask(round, 0));
            honest.push(acceptedTask(round, 1));
            honest.push(commitOuter(round));
        }
    }

    function work() private view returns (uint256 sum) {
        for (uint256 i; i < honest.length; ++i) {
            sum += honest[i].price;
        }
    }

    /// @dev Of everybody who is the client.
    function theirs() private view returns (uint256) {
        uint256 free_ = free(client) + free(puppet) + free(sybil);
        return free_ + activeOf(sybil, Role.SOLVER) + vault.balance(IVault.Bucket.ESCROW, jobId);
    }

    function test_R7_aClientThatFellsItsOwnJobPaysForAllOfIt() external {
        uint256 before = theirs();
        uint256 earned = free(solvers[0]) + free(solvers[1]);
        train();
        uint256 gameId = openAs(puppet, wrong, 0);
        clientHalts();
        letPass(gameId);
        assertPhase(wrong, Phase.CONVICTED);
        for (uint256 i; i < honest.length; ++i) {
            tasks.void(honest[i]);
        }
        assertEq(free(solvers[0]) + free(solvers[1]) - earned, work(), "every wasted claim at its price");
        uint256 fees = (honest.length - ROUNDS) * posted_().verifiers * posted_().verifierFee;
        uint256 paid = before - theirs();
        assertGe(paid, work() + fees + posted_().solverStake / 2, "the work in full, and half a stake burnt");
        assertEq(compensationSum(), 0);
    }
}
