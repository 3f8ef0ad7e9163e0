// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {IBatch} from "../interfaces/IBatch.sol";
import {Address} from "@openzeppelin/contracts/utils/Address.sol";

/// @notice See IBatch. OpenZeppelin's Multicall without its suffix for trusted forwarders, of which there are none here.
/// @dev SAFETY: each call is this contract's own code on its own storage with the same `msg.sender`, so it may do what the caller
/// may do without a batch. None of the contracts that inherit this has a payable function, whose value would count many times.
abstract contract Batch is IBatch {
    function multicall(bytes[] calldata calls) external returns (bytes[] memory results) {
        results = new bytes[](calls.length);
        for (uint256 i; i < calls.length; ++i) {
            results[i] = Address.functionDelegateCall(address(this), calls[i]);
        }
    }
}
