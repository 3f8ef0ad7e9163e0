// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {IClock} from "../interfaces/IClock.sol";

/// @notice See IClock. Knows no token, no job and no account. What a tick says cannot be undone, nor put off for longer than LAG
/// blocks by other ticks.
contract Clock is IClock {
    /// @notice Blocks between a tick and when its time counts; and as many seconds at least, so that blocks which come all at once
    /// (on a chain that makes one for each transaction) are no way to be rid of somebody.
    uint64 public immutable LAG;

    /// @dev One slot: the time before the last tick, the last tick's, and its block.
    uint64 private before;
    uint64 private ticked;
    uint64 private tickedIn;

    constructor(uint64 lag) {
        LAG = lag;
    }

    function tick() external {
        if (!_counts()) revert TickedLately(tickedIn + LAG);
        (before, ticked, tickedIn) = (ticked, uint64(block.timestamp), uint64(block.number));
        emit Ticked(ticked, tickedIn);
    }

    function hands() external view returns (uint64, uint64, uint64) {
        return (time(), ticked, tickedIn + LAG);
    }

    function time() public view returns (uint64) {
        return _counts() ? ticked : before;
    }

    /// @dev Whether the last tick does.
    function _counts() private view returns (bool) {
        return block.number >= uint256(tickedIn) + LAG && block.timestamp >= uint256(ticked) + LAG;
    }
}
