// SPDX-License-Identifier: MIT
pragma solidity ^0.8.30;

import {Front, Game, ICourt, Scope} from "../interfaces/ICourt.sol";

/// @title A game's parts and its hash
/// @notice Basis, scope and front (see Game) are plain words each, in calldata and in memory as in their encoding, so they are
/// hashed where they lie. Words that are not canonical for their type give a hash that no game is stored under.
library Games {
    uint256 private constant BASIS_BYTES = 20 * 32; // accused .. shard
    uint256 private constant SCOPE_BYTES = 9 * 32;
    uint256 private constant FRONT_BYTES = 10 * 32;

    function scope(Game calldata game) internal pure returns (Scope calldata scope_) {
        assembly ("memory-safe") {
            scope_ := add(game, BASIS_BYTES)
        }
    }

    function front(Game calldata game) internal pure returns (Front calldata front_) {
        assembly ("memory-safe") {
            front_ := add(game, add(BASIS_BYTES, SCOPE_BYTES))
        }
    }

    function basis(Game calldata game) internal pure returns (bytes32 digest) {
        assembly ("memory-safe") {
            let p := mload(0x40)
            calldatacopy(p, game, BASIS_BYTES)
            digest := keccak256(p, BASIS_BYTES)
        }
    }

    function matterOf(bytes32 basis_, Scope calldata scope_) internal pure returns (bytes32 digest) {
        assembly ("memory-safe") {
            let p := mload(0x40)
            mstore(p, basis_)
            calldatacopy(add(p, 0x20), scope_, SCOPE_BYTES)
            digest := keccak256(p, add(0x20, SCOPE_BYTES))
        }
    }

    function matter(bytes32 basis_, Scope memory scope_) internal pure returns (bytes32 digest) {
        assembly ("memory-safe") {
            let p := mload(0x40)
            mstore(p, basis_)
            mcopy(add(p, 0x20), scope_, SCOPE_BYTES)
            digest := keccak256(p, add(0x20, SCOPE_BYTES))
        }
    }

    function hashOf(bytes32 matter_, Front calldata front_) internal pure returns (bytes32 digest) {
        assembly ("memory-safe") {
            let p := mload(0x40)
            mstore(p, matter_)
            calldatacopy(add(p, 0x20), front_, FRONT_BYTES)
            digest := keccak256(p, add(0x20, FRONT_BYTES))
        }
    }

    function hash(bytes32 matter_, Front memory front_) internal pure returns (bytes32 digest) {
        assembly ("memory-safe") {
            let p := mload(0x40)
            mstore(p, matter_)
            mcopy(add(p, 0x20), front_, FRONT_BYTES)
            digest := keccak256(p, add(0x20, FRONT_BYTES))
        }
    }

    function hash(Game calldata game) internal pure returns (bytes32) {
        return hashOf(matterOf(basis(game), scope(game)), front(game));
    }

    /// @notice keccak256(abi.encodePacked(digests)): what a game keeps of digests that await a pick.
    function digestOf(bytes32[] calldata digests) internal pure returns (bytes32 digest) {
        assembly ("memory-safe") {
            let p := mload(0x40)
            let size := shl(5, digests.length)
            calldatacopy(p, digests.offset, size)
            digest := keccak256(p, size)
        }
    }

    /// @dev emit ICourt.GameOpened(gameId, game.claimId, game) with another scope and front.
    function log(Game calldata game, uint256 gameId, Scope memory scope_, Front memory front_) internal {
        bytes32 claimId = game.claimId;
        bytes32 topic = ICourt.GameOpened.selector;
        assembly ("memory-safe") {
            let p := mload(0x40)
            calldatacopy(p, game, BASIS_BYTES)
            mcopy(add(p, BASIS_BYTES), scope_, SCOPE_BYTES)
            mcopy(add(p, add(BASIS_BYTES, SCOPE_BYTES)), front_, FRONT_BYTES)
            log3(p, add(BASIS_BYTES, add(SCOPE_BYTES, FRONT_BYTES)), topic, gameId, claimId)
        }
    }
}
