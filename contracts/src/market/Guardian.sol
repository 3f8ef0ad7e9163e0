// SPDX-License-Identifier: MIT
pragma solidity ^0.8.28;

import {IGuardian} from "../interfaces/IGuardian.sol";

/// @notice See IGuardian. Who the keeper is, whoever deploys a market decides; nothing here bounds how long a pause lasts.
contract Guardian is IGuardian {
    address public keeper;
    mapping(Business business => bool) public isPaused;

    constructor(address keeper_) {
        keeper = keeper_;
        emit KeeperChanged(address(0), keeper_);
    }

    modifier onlyKeeper() {
        if (msg.sender != keeper) revert NotKeeper(keeper);
        _;
    }

    function setPaused(Business business, bool paused) external onlyKeeper {
        isPaused[business] = paused;
        emit PauseChanged(business, paused);
    }

    function handOver(address to) external onlyKeeper {
        if (to == address(0)) {
            for (uint8 i; i <= uint8(type(Business).max); ++i) {
                if (isPaused[Business(i)]) revert StillPaused(Business(i));
            }
        }
        emit KeeperChanged(keeper, to);
        keeper = to;
    }

    function requireOpen(Business business) external view {
        if (isPaused[business]) revert BusinessPaused(business);
    }
}
