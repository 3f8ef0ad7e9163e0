// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {IJobs} from "../../src/interfaces/IJobs.sol";
import {ITasks} from "../../src/interfaces/ITasks.sol";
import {IVault} from "../../src/interfaces/IVault.sol";
import {ClaimStatus, Phase} from "../../src/interfaces/Types.sol";
import {Lens} from "../../src/market/Lens.sol";
import {Market} from "./Market.sol";

/// @notice Many views in one call: each answers as it does by itself.
contract LensTest is Market {
    Lens internal lens;

    function setUp() external {
        setUpMarket();
        postJob(aTerms());
        lens = new Lens();
    }

    function test_eachViewIsAnsweredInItsPlace() external {
        holdShards();
        bytes32 claimId = idOf(commitTask(0, 0));
        Lens.View[] memory views = new Lens.View[](3);
        views[0] = Lens.View(address(tasks), abi.encodeCall(ITasks.status, (claimId)));
        views[1] = Lens.View(address(vault), abi.encodeCall(IVault.free, (solvers[1])));
        views[2] = Lens.View(address(jobs), abi.encodeCall(IJobs.progress, (jobId)));
        Lens.Answer[] memory answers = lens.read(views);
        assertEq(answers.length, 3);
        for (uint256 i; i < 3; ++i) {
            (bool success, bytes memory alone) = views[i].target.staticcall(views[i].data);
            assertTrue(success && answers[i].success);
            assertEq(answers[i].data, alone);
        }
        ClaimStatus memory status = abi.decode(answers[0].data, (ClaimStatus));
        assertEq(uint256(status.phase), uint256(Phase.COMMITTED));
    }

    function test_aViewThatRevertsSpoilsNoOther() external view {
        Lens.View[] memory views = new Lens.View[](2);
        views[0] = Lens.View(address(tasks), hex"deadbeef");
        views[1] = Lens.View(address(vault), abi.encodeCall(IVault.free, (solvers[0])));
        Lens.Answer[] memory answers = lens.read(views);
        assertFalse(answers[0].success);
        assertEq(abi.decode(answers[1].data, (uint256)), vault.free(solvers[0]));
    }

    function test_nothingCanBeChangedThroughIt() external {
        Lens.View[] memory views = new Lens.View[](1);
        views[0] = Lens.View(address(vault), abi.encodeCall(IVault.deposit, (solvers[0], 0)));
        assertFalse(lens.read(views)[0].success);
    }
}
