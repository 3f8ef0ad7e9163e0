// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {Openings} from "../../src/dispute/Openings.sol";
import {Context, Cursor, Game} from "../../src/interfaces/ICourt.sol";
import {Merkle} from "../../src/libraries/Merkle.sol";

/// @notice A whole tree in memory: `levels[0]` are the padded leaves, the last level is the root.
struct Tree {
    bytes32[][] levels;
}

/// @notice A tree of which only the way to one leaf is known: what each move opens, from the top, and which child is picked.
struct Sparse {
    bytes32 root;
    bytes32[][] opened;
    uint32[] picks;
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

    /// @notice What an opening of leaf `index` brings of its siblings after one of leaf `before`: those below where they meet.
    function cut(bytes32[] memory siblings, uint256 before, uint256 index)
        internal
        pure
        returns (bytes32[] memory)
    {
        uint256 level;
        while ((before ^ index) >> level > 1) ++level;
        assembly ("memory-safe") {
            mstore(siblings, level)
        }
        return siblings;
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
        uint256 down = height(level);
        digests = new bytes32[](1 << down);
        for (uint256 i; i < digests.length; ++i) {
            digests[i] = tree.levels[level - down][(index >> (level - down)) + i];
        }
    }

    /// @notice Levels that one move opens of a tree with `level` left: as few moves as six levels each allow, evenly.
    function height(uint256 level) internal pure returns (uint256) {
        uint256 moves = movesFor(level);
        return moves == 0 ? 0 : level / moves + (level % moves == 0 ? 0 : 1);
    }

    function movesFor(uint256 level) internal pure returns (uint256) {
        return level / 6 + (level % 6 == 0 ? 0 : 1);
    }

    /// @notice The 64 words of a leaf, padded with zeros, as leaves of a Keccak tree: its word `index` and its siblings.
    function word(bytes memory leaf, uint256 index) internal pure returns (bytes32) {
        return bytes32(slice(bytes.concat(leaf, new bytes(2048)), 32 * index, 32));
    }

    function wordProof(bytes memory leaf, uint256 index) internal pure returns (bytes32[] memory siblings) {
        bytes32[] memory row = new bytes32[](64);
        for (uint256 i; i < 64; ++i) {
            row[i] = word(leaf, i);
        }
        siblings = new bytes32[](6);
        for (uint256 h; h < 6; ++h) {
            siblings[h] = row[(index >> h) ^ 1];
            for (uint256 i; i < 32 >> h; ++i) {
                row[i] = keccak256(abi.encode(row[2 * i], row[2 * i + 1]));
            }
        }
    }

    /// @notice The way to leaf `index` of a tree of `depth` levels of which nothing else is given.
    function sparse(bytes32 digest, uint256 index, uint256 depth) internal view returns (Sparse memory tree) {
        uint256 rounds = movesFor(depth);
        (tree.opened, tree.picks) = (new bytes32[][](rounds), new uint32[](rounds));
        uint256[] memory heights = new uint256[](rounds);
        uint256 level = depth;
        for (uint256 r; r < rounds; ++r) {
            heights[r] = height(level);
            level -= heights[r];
        }
        for (uint256 r = rounds; r > 0; --r) {
            bytes32[] memory row = new bytes32[](1 << heights[r - 1]);
            for (uint256 i; i < row.length; ++i) {
                row[i] = keccak256(abi.encode(digest, r, i));
            }
            tree.picks[r - 1] = uint32(index % row.length);
            row[index % row.length] = digest;
            tree.opened[r - 1] = row;
            digest = root(build(row));
            index /= row.length;
        }
        tree.root = digest;
    }

    /// @notice The same for leaf `index` of a whole tree.
    function opened(Tree memory tree, uint256 index) internal pure returns (Sparse memory way) {
        uint256 level = tree.levels.length - 1;
        way.root = root(tree);
        (way.opened, way.picks) = (new bytes32[][](movesFor(level)), new uint32[](movesFor(level)));
        for (uint256 r; r < way.opened.length; ++r) {
            uint256 below = level - height(level);
            way.opened[r] = children(tree, level, index >> level << level);
            way.picks[r] = uint32((index >> below) % way.opened[r].length);
            level = below;
        }
    }

    /// @notice Root and siblings of leaf `index` of a tree of `depth` levels of which nothing else is given.
    function path(bytes32 digest, uint256 index, uint256 depth, bytes32 seed)
        internal
        view
        returns (bytes32, bytes32[] memory siblings)
    {
        siblings = new bytes32[](depth);
        for (uint256 h; h < depth; ++h) {
            siblings[h] = keccak256(abi.encode(seed, h));
            digest = index >> h & 1 == 0 ? Merkle.node(digest, siblings[h]) : Merkle.node(siblings[h], digest);
        }
        return (digest, siblings);
    }

    // ---- a game's parts, by its encoding

    function parts(Game memory game)
        internal
        pure
        returns (bytes32 paramsHash, Context memory context, Cursor memory cursor)
    {
        bytes memory encoded = abi.encode(game);
        paramsHash = keccak256(slice(encoded, 0, 20 * 32));
        context = abi.decode(slice(encoded, 20 * 32, 9 * 32), (Context));
        cursor = abi.decode(slice(encoded, 29 * 32, 10 * 32), (Cursor));
    }

    function within(Game memory game) internal pure returns (bytes32 contextHash, Cursor memory cursor) {
        Context memory context;
        (contextHash, context, cursor) = parts(game);
        contextHash = keccak256(bytes.concat(contextHash, abi.encode(context)));
    }

    function withParts(Game memory game, Context memory context, Cursor memory cursor)
        internal
        pure
        returns (Game memory)
    {
        bytes memory paramsHash = slice(abi.encode(game), 0, 20 * 32);
        return abi.decode(bytes.concat(paramsHash, abi.encode(context), abi.encode(cursor)), (Game));
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
