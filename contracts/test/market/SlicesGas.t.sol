// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {Claim, Kind, Role, Terms} from "../../src/interfaces/Types.sol";
import {Merkle} from "../../src/libraries/Merkle.sol";
import {Market} from "./Market.sol";

/// @notice Gas of a round's outer step, committed and settled, in one slice, in four and in eight: whole transactions one by
/// one, of accounts that have acted before, in the second round of a job.
/// forge-config: default.isolate = true
contract SlicesGasTest is Market {
    Claim[] private kept;

    function setUp() external {
        setUpMarket();
        for (uint256 i; i < solvers.length; ++i) {
            stakeAs(solvers[i], Role.SOLVER, 5000 ether);
        }
    }

    function prepare(uint32 slices) private {
        Terms memory t = aTerms();
        shapeSliced(t, 9, 8, SHARDS, slices);
        t.genesisRoot = Merkle.root(stateSlots("genesis", SLOTS)); // as `draft` has it
        (t.solverStake, t.nonce) = (300 ether, slices);
        postJob(t);
        holdShards();
        play(0, slices);
        delete kept;
        kept.push(acceptedTask(1, 0));
        kept.push(acceptedTask(1, 1));
    }

    function play(uint32 round, uint32 slices) private {
        Claim[] memory each = new Claim[](SHARDS + slices);
        for (uint32 i; i < SHARDS; ++i) {
            each[i] = acceptedTask(round, i);
        }
        for (uint32 s; s < slices; ++s) {
            each[SHARDS + s] = submit(solvers[(round + s) % SHARDS], draft(Kind.OUTER, round, s));
        }
        settleAll(each);
    }

    function outerStep(uint32 slices) private returns (uint256 gas) {
        prepare(slices);
        Claim[] memory each = new Claim[](slices);
        for (uint32 s; s < slices; ++s) {
            Claim memory claim = draft(Kind.OUTER, 1, s);
            bytes32[] memory ends = segmentEnds(claim);
            claim.segmentsRoot = 0;
            address by = solvers[(1 + s) % SHARDS];
            uint256 before = vm.snapshotState();
            vm.prank(by);
            tasks.commit(claim, ends);
            gas += vm.snapshotGasLastCall("slices", string.concat("commit_", place(s, slices)));
            vm.revertToState(before);
            claim.segmentsRoot = Merkle.root(segmentEnds(claim));
            each[s] = submit(by, claim);
        }
        assertEq(jobs.progress(jobId).round, 2);
        skip(501);
        for (uint256 i; i < kept.length; ++i) {
            tasks.settle(kept[i]);
        }
        for (uint32 s; s < slices; ++s) {
            tasks.settle(each[s]);
            gas += vm.snapshotGasLastCall("slices", string.concat("settle_", place(s, slices)));
        }
        assertEq(jobs.progress(jobId).settledRounds, 2);
        vm.snapshotValue("slices", string.concat("round_of_", vm.toString(slices)), gas);
    }

    function place(uint32 number, uint32 slices) private pure returns (string memory) {
        if (slices == 1) return "only";
        return number == 0 ? "first" : number + 1 == slices ? "last" : "next";
    }

    function test_gasOfAnOuterStepInSlices() external {
        uint256 one = outerStep(1);
        uint256 four = outerStep(4);
        uint256 eight = outerStep(8);
        assertLt(four, 4 * one);
        assertLt(eight - four, 4 * one, "no slice is dearer than a whole outer step");
    }
}
