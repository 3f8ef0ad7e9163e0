// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

/// @title Several calls of one contract in one transaction
interface IBatch {
    /// @notice Make the calls in order, each as the caller's own. If one reverts, all do, with its error.
    function multicall(bytes[] calldata calls) external returns (bytes[] memory results);
}
