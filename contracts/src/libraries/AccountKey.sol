// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

/// @notice The key of an account's entry in one of the vault's buckets.
function accountKey(address account) pure returns (bytes32) {
    return bytes32(uint256(uint160(account)));
}
