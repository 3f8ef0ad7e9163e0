// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {NodeRules} from "../arbiter/NodeRules.sol";
import {Node, Nodes, Operand} from "../arbiter/Nodes.sol";
import {TensorIndex} from "../arbiter/TensorIndex.sol";
import {Game, ICourt, Opening} from "../interfaces/ICourt.sol";
import {Kind} from "../interfaces/Types.sol";
import {Merkle} from "../libraries/Merkle.sol";
import {Leaves} from "./Leaves.sol";
import {Openings} from "./Openings.sol";

/// @title One element: what was revealed of it, and what it must be where no arithmetic is asked for
/// @notice Nodes that take from outside the trace: the agreed state, the drawn records, the step's counter.
library Elements {
    uint256 private constant COUNTER_MASK = 0x7fffffff;

    /// @notice Bits of element `element` of the tensor, which must lie in the revealed leaf, in its word `word`.
    function revealed(
        Game calldata game,
        bytes32 word,
        bytes32[] calldata proof,
        uint256 element,
        uint256 width
    ) internal pure returns (uint256 bits) {
        uint256 start = game.cursor.index * Openings.LEAF_BYTES;
        uint256 cursor = element * width;
        if (
            cursor < start || cursor + width > start + Openings.leafSize(game.context.size, game.cursor.index)
        ) {
            revert ICourt.IndexOutOfRange(element, game.context.size / width);
        }
        cursor -= start;
        if (!Leaves.verify(game.cursor.revealed, word, cursor / 32, proof)) revert ICourt.BadProof();
        for (uint256 i = cursor % 32 + width; i > cursor % 32; --i) {
            bits = (bits << 8) | uint8(word[i - 1]);
        }
    }

    /// @notice The same element of the slot's tensor in the accepted input state.
    function ofState(Game calldata game, Node memory decoded, uint256 element, Opening[] calldata openings)
        internal
        view
        returns (uint256)
    {
        NodeRules.checkSource(decoded);
        if (decoded.attrs[0] != int256(uint256(game.context.node))) revert ICourt.MalformedNode();
        Opening calldata opening = _only(openings, element);
        bytes32 root = Openings.tensorRoot(opening, game.context.size, 0);
        if (!Merkle.verify(
                game.context.inRoot, root, game.context.node, game.params.program.slots, opening.path
            )) {
            revert ICourt.BadProof();
        }
        uint256 width = Nodes.width(decoded.dtype);
        uint256 start = opening.firstLeaf * Openings.LEAF_BYTES;
        uint256 cursor = element * width;
        if (cursor < start || cursor + width > start + opening.data.length) {
            revert ICourt.MissingInput(0, element);
        }
        return _bits(opening.data, cursor - start, width);
    }

    /// @notice One byte of the record that the counters choose for this row (docs/protocol.md, 2.6), or that the node's
    /// input names; 0 where there is none, so that every element of every program that can be posted has a value.
    function ofRecord(Game calldata game, Node memory decoded, uint256 element, Opening[] calldata openings)
        internal
        view
        returns (uint256)
    {
        NodeRules.checkSource(decoded);
        uint256 columns = decoded.dims[1];
        uint256 place = uint256(decoded.attrs[0]) + element % columns;
        bool none = game.params.records == 0 || game.params.accused.kind == Kind.OUTER;
        if (none || place >= game.params.recordSize) {
            if (openings.length > 0) revert ICourt.WrongCount(0, openings.length);
            return 0;
        }
        uint256 row = element / columns;
        bytes calldata data;
        if (decoded.op == Nodes.DATA) {
            data = _record(game, _drawn(game, uint256(decoded.attrs[1]) + row), _only(openings, element));
        } else {
            if (openings.length != 2) revert ICourt.WrongCount(2, openings.length);
            if (openings[1].input != 1) revert ICourt.IndexOutOfRange(openings[1].input, 2);
            data = _record(game, _named(game, decoded, row, openings), openings[1]);
        }
        return uint8(data[place]);
    }

    /// @notice The low 31 bits of the step's counter or of the shard's number.
    function ofCounter(Game calldata game, Node memory decoded) internal pure returns (uint256) {
        NodeRules.checkSource(decoded);
        return (decoded.op == Nodes.STEP ? game.context.step : game.params.shard) & COUNTER_MASK;
    }

    /// @dev `width` bytes from `cursor` on, little-endian.
    function _bits(bytes calldata data, uint256 cursor, uint256 width) private pure returns (uint256 bits) {
        for (uint256 i = width; i > 0; --i) {
            bits = (bits << 8) | uint8(data[cursor + i - 1]);
        }
    }

    function _drawn(Game calldata game, uint256 row) private pure returns (uint256) {
        // casting to 'uint32' is safe because a dimension is at most 2^28; 'bytes8' means the first 8 bytes (rule 2.6)
        // forge-lint: disable-next-item(unsafe-typecast)
        bytes32 drawn = sha256(
            abi.encodePacked(
                "assay/record/1", game.params.seed, game.params.shard, game.context.step, uint32(row)
            )
        );
        // forge-lint: disable-next-item(unsafe-typecast)
        return uint64(bytes8(drawn)) % game.params.records;
    }

    /// @dev Element `row` of the node's input, clamped to the records there are.
    function _named(Game calldata game, Node memory decoded, uint256 row, Opening[] calldata openings)
        private
        view
        returns (uint256)
    {
        Opening calldata opening = openings[0];
        Operand memory index = decoded.inputs[0];
        if (opening.input != 0) revert ICourt.IndexOutOfRange(opening.input, 1);
        if (index.ref >= game.context.node) revert ICourt.MalformedNode();
        bytes32 root = Openings.tensorRoot(opening, Nodes.sizeOf(index), game.context.key);
        if (!Merkle.verify(game.context.traceRoot, root, index.ref, game.params.program.nodes, opening.path))
        {
            revert ICourt.BadProof();
        }
        uint256 start = opening.firstLeaf * Openings.LEAF_BYTES;
        if (4 * row < start || 4 * row + 4 > start + opening.data.length) revert ICourt.MissingInput(0, row);
        // casting to 'uint32' is safe because these are four bytes; the sign is theirs
        // forge-lint: disable-next-line(unsafe-typecast)
        return TensorIndex.clamp(int32(uint32(_bits(opening.data, 4 * row - start, 4))), game.params.records);
    }

    function _record(Game calldata game, uint256 record, Opening calldata opening)
        private
        view
        returns (bytes calldata data)
    {
        data = opening.data;
        if (opening.firstLeaf != record) revert ICourt.MissingInput(0, record);
        if (data.length != game.params.recordSize || opening.path.length != 0) revert ICourt.BadProof();
        bytes32 digest = Openings.hash(0, data);
        if (!Merkle.verify(game.params.datasetRoot, digest, record, game.params.records, opening.siblings)) {
            revert ICourt.BadProof();
        }
    }

    /// @dev The one opening of a node that has one source outside the trace.
    function _only(Opening[] calldata openings, uint256 element) private pure returns (Opening calldata) {
        if (openings.length == 0) revert ICourt.MissingInput(0, element);
        if (openings.length > 1) revert ICourt.WrongCount(1, openings.length);
        if (openings[0].input != 0) revert ICourt.IndexOutOfRange(openings[0].input, 1);
        return openings[0];
    }
}
