// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

/// @title Guardian: who may stop new business (docs/protocol.md, section 7.2)
/// @notice Pauses new jobs, the taking of shards and new stakes. Nothing else asks it: whatever is under way goes on to its end, and
/// tokens leave, paused or not.
interface IGuardian {
    /// @dev What can be paused.
    enum Business {
        JOBS,
        SHARDS,
        STAKES
    }

    error NotPauser(address pauser);
    error BusinessPaused(Business business);
    error StillPaused(Business business);

    event PauseChanged(Business indexed business, bool paused);
    event PauserChanged(address indexed from, address indexed to);

    function setPaused(Business business, bool paused) external; // pauser
    /// @notice Pauser: make another account the pauser; zero: nobody, for good, once nothing is paused.
    function handOver(address to) external;
    function pauser() external view returns (address);
    function isPaused(Business business) external view returns (bool);
    /// @notice Reverts while the business is paused.
    function requireOpen(Business business) external view;
}
