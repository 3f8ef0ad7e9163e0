// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {IClock} from "../src/interfaces/IClock.sol";

/// @dev Stands in for the Clock where a test is not about it: a deadline has passed as soon as its time is over.
contract PlainClock is IClock {
    function tick() external {}

    function time() external view returns (uint64) {
        return uint64(block.timestamp);
    }

    function hands() external view returns (uint64, uint64, uint64) {
        return (uint64(block.timestamp), uint64(block.timestamp), uint64(block.number));
    }
}
