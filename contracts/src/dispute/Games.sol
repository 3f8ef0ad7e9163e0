// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {Context, Cursor, Game, Params} from "../interfaces/ICourt.sol";

/// @title A game's parts and its hash
/// @notice A game's three parts are plain words each, in calldata and in memory as in their encoding, so they are
/// hashed where they lie. Words that are not canonical for their type give a hash that no game is stored under.
library Games {
    uint256 private constant PARAMS_BYTES = 20 * 32; // accused .. shard
    uint256 private constant CONTEXT_BYTES = 9 * 32;
    uint256 private constant CURSOR_BYTES = 10 * 32;

    function paramsHash(Game calldata game) internal pure returns (bytes32 digest) {
        Params calldata params = game.params;
        assembly ("memory-safe") {
            let p := mload(0x40)
            calldatacopy(p, params, PARAMS_BYTES)
            digest := keccak256(p, PARAMS_BYTES)
        }
    }

    function contextHashOf(bytes32 paramsHash_, Context calldata context_)
        internal
        pure
        returns (bytes32 digest)
    {
        assembly ("memory-safe") {
            let p := mload(0x40)
            mstore(p, paramsHash_)
            calldatacopy(add(p, 0x20), context_, CONTEXT_BYTES)
            digest := keccak256(p, add(0x20, CONTEXT_BYTES))
        }
    }

    function contextHash(bytes32 paramsHash_, Context memory context_)
        internal
        pure
        returns (bytes32 digest)
    {
        assembly ("memory-safe") {
            let p := mload(0x40)
            mstore(p, paramsHash_)
            mcopy(add(p, 0x20), context_, CONTEXT_BYTES)
            digest := keccak256(p, add(0x20, CONTEXT_BYTES))
        }
    }

    function hashOf(bytes32 contextHash_, Cursor calldata cursor_) internal pure returns (bytes32 digest) {
        assembly ("memory-safe") {
            let p := mload(0x40)
            mstore(p, contextHash_)
            calldatacopy(add(p, 0x20), cursor_, CURSOR_BYTES)
            digest := keccak256(p, add(0x20, CURSOR_BYTES))
        }
    }

    function hash(bytes32 contextHash_, Cursor memory cursor_) internal pure returns (bytes32 digest) {
        assembly ("memory-safe") {
            let p := mload(0x40)
            mstore(p, contextHash_)
            mcopy(add(p, 0x20), cursor_, CURSOR_BYTES)
            digest := keccak256(p, add(0x20, CURSOR_BYTES))
        }
    }

    function hash(Game calldata game) internal pure returns (bytes32) {
        return hashOf(contextHashOf(paramsHash(game), game.context), game.cursor);
    }

    /// @notice What a game keeps of digests that await a pick.
    function digestOf(bytes32[] calldata digests) internal pure returns (bytes32) {
        return keccak256(abi.encodePacked(digests));
    }
}
