// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {IGuardian} from "../interfaces/IGuardian.sol";

/// @notice See IGuardian. Who the pauser is, whoever deploys a market decides; nothing here bounds how long a pause lasts.
contract Guardian is IGuardian {
    address public pauser;
    mapping(Business business => bool) public isPaused;

    constructor(address pauser_) {
        pauser = pauser_;
        emit PauserChanged(address(0), pauser_);
    }

    modifier onlyPauser() {
        if (msg.sender != pauser) revert NotPauser(pauser);
        _;
    }

    function setPaused(Business business, bool paused) external onlyPauser {
        isPaused[business] = paused;
        emit PauseChanged(business, paused);
    }

    function handOver(address to) external onlyPauser {
        if (to == address(0)) {
            for (uint8 i; i <= uint8(type(Business).max); ++i) {
                if (isPaused[Business(i)]) revert StillPaused(Business(i));
            }
        }
        emit PauserChanged(pauser, to);
        pauser = to;
    }

    function requireOpen(Business business) external view {
        if (isPaused[business]) revert BusinessPaused(business);
    }
}
