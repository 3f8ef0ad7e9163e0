// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {Nodes} from "../arbiter/Nodes.sol";
import {Context, Cursor, GamePhase, ICourt} from "../interfaces/ICourt.sol";
import {ProgramRef} from "../interfaces/Types.sol";
import {Merkle} from "../libraries/Merkle.sol";
import {Games} from "./Games.sol";
import {Openings} from "./Openings.sol";

/// @title The way down a tree: the defender opens a node some levels deep, the challenger picks one of what it opened
/// @notice docs/protocol.md, 6.1 and 6.4. What is opened is not folded here: the challenger who finds that it does not fold to
/// the digest in dispute proves that (`ICourt.proveChildren`), and a pick brings the way of its child.
library Bisection {
    uint256 private constant LEVELS = 6; // levels that one move opens at most

    function splits(GamePhase phase) internal pure returns (bool) {
        return
            phase == GamePhase.SPLIT_NODE || phase == GamePhase.SPLIT_LEAF || phase == GamePhase.SPLIT_OUTPUT;
    }

    function picks(GamePhase phase) internal pure returns (bool) {
        return phase == GamePhase.PICK_NODE || phase == GamePhase.PICK_LEAF || phase == GamePhase.PICK_OUTPUT;
    }

    function challengerMoves(GamePhase phase) internal pure returns (bool) {
        return uint8(phase) & 1 == 1; // odd phases are the challenger's
    }

    /// @notice The phase in which one of the children that `split` has opened is picked. INVARIANT: splits(split).
    function pickAfter(GamePhase split) internal pure returns (GamePhase) {
        unchecked {
            return GamePhase(uint8(split) - 1); // GamePhase lists each tree's pick before its split
        }
    }

    /// @notice The phase in which the child that `pick` has chosen is opened in turn. INVARIANT: picks(pick).
    function splitAfter(GamePhase pick) internal pure returns (GamePhase) {
        unchecked {
            return GamePhase(uint8(pick) + 1);
        }
    }

    /// @notice From here on the defender opens outRoot's tree.
    function openState(Cursor memory next, bytes32 outRoot, uint32 slots) internal pure {
        next.phase = GamePhase.SPLIT_OUTPUT;
        next.digest = outRoot;
        // forge-lint: disable-next-line(unsafe-typecast)
        next.level = uint32(Merkle.depth(slots)); // at most 32
        next.leaves = slots;
        next.index = 0;
        next.revealed = 0;
    }

    /// @notice What a game keeps of `children`, which must be as many as one move opens of a node `level` levels up.
    function opened(uint256 level, bytes32[] calldata children) internal pure returns (bytes32) {
        uint256 count = uint256(1) << _height(level);
        if (children.length != count) revert ICourt.WrongCount(count, children.length);
        return Games.digestOf(children);
    }

    /// @notice The cursor with the picked child as the tree node in dispute; its phase is still the old one.
    function picked(Cursor calldata cursor, uint32 child, bytes32 digest, bytes32[] calldata siblings)
        internal
        view
        returns (Cursor memory next)
    {
        uint32 height = _height(cursor.level);
        if (child >> height != 0) revert ICourt.IndexOutOfRange(child, uint256(1) << height);
        if (siblings.length != height || Merkle.fold(digest, child, siblings) != cursor.digest) {
            revert ICourt.WrongChildren();
        }
        next = cursor;
        next.digest = digest;
        unchecked {
            // INVARIANT: height <= level <= 32, and index < 2^32.
            next.level = cursor.level - height;
            next.index = cursor.index + (uint64(child) << next.level);
        }
        next.revealed = 0;
    }

    /// @notice The picked trace leaf is node next.index: from here on the game is about its output tensor.
    function enterNode(
        ProgramRef calldata program,
        Context memory context,
        Cursor memory next,
        bytes calldata node,
        bytes32[] calldata proof
    ) internal view {
        uint256 count = 1 + uint256(program.nodes) + program.slots;
        if (!Merkle.verify(program.root, Openings.hash(0, node), 1 + next.index, count, proof)) {
            revert ICourt.BadProof();
        }
        uint256 size = Nodes.sizeOf(Nodes.decode(node));
        uint256 leaves = Openings.leaves(size);
        context.node = uint32(next.index);
        context.nodeHash = keccak256(node);
        // casting to 'uint64' is safe because a tensor has at most 2^28 elements of 4 bytes
        // forge-lint: disable-next-line(unsafe-typecast)
        context.size = uint64(size);
        next.level = uint32(Merkle.depth(leaves));
        // forge-lint: disable-next-line(unsafe-typecast)
        next.leaves = uint64(leaves);
        next.index = 0;
        next.phase = leaves == 1 ? GamePhase.REVEAL_LEAF : GamePhase.SPLIT_LEAF;
    }

    /// @dev Levels that a move opens of a tree with `level` levels left: as few moves as LEVELS allows, of even height.
    // casting to 'uint32' is safe because it is at most LEVELS
    // forge-lint: disable-next-item(unsafe-typecast)
    function _height(uint256 level) private pure returns (uint32) {
        if (level <= LEVELS) return uint32(level);
        uint256 moves = (level + LEVELS - 1) / LEVELS;
        return uint32((level + moves - 1) / moves);
    }
}
