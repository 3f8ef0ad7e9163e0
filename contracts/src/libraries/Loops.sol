// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {Kind, Link, Loop, ProgramRef, Terms} from "../interfaces/Types.sol";

/// @title What loops and links say by themselves (docs/protocol.md 2.6, 4.4)
library Loops {
    function segmentsOf(Loop memory loop) internal pure returns (uint256) {
        return loop.steps / loop.segmentSteps;
    }

    /// @notice Steps of the loop, and of each of its segments, in the claim of a shard, or of a slice, of which none is slow.
    function stepsOf(Loop memory loop, uint256 shard)
        internal
        pure
        returns (uint256 steps, uint256 segmentSteps)
    {
        uint256 by = shard < loop.slowFrom ? 1 : loop.slowBy;
        return (loop.steps / by, loop.segmentSteps / by);
    }

    /// @notice What such a loop of a kind of claim is recomputed by.
    function programOf(Loop memory loop, Kind kind, Terms memory t)
        internal
        pure
        returns (ProgramRef memory)
    {
        (uint32 slots, uint32 params) = kind == Kind.TASK
            ? (t.slots, t.params)
            : (t.outerSlots, t.params / t.slices);
        return ProgramRef(loop.root, loop.nodes, slots, params);
    }

    /// @notice Where in its source's slots the part begins that a link gives to the reader of this number.
    function firstOf(Link memory link, uint256 reader) internal pure returns (uint256) {
        return link.first + reader / link.div % link.mod * link.stride;
    }

    /// @notice The link that the slot belongs to, of which it is the `i`-th. The slot is one of the state's.
    function linkOf(Link[] memory links, uint256 slot) internal pure returns (Link memory link, uint256 i) {
        i = slot;
        uint256 l;
        for (uint256 n; (n = uint256(links[l].count) * links[l].times) <= i; ++l) {
            i -= n;
        }
        link = links[l];
    }
}
