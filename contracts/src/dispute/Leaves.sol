// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {EfficientHashLib} from "solady/utils/EfficientHashLib.sol";

/// @title What a game keeps of a revealed leaf
/// @notice The leaf's bytes, padded with zeros to 64 words, under a Keccak-256 tree: a proof about one element then brings one
/// word and six siblings instead of the whole leaf. Only games use it; it is no part of the protocol's own trees.
library Leaves {
    uint256 internal constant DEPTH = 6; // 64 words of 32 bytes: Openings.LEAF_BYTES

    function root(bytes calldata data) internal pure returns (bytes32 digest) {
        assembly ("memory-safe") {
            // Beyond the data, calldatacopy would bring what follows it: clear that first.
            let p := mload(0x40)
            calldatacopy(p, calldatasize(), 0x800)
            calldatacopy(p, data.offset, data.length)
            for { let size := 0x800 } gt(size, 0x20) { size := shr(1, size) } {
                let to := p
                for { let from := p } lt(from, add(p, size)) { from := add(from, 0x40) } {
                    mstore(to, keccak256(from, 0x40))
                    to := add(to, 0x20)
                }
            }
            digest := mload(p)
        }
    }

    function verify(bytes32 root_, bytes32 word, uint256 index, bytes32[] calldata proof)
        internal
        pure
        returns (bool)
    {
        if (proof.length != DEPTH) return false;
        for (uint256 level; level < DEPTH; ++level) {
            bytes32 sibling = proof[level];
            word = index >> level & 1 == 0
                ? EfficientHashLib.hash(word, sibling)
                : EfficientHashLib.hash(sibling, word);
        }
        return word == root_;
    }
}
