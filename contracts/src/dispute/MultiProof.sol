// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {Merkle} from "../libraries/Merkle.sol";
import {LibBit} from "solady/utils/LibBit.sol";

/// @dev The way of a leaf up to a root: its node at each level, from the leaf on, and that node's sibling.
struct ProvenPath {
    uint256 leaf;
    bytes32[] nodes;
    bytes32[] siblings;
}

/// @title Several leaves of one tree, each proven by what its way does not share with the one before (docs/protocol.md, 1.3)
library MultiProof {
    /// @notice Whether `digest` is leaf `leaf` of the tree of `count` leaves with root `root`; `path`: its siblings.
    function begin(
        ProvenPath memory proven,
        bytes32 root,
        bytes32 digest,
        uint256 leaf,
        uint256 count,
        bytes32[] calldata path
    ) internal view returns (bool) {
        uint256 depth = Merkle.depth(count);
        if (leaf >= count || path.length != depth) return false;
        (proven.leaf, proven.nodes, proven.siblings) =
        (leaf, new bytes32[](depth + 1), new bytes32[](depth + 1));
        return _climb(proven, digest, leaf, path) == root;
    }

    /// @notice The same of another leaf of that tree. `path`: its siblings below where its way meets the one before, which
    /// from then on is its own; none if both are the same leaf. INVARIANT: leaf is below `count`.
    function join(ProvenPath memory proven, bytes32 digest, uint256 leaf, bytes32[] calldata path)
        internal
        view
        returns (bool)
    {
        if (leaf == proven.leaf) return path.length == 0 && digest == proven.nodes[0];
        uint256 level = LibBit.fls(leaf ^ proven.leaf);
        if (path.length != level) return false;
        bytes32 top = _climb(proven, digest, leaf, path);
        if (top != proven.siblings[level]) return false;
        (proven.leaf, proven.siblings[level], proven.nodes[level]) = (leaf, proven.nodes[level], top);
        return true;
    }

    /// @dev The node that `path` leads to; what is below it becomes the way's.
    function _climb(ProvenPath memory proven, bytes32 digest, uint256 leaf, bytes32[] calldata path)
        private
        view
        returns (bytes32)
    {
        (bytes32[] memory nodes, bytes32[] memory siblings) = (proven.nodes, proven.siblings);
        for (uint256 level; level < path.length; ++level) {
            bytes32 sibling = path[level];
            (nodes[level], siblings[level]) = (digest, sibling);
            digest = leaf >> level & 1 == 0 ? Merkle.node(digest, sibling) : Merkle.node(sibling, digest);
        }
        return digest;
    }
}
