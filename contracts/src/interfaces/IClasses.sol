// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {Bounds, Conditions, Terms} from "./Types.sol";

/// @title Classes of conditions: what verifiers agree to before anybody can draw them
/// @notice A class is registered once, by anyone, within bounds that are fixed at deployment, and never changes. Verifiers
/// subscribe their stake to one (IStakes), jobs name one, and draws are among its subscribers: so no term that a client
/// writes reaches a verifier that has not agreed to it.
interface IClasses {
    /// @dev The first field of the conditions that is out of bounds.
    error BadConditions(string field);
    /// @dev The first field of a job's terms that breaks a rule, or that its class does not allow.
    error BadTerms(string field);
    error NoSuchClass(bytes32 class);

    event ClassRegistered(bytes32 indexed class, address indexed by, Conditions conditions);

    /// @notice Make a class known; registering it again changes nothing. Its id is keccak256(abi.encode(conditions)).
    function register(Conditions calldata conditions_) external returns (bytes32 class);
    function conditions(bytes32 class) external view returns (Conditions memory);
    function bounds() external view returns (Bounds memory);
    /// @notice Reverts with the name of the first field of the terms that breaks a rule (docs/protocol.md 3.1).
    function check(Terms calldata terms) external view;
}
