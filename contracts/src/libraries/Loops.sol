// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {Link, Loop} from "../interfaces/Types.sol";

/// @title What loops and links say by themselves (docs/protocol.md 2.6, 4.4)
library Loops {
    function segmentsOf(Loop memory loop) internal pure returns (uint256) {
        return loop.steps / loop.segmentSteps;
    }

    /// @notice Steps of the loop, and of each of its segments, in the claim of a shard; an outer claim's is 0.
    function stepsOf(Loop memory loop, uint256 shard)
        internal
        pure
        returns (uint256 steps, uint256 segmentSteps)
    {
        uint256 by = shard < loop.slowFrom ? 1 : loop.slowBy;
        return (loop.steps / by, loop.segmentSteps / by);
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
