// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {LibBit} from "solady/utils/LibBit.sol";

/// @title The one tree shape of the protocol (docs/protocol.md, section 1)
/// @notice SHA-256, leaves 0x00‖data, nodes 0x01‖left‖right, keyed leaves 0x02‖key‖data; padded with zero digests to a
/// power of two. The number of leaves is always given by the caller from what the program, terms or node declare, never
/// by the proof. A proof of a wrong length, or an index beyond the leaves, gives false (or reverts in the `*Root` forms).
library Merkle {
    error HashFailed();
    error WrongProofLength(uint256 expected, uint256 given);
    error EmptyRange();
    error OutOfRange(uint256 end, uint256 size);

    function leaf(bytes memory data) internal view returns (bytes32) {
        return _sha(abi.encodePacked(bytes1(0x00), data));
    }

    function keyed(bytes32 key, bytes memory data) internal view returns (bytes32) {
        return _sha(abi.encodePacked(bytes1(0x02), key, data));
    }

    /// @notice `leaf`, or `keyed` under a key other than zero.
    function leafUnder(bytes32 key, bytes memory data) internal view returns (bytes32) {
        return key == 0 ? leaf(data) : keyed(key, data);
    }

    function node(bytes32 left, bytes32 right) internal view returns (bytes32 result) {
        assembly ("memory-safe") {
            let p := mload(0x40)
            mstore8(p, 1)
            mstore(add(p, 1), left)
            mstore(add(p, 33), right)
            if iszero(staticcall(gas(), 2, p, 65, 0, 32)) {
                mstore(0, 0x832d990500000000000000000000000000000000000000000000000000000000)
                revert(0, 4)
            }
            result := mload(0)
        }
    }

    /// @notice ceil(log2(count)): the number of siblings in a membership proof.
    function depth(uint256 count) internal pure returns (uint256) {
        return count > 1 ? LibBit.fls(count - 1) + 1 : 0;
    }

    /// @notice Root of a subtree of the given height that is all padding.
    function zero(uint256 height) internal view returns (bytes32 z) {
        for (uint256 i; i < height; ++i) {
            z = node(z, z);
        }
    }

    /// @notice Fold of 2^k digests (`digests` is overwritten). Any other count reverts.
    function fold(bytes32[] memory digests) internal view returns (bytes32) {
        uint256 n = digests.length;
        if (n > 0 && n & (n - 1) != 0) revert EmptyRange();
        return root(digests);
    }

    /// @notice Root of the tree over any number ≥ 1 of digests, padded (`digests` is overwritten).
    function root(bytes32[] memory digests) internal view returns (bytes32) {
        uint256 n = digests.length;
        if (n == 0) revert EmptyRange();
        assembly ("memory-safe") {
            let count := n
            let done := 1
            let z := 0 // root of a subtree of padding, of the height of this level
            for {} gt(n, 1) {} {
                // A pair is hashed where it lies, its prefix in the byte before it: the last one of a digest that has
                // been hashed, or of the array's length.
                let to := add(digests, 32)
                let from := add(digests, 31)
                for { let end := add(from, shl(6, shr(1, n))) } lt(from, end) { from := add(from, 64) } {
                    mstore8(from, 1)
                    done := and(done, staticcall(gas(), 2, from, 65, to, 32))
                    to := add(to, 32)
                }
                let p := mload(0x40)
                mstore8(p, 1)
                if and(n, 1) {
                    mcopy(add(p, 1), add(from, 1), 32)
                    mstore(add(p, 33), z)
                    done := and(done, staticcall(gas(), 2, p, 65, to, 32))
                }
                n := shr(1, add(n, 1))
                // Unless what is left is a power of two, some level above has a gap.
                if and(n, sub(n, 1)) {
                    mstore(add(p, 1), z)
                    mstore(add(p, 33), z)
                    done := and(done, staticcall(gas(), 2, p, 65, 0, 32))
                    z := mload(0)
                }
            }
            if iszero(done) {
                mstore(0, 0x832d990500000000000000000000000000000000000000000000000000000000)
                revert(0, 4)
            }
            mstore(digests, count)
        }
        return digests[0];
    }

    /// @notice Whether `digest` is leaf `index` of the tree of `count` leaves with root `root_`.
    function verify(bytes32 root_, bytes32 digest, uint256 index, uint256 count, bytes32[] calldata proof)
        internal
        view
        returns (bool)
    {
        if (index >= count || proof.length != depth(count)) return false;
        return fold(digest, index, proof) == root_;
    }

    /// @notice Root that `digest` at `index` gives with its siblings `proof`, bottom-up.
    function fold(bytes32 digest, uint256 index, bytes32[] calldata proof)
        internal
        view
        returns (bytes32 result)
    {
        assembly ("memory-safe") {
            let p := mload(0x40)
            let pair := add(p, 1)
            mstore8(p, 1)
            let place := add(pair, shl(5, and(index, 1))) // the digest's: left, or right
            mstore(place, digest)
            let done := 1
            let from := proof.offset
            for { let end := add(from, shl(5, proof.length)) } lt(from, end) { from := add(from, 32) } {
                mstore(add(pair, sub(add(pair, 32), place)), calldataload(from))
                index := shr(1, index)
                place := add(pair, shl(5, and(index, 1)))
                done := and(done, staticcall(gas(), 2, p, 65, place, 32))
            }
            if iszero(done) {
                mstore(0, 0x832d990500000000000000000000000000000000000000000000000000000000)
                revert(0, 4)
            }
            result := mload(place)
        }
    }

    /// @notice Root that leaf `index` and its siblings give in a tree of `count` leaves: `rangeRoot` of a run of one.
    function leafRoot(bytes32 digest, uint256 index, uint256 count, bytes32[] calldata siblings)
        internal
        view
        returns (bytes32)
    {
        if (index >= count) revert OutOfRange(index + 1, count);
        uint256 level = depth(count);
        if (siblings.length != level) revert WrongProofLength(level, siblings.length);
        return fold(digest, index, siblings);
    }

    /// @notice Root that the run of leaf digests [first, first + digests.length) and its siblings give in a tree of
    /// `count` leaves (`digests` is overwritten). Reverts if the run is empty or leaves the tree, or if the number of
    /// siblings is not exactly what the range needs.
    function rangeRoot(bytes32[] memory digests, uint256 first, uint256 count, bytes32[] calldata siblings)
        internal
        view
        returns (bytes32)
    {
        uint256 n = digests.length;
        if (n == 0) revert EmptyRange();
        if (first >= count || n > count - first) revert OutOfRange(first + n, count);
        uint256 used;
        uint256 level = depth(count);
        // A single digest has one sibling at every level: from there on it is a membership proof.
        for (; n > 1; --level) {
            uint256 last = first + n;
            uint256 skew = first & 1;
            uint256 extra = last & 1;
            if (used + skew + extra > siblings.length) {
                revert WrongProofLength(used + skew + extra, siblings.length);
            }
            bytes32 left = skew == 1 ? siblings[used] : bytes32(0);
            bytes32 right = extra == 1 ? siblings[used + skew] : bytes32(0);
            used += skew + extra;
            digests = _up(digests, n, skew, left, right);
            first >>= 1;
            n = (last + extra - (first << 1)) >> 1;
        }
        if (used + level != siblings.length) revert WrongProofLength(used + level, siblings.length);
        return fold(digests[0], first, siblings[used:]);
    }

    /// @dev One level up, in place: pairs (left?, d0, d1, ..., right?) are hashed. `n` digests are in use.
    function _up(bytes32[] memory digests, uint256 n, uint256 skew, bytes32 left, bytes32 right)
        private
        view
        returns (bytes32[] memory)
    {
        // Reading stays ahead of writing: pair i reads positions 2i - skew and 2i - skew + 1, writes position i.
        bytes32 carry = skew == 1 ? left : digests[0];
        uint256 read = 1 - skew;
        uint256 write;
        while (true) {
            bytes32 other = read < n ? digests[read] : right;
            bytes32 parent = node(carry, other);
            ++read;
            if (read < n) carry = digests[read];
            digests[write++] = parent;
            if (read >= n) break;
            ++read;
        }
        return digests;
    }

    function _sha(bytes memory data) private view returns (bytes32 result) {
        assembly ("memory-safe") {
            if iszero(staticcall(gas(), 2, add(data, 32), mload(data), 0, 32)) {
                mstore(0, 0x832d990500000000000000000000000000000000000000000000000000000000)
                revert(0, 4)
            }
            result := mload(0)
        }
    }
}
