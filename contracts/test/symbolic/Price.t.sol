// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {IClock} from "../../src/interfaces/IClock.sol";
import {IJobs} from "../../src/interfaces/IJobs.sol";
import {IStakes} from "../../src/interfaces/IStakes.sol";
import {ITasks} from "../../src/interfaces/ITasks.sol";
import {IVault} from "../../src/interfaces/IVault.sol";
import {Terms} from "../../src/interfaces/Types.sol";
import {Tasks} from "../../src/market/Tasks.sol";
import {TasksExtension} from "../../src/market/TasksExtension.sol";
import {TermsFake} from "./TermsFake.sol";

/// @dev Knows one thing of a job: when it was posted.
contract PostedFake {
    uint64 public constant POSTED = 1000;

    function postedAt(bytes32) external pure returns (uint64) {
        return POSTED;
    }
}

/// @notice A proof, for all times at once (`make symbolic`), about the price that the deployed Tasks asks for a shard.
contract PriceSymbolic is TermsFake {
    bytes32 private constant JOB = keccak256("job");

    PostedFake private jobs = new PostedFake();
    ITasks private tasks;

    constructor() {
        (IVault vault, IStakes stakes) = (IVault(address(0)), IStakes(address(0)));
        IClock clock = IClock(address(0));
        address extension =
            address(new TasksExtension(vault, stakes, IJobs(address(jobs)), address(0), address(0), clock));
        tasks = ITasks(address(new Tasks(vault, stakes, IJobs(address(jobs)), extension, clock)));
    }

    /// @notice From floor to cap, never down, and at the cap from the period's end on.
    function check_thePriceRisesFromFloorToCap(uint32 earlier, uint32 later) external {
        vm.assume(earlier <= later);
        Terms memory t;
        (t.shards, t.pricePeriod, t.priceFloor, t.priceCap) = (1, 600, 10 ether, 20 ether + 7);
        _putTerms(address(jobs), JOB, t);
        vm.warp(jobs.POSTED() + uint256(earlier));
        uint256 before = tasks.price(JOB, 0);
        vm.warp(jobs.POSTED() + uint256(later));
        uint256 then_ = tasks.price(JOB, 0);
        assert(t.priceFloor <= before && before <= then_ && then_ <= t.priceCap);
        assert(earlier != 0 || before == t.priceFloor);
        assert(later < t.pricePeriod || then_ == t.priceCap);
    }
}
