// SPDX-License-Identifier: MIT
pragma solidity ^0.8.30;

import {Openings} from "../../src/dispute/Openings.sol";
import {Merkle} from "../../src/libraries/Merkle.sol";

/// @notice A whole tree in memory: `levels[0]` are the padded leaves, the last level is the root.
struct Tree {
    bytes32[][] levels;
}

/// @notice What a player does off chain: build trees, read proofs off them.
library Trees {
    function build(bytes32[] memory leaves) internal view returns (Tree memory tree) {
        uint256 depth = Merkle.depth(leaves.length);
        tree.levels = new bytes32[][](depth + 1);
        tree.levels[0] = new bytes32[](1 << depth);
        for (uint256 i; i < leaves.length; ++i) {
            tree.levels[0][i] = leaves[i];
        }
        for (uint256 h = 1; h <= depth; ++h) {
            tree.levels[h] = new bytes32[](1 << (depth - h));
            for (uint256 i; i < tree.levels[h].length; ++i) {
                tree.levels[h][i] = Merkle.node(tree.levels[h - 1][2 * i], tree.levels[h - 1][2 * i + 1]);
            }
        }
    }

    function root(Tree memory tree) internal pure returns (bytes32) {
        return tree.levels[tree.levels.length - 1][0];
    }

    function proof(Tree memory tree, uint256 index) internal pure returns (bytes32[] memory siblings) {
        siblings = new bytes32[](tree.levels.length - 1);
        for (uint256 h; h < siblings.length; ++h) {
            siblings[h] = tree.levels[h][(index >> h) ^ 1];
        }
    }

    function rangeProof(Tree memory tree, uint256 from, uint256 to) internal pure returns (bytes32[] memory) {
        bytes32[] memory siblings = new bytes32[](2 * tree.levels.length);
        uint256 n;
        for (uint256 h; h + 1 < tree.levels.length; ++h) {
            if (from & 1 == 1) siblings[n++] = tree.levels[h][from - 1];
            if (to & 1 == 1) siblings[n++] = tree.levels[h][to];
            (from, to) = (from >> 1, (to + 1) >> 1);
        }
        assembly ("memory-safe") {
            mstore(siblings, n)
        }
        return siblings;
    }

    /// @notice The descendants, one move below, of the node `level` above the leaves whose first leaf is `index`.
    function children(Tree memory tree, uint256 level, uint256 index)
        internal
        pure
        returns (bytes32[] memory digests)
    {
        uint256 down = level < 4 ? level : 4;
        digests = new bytes32[](1 << down);
        for (uint256 i; i < digests.length; ++i) {
            digests[i] = tree.levels[level - down][(index >> (level - down)) + i];
        }
    }

    function slice(bytes memory data, uint256 from, uint256 size) internal pure returns (bytes memory part) {
        part = new bytes(size);
        assembly ("memory-safe") {
            mcopy(add(part, 32), add(add(data, 32), from), size)
        }
    }

    function tensor(bytes memory data, bytes32 key) internal view returns (Tree memory) {
        bytes32[] memory digests = new bytes32[](Openings.leaves(data.length));
        for (uint256 i; i < digests.length; ++i) {
            uint256 size = Openings.leafSize(data.length, i);
            digests[i] = Merkle.leafUnder(key, slice(data, Openings.LEAF_BYTES * i, size));
        }
        return build(digests);
    }

    /// @notice Tree over tensor roots: a state (never keyed) or a trace.
    function over(bytes[] memory tensors, bytes32 key) internal view returns (Tree memory) {
        bytes32[] memory roots = new bytes32[](tensors.length);
        for (uint256 i; i < roots.length; ++i) {
            roots[i] = root(tensor(tensors[i], key));
        }
        return build(roots);
    }
}
