// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

/// @title Cutting arrays in memory to what was filled
library Arrays {
    error TooLong(uint256 most, uint256 given);

    /// @notice Shortens `list` in place. The memory behind it stays allocated.
    function truncate(address[] memory list, uint256 length) internal pure {
        if (length > list.length) revert TooLong(list.length, length);
        assembly ("memory-safe") {
            mstore(list, length)
        }
    }

    /// @notice Shortens `list` in place. The memory behind it stays allocated.
    function truncate(bytes32[] memory list, uint256 length) internal pure {
        if (length > list.length) revert TooLong(list.length, length);
        assembly ("memory-safe") {
            mstore(list, length)
        }
    }
}
