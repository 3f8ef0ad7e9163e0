// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {ITasks} from "../interfaces/ITasks.sol";
import {Kind, Link, Loop, Origin, Terms} from "../interfaces/Types.sol";
import {SSTORE2} from "solady/utils/SSTORE2.sol";

/// @title A job's terms as the code of a contract whose address follows from the job's id
/// @notice Every contract reads them directly: one cold account and a copy instead of thirty storage slots.
/// @dev The code is a zero byte, the HEAD words before the terms' arrays as they are encoded, a word with the arrays'
/// lengths, and the arrays: a loop in two words, a link in one. SAFETY: nothing is validated again, since only `write`
/// below, from terms that were encoded, creates code at such an address.
library TermsStore {
    uint256 private constant HEAD = 41;
    uint256 private constant COUNTS_AT = 1 + 32 * HEAD;
    uint256 private constant ARRAYS_AT = COUNTS_AT + 32;

    function write(bytes32 jobId, Terms calldata terms) internal {
        SSTORE2.writeDeterministic(encode(terms), jobId);
    }

    /// @notice The code but for its first byte.
    function encode(Terms calldata terms) internal pure returns (bytes memory data) {
        uint256 words = 2 * (terms.loops.length + terms.outerLoops.length);
        uint256 size = 32 * (HEAD + 1 + words + terms.links.length + terms.outerLinks.length);
        data = new bytes(size);
        uint256 counts = terms.loops.length | terms.outerLoops.length << 64 | terms.links.length << 128
            | terms.outerLinks.length << 192;
        uint256 p;
        assembly ("memory-safe") {
            p := add(data, 0x20)
            calldatacopy(p, terms, mul(32, HEAD))
            p := add(p, mul(32, HEAD))
            mstore(p, counts)
            p := add(p, 0x20)
        }
        p = _writeLoops(p, terms.loops);
        p = _writeLoops(p, terms.outerLoops);
        p = _writeLinks(p, terms.links);
        _writeLinks(p, terms.outerLinks);
    }

    /// @notice A job's terms without their arrays (`loops`, `links`). Reverts with ITasks.NoSuchJob.
    function load(address jobs, bytes32 jobId) internal view returns (Terms memory terms) {
        address pointer = SSTORE2.predictDeterministicAddress(jobId, jobs);
        assembly ("memory-safe") {
            extcodecopy(pointer, terms, 1, mul(32, HEAD))
        }
        // No code is copied as zeros, and whoever posts a job is its client (Jobs).
        if (terms.client == address(0)) revert ITasks.NoSuchJob(jobId);
    }

    /// @notice What a claim of this kind runs, of a job that exists.
    function loops(address jobs, bytes32 jobId, Kind kind) internal view returns (Loop[] memory found) {
        address pointer = SSTORE2.predictDeterministicAddress(jobId, jobs);
        (uint256 place, uint256 count) = _loopsAt(pointer, kind);
        found = new Loop[](count);
        for (uint256 i; i < count; ++i) {
            found[i] = _loop(_word(pointer, place + 64 * i), _word(pointer, place + 64 * i + 32));
        }
    }

    /// @notice The loop in which a claim's segment lies, its number, and the segment's place in it; of a job that exists, and
    /// a segment that its claims of this kind have.
    function located(address jobs, bytes32 jobId, Kind kind, uint256 segment)
        internal
        view
        returns (Loop memory loop, uint256 ordinal, uint256 within)
    {
        address pointer = SSTORE2.predictDeterministicAddress(jobId, jobs);
        bool task = kind == Kind.TASK;
        uint256 place = COUNTS_AT;
        uint256 root;
        uint256 word;
        within = segment;
        assembly ("memory-safe") {
            // Beyond what is allocated: the arrays' lengths, and the first loop behind them.
            let p := mload(0x40)
            extcodecopy(pointer, p, place, 0x60)
            place := add(place, 0x20)
            if iszero(task) {
                place := add(place, shl(6, and(mload(p), 0xffffffffffffffff)))
                extcodecopy(pointer, add(p, 0x20), place, 0x40)
            }
            root := mload(add(p, 0x20))
            word := mload(add(p, 0x40))
            for {} 1 {} {
                let n := div(and(shr(32, word), 0xffffffff), and(shr(64, word), 0xffffffff))
                if lt(within, n) { break }
                within := sub(within, n)
                ordinal := add(ordinal, 1)
                place := add(place, 0x40)
                extcodecopy(pointer, p, place, 0x40)
                root := mload(p)
                word := mload(add(p, 0x20))
            }
        }
        loop = _loop(root, word);
    }

    /// @notice Where the input slots of a claim of this kind come from, of a job that exists.
    function links(address jobs, bytes32 jobId, Kind kind) internal view returns (Link[] memory found) {
        address pointer = SSTORE2.predictDeterministicAddress(jobId, jobs);
        uint256 counts = _word(pointer, COUNTS_AT);
        uint256 place = ARRAYS_AT + 64 * (_low(counts) + _low(counts >> 64));
        if (kind == Kind.OUTER) place += 32 * _low(counts >> 128);
        found = new Link[](_low(counts >> (kind == Kind.TASK ? 128 : 192)));
        for (uint256 i; i < found.length; ++i) {
            uint256 word = _word(pointer, place + 32 * i);
            // Each field takes the bits that _writeLinks gives it.
            // forge-lint: disable-next-item(unsafe-typecast)
            found[i] = Link(
                Origin(uint8(word)),
                Kind(uint8(word >> 8)),
                uint8(word >> 16),
                uint16(word >> 32),
                uint16(word >> 48),
                uint16(word >> 64),
                uint16(word >> 80),
                uint16(word >> 96),
                uint16(word >> 112),
                uint16(word >> 128),
                uint16(word >> 144)
            );
        }
    }

    /// @dev Where in the code a kind's loops begin, and how many there are.
    function _loopsAt(address pointer, Kind kind) private view returns (uint256 place, uint256 count) {
        uint256 counts = _word(pointer, COUNTS_AT);
        if (kind == Kind.TASK) return (ARRAYS_AT, _low(counts));
        return (ARRAYS_AT + 64 * _low(counts), _low(counts >> 64));
    }

    /// @dev The lowest of four numbers in a word.
    function _low(uint256 counts) private pure returns (uint256) {
        return counts & type(uint64).max;
    }

    /// @dev A loop from its two words.
    function _loop(uint256 root, uint256 word) private pure returns (Loop memory) {
        // Each field takes the bits that _writeLoops gives it.
        // forge-lint: disable-next-item(unsafe-typecast)
        return Loop(
            bytes32(root),
            uint32(word),
            uint32(word >> 32),
            uint32(word >> 64),
            uint32(word >> 96),
            uint32(word >> 128),
            uint32(word >> 160)
        );
    }

    function _writeLoops(uint256 p, Loop[] calldata all) private pure returns (uint256) {
        for (uint256 i; i < all.length; ++i) {
            Loop calldata l = all[i];
            uint256 word = uint256(l.nodes) | uint256(l.steps) << 32 | uint256(l.segmentSteps) << 64
                | uint256(l.samples) << 96 | uint256(l.slowFrom) << 128 | uint256(l.slowBy) << 160;
            bytes32 root = l.root;
            assembly ("memory-safe") {
                mstore(p, root)
                mstore(add(p, 0x20), word)
                p := add(p, 0x40)
            }
        }
        return p;
    }

    function _writeLinks(uint256 p, Link[] calldata all) private pure returns (uint256) {
        for (uint256 i; i < all.length; ++i) {
            Link calldata l = all[i];
            uint256 word = uint256(l.origin) | uint256(l.source) << 8 | uint256(l.lag) << 16
                | uint256(l.count) << 32 | uint256(l.times) << 48 | uint256(l.first) << 64 | uint256(l.shift)
                << 80 | uint256(l.otherwise) << 96 | uint256(l.div) << 112 | uint256(l.mod) << 128
                | uint256(l.stride) << 144;
            assembly ("memory-safe") {
                mstore(p, word)
                p := add(p, 0x20)
            }
        }
        return p;
    }

    /// @dev The 32 bytes of code from `offset` on.
    function _word(address pointer, uint256 offset) private view returns (uint256 word) {
        assembly ("memory-safe") {
            extcodecopy(pointer, 0, offset, 0x20)
            word := mload(0)
        }
    }
}
