// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

/// @title Clock: up to which time deadlines have passed (docs/protocol.md, section 7.4)
/// @notice A deadline that costs somebody a stake has passed once a block later than it was ticked and LAG blocks have come
/// since. So after a halt of the chain, whoever owed something has so many blocks for it.
interface IClock {
    /// @dev A tick would take the place of one that does not count yet.
    error TickedLately(uint64 dueBlock);

    event Ticked(uint64 time, uint64 blockNumber);

    /// @notice Anyone: keep the present block's time, which counts LAG blocks later.
    function tick() external;
    /// @notice Deadlines before this time have passed.
    function time() external view returns (uint64);
    /// @notice The same; the last tick's time; and from which block on that counts, and another may be.
    function hands() external view returns (uint64 time, uint64 ticked, uint64 dueBlock);
}
