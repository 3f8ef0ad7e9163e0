// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {Claim, Kind, Role} from "../../src/interfaces/Types.sol";
import {Market} from "./Market.sol";

/// @notice Gas of whole transactions (21,000 included) in a job under way: every account involved has acted before.
/// forge-config: default.isolate = true
contract GasTest is Market {
    function setUp() external {
        setUpMarket();
        for (uint256 i = 3; i < verifiers.length; ++i) {
            uint256 all = activeOf(verifiers[i], Role.VERIFIER); // so that every draw is of the other three
            vm.prank(verifiers[i]);
            stakes.startUnbond(Role.VERIFIER, all);
        }
        vm.roll(vm.getBlockNumber() + 2 * WEIGHT_EPOCH);
        postJob(aTerms());
        holdShards();
        settleAll(playRound(0));
        for (uint256 i; i < verifiers.length; ++i) {
            fund(verifiers[i], 1 ether);
        }
    }

    function test_gasOfATaskFromCommitToSettlement() external {
        Claim memory claim = draft(Kind.TASK, 1, 0);
        bytes32[] memory ends = segmentEnds(claim);
        claim.segmentsRoot = 0; // as solvers leave it: the contract fills it in
        uint256 before = vm.snapshotState();
        vm.prank(solvers[0]);
        tasks.commit(claim, ends);
        assertLe(vm.snapshotGasLastCall("market", "commit_task"), 125_000);
        vm.revertToState(before);
        claim = submit(solvers[0], claim);

        uint64 seedBlock = statusOf(claim).seedBlock;
        vm.roll(seedBlock + 1);
        bytes memory header = mineHeader(seedBlock, keccak256("randao"));
        tasks.recordSeed(claim, header);
        vm.snapshotGasLastCall("market", "record_seed");
        address[] memory drawn = drawnOf(claim);
        for (uint256 i; i < drawn.length; ++i) {
            voteAs(drawn[i], claim, true);
        }
        assertLe(vm.snapshotGasLastCall("market", "attest"), 95_000);
        tasks.tally(claim);
        vm.snapshotGasLastCall("market", "tally");
        acceptedTask(1, 1);
        commitOuter(1);
        skip(501);
        tasks.settle(claim);
        assertLe(vm.snapshotGasLastCall("market", "settle_task"), 127_000);
    }

    function test_gasOfChallenging() external {
        Claim memory claim = acceptedTask(1, 0);
        acceptedTask(1, 1);
        commitOuter(1);
        uint256 game = challengeAs(whistle, claim, 1);
        court.decide(game, true);
        vm.snapshotGasLastCall("market", "convict_task");
        assertEq(tasks.current(jobId, Kind.TASK, 1, 0), 0);
    }
}
