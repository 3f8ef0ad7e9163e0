// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {IVault} from "../../src/interfaces/IVault.sol";
import {Role, Terms} from "../../src/interfaces/Types.sol";
import {Market} from "./Market.sol";

/// @notice A job from posting to closing, and what each party ends up with.
contract LifecycleTest is Market {
    function setUp() external {
        setUpMarket();
    }

    function test_termsAreReadBackAsPosted() external {
        Terms memory t = aTerms();
        postJob(t);
        assertEq(keccak256(abi.encode(jobs.terms(jobId))), keccak256(abi.encode(t)), "terms");
    }

    function test_anHonestJobPaysEverybodyAndRefundsTheRest() external {
        Terms memory t = aTerms();
        uint256 clientBefore = free(client);
        postJob(t);
        holdShards();
        uint256[2] memory before = [free(solvers[0]), free(solvers[1])];
        for (uint32 round; round < 3; ++round) {
            settleAll(playRound(round));
        }
        jobs.close(jobId);
        releaseShards();
        assertEq(
            free(solvers[0]) - before[0],
            3 * 10 ether + 2 * 5 ether,
            "solver 0: tasks at the floor, outer fees of rounds 0 and 2"
        );
        assertEq(free(solvers[1]) - before[1], 3 * 10 ether + 5 ether, "solver 1");
        uint256 fees = 3 * SHARDS * 3 * 1 ether;
        assertEq(
            clientBefore - free(client), 6 * 10 ether + 3 * 5 ether + fees, "client paid what was earned"
        );
        assertEq(escrowSum(), 0, "escrow");
        for (uint256 i; i < verifiers.length; ++i) {
            assertEq(lockedOf(verifiers[i], Role.VERIFIER), 0, "verifier locks");
        }
        assertEq(lockedOf(solvers[0], Role.SOLVER) + lockedOf(solvers[1], Role.SOLVER), 0, "solver locks");
        assertSolvent();
    }
}
