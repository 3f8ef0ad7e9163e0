// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {Bounds, Conditions, Kind, Link, Loop, NO_SLOT, Origin, Terms} from "../../src/interfaces/Types.sol";
import {Loops} from "../../src/libraries/Loops.sol";
import {Classes} from "../../src/market/Classes.sol";
import {Test} from "../Vm.sol";

/// @notice Proofs, for all numbers at once (`make symbolic`): what the deployed Classes accepts of a link, beside slots of the
/// reader's own, and of a loop names slots, claims and segments that are there.
contract LinksSymbolic is Test {
    Classes private classes;
    bytes32 private class;

    constructor() {
        classes = new Classes(Bounds(1, 1000, 1, 1000, 1, 1000, 0, 1000, 1, 1000, 0, 100 ether, 0, 0, 1));
        class = classes.register(_conditions());
    }

    function _conditions() private pure returns (Conditions memory c) {
        (c.verifiers, c.samples, c.seedDelay) = (1, 1, 2);
        (c.voteTime, c.challengeWindow, c.moveTime) = (100, 500, 60);
        (c.nodes, c.segments, c.segmentSteps) = (65_536, 256, 64);
    }

    /// @dev Terms that are acceptable when they have slots, links and loops.
    function _terms(uint32 shards, uint32 slices) private view returns (Terms memory t) {
        (t.params, t.slices, t.shards, t.minShards, t.rounds) = (slices, slices, shards, 1, 3);
        (t.manifest, t.classId) = (keccak256("manifest"), class);
        (t.verifiers, t.samples, t.seedDelay, t.maxUnsettled) = (1, 1, 2, 2);
        (t.taskTime, t.stragglerTime, t.outerTime, t.pricePeriod) = (100, 404, 100, 100);
        (t.voteTime, t.challengeWindow, t.moveTime) = (100, 500, 60);
        (t.loops, t.segments) = (_loop(1), 1);
        (t.outerLoops, t.outerSegments) = (_loop(0), 1);
    }

    function _loop(uint32 samples) private pure returns (Loop[] memory loops) {
        loops = new Loop[](1);
        loops[0] = Loop(keccak256("program"), 20, 1, 1, samples, 0, 1);
    }

    function _own(uint16 count) private pure returns (Link memory) {
        return Link(Origin.OWN, Kind.TASK, 0, count, 1, 0, 0, 0, 1, 1, 0);
    }

    /// @dev Any link before, or after, some slots of the reader's own, if the contract accepts it in such a claim.
    function _accepted(
        Link memory link,
        Kind reader,
        bool first,
        uint16[2] memory counts,
        uint16[2] memory units
    ) private view returns (Terms memory t) {
        (uint16 own, uint16 others) = (counts[0], counts[1]);
        t = _terms(units[0], units[1]);
        Link[] memory links = new Link[](2);
        (links[0], links[1]) = first ? (link, _own(own)) : (_own(own), link);
        Link[] memory rest = new Link[](1);
        rest[0] = _own(others);
        uint32 slots = uint32(link.count) * link.times + own;
        (t.slots, t.outerSlots) = reader == Kind.TASK ? (slots, uint32(others)) : (uint32(others), slots);
        (t.links, t.outerLinks) = reader == Kind.TASK ? (links, rest) : (rest, links);
        classes.check(t);
    }

    function _checkNamed(Link memory link, Kind reader, uint16 number, uint16 slot, Terms memory t)
        private
        pure
    {
        Link[] memory links = reader == Kind.TASK ? t.links : t.outerLinks;
        uint256 own = reader == Kind.TASK ? t.slots : t.outerSlots;
        vm.assume(number < (reader == Kind.TASK ? t.shards : t.slices) && slot < own);
        (Link memory found, uint256 i) = Loops.linkOf(links, slot);
        assert(i < uint256(found.count) * found.times);
        if (found.origin == Origin.OWN || found.origin == Origin.GENESIS) return;
        assert(keccak256(abi.encode(found)) == keccak256(abi.encode(link)));
        assert(i / link.count < (link.source == Kind.TASK ? t.shards : t.slices));
        assert(link.lag > 0 || (reader == Kind.OUTER && link.source == Kind.TASK));
        if (found.origin == Origin.PRESENT) return;
        uint256 there = link.source == Kind.TASK ? t.slots : t.outerSlots;
        assert(Loops.firstOf(link, number) + i % link.count < there);
        assert(link.otherwise == NO_SLOT || link.otherwise + i % link.count < own);
    }

    /// @notice Every slot of a claim's input is in a link, and what that names is there, whatever the numbers of shards and
    /// slices: a shard or a slice, of an earlier round or, for an outer claim, of a task of its own, and a slot that its claims
    /// have.
    function check_whatALinkNamesIsThere(
        Link memory link,
        bool outer,
        bool first,
        uint16[2] memory counts,
        uint16[2] memory units,
        uint16 number,
        uint16 slot
    ) external view {
        Kind reader = outer ? Kind.OUTER : Kind.TASK;
        _checkNamed(link, reader, number, slot, _accepted(link, reader, first, counts, units));
    }

    /// @notice A slot lies in the one link whose run of slots holds it: three links of any sizes.
    function check_aSlotIsInTheLinkWhoseRunHoldsIt(
        uint16[3] memory counts,
        uint16[3] memory times,
        uint64 slot
    ) external pure {
        Link[] memory links = new Link[](3);
        uint256[4] memory ends;
        for (uint256 n; n < 3; ++n) {
            links[n] = _own(counts[n]);
            (links[n].times, links[n].first) = (times[n], uint16(n));
            ends[n + 1] = ends[n] + uint256(counts[n]) * times[n];
        }
        vm.assume(slot < ends[3]);
        (Link memory found, uint256 i) = Loops.linkOf(links, slot);
        uint256 at = found.first;
        assert(ends[at] + i == slot && slot < ends[at + 1]);
    }

    /// @notice Of a loop that the contract accepts a slow shard has as many segments as any other, of whole steps.
    function check_aSlowShardHasAsManySegments(Loop memory loop, uint32 segments, uint32 shard)
        external
        view
    {
        Terms memory t = _terms(4, 4);
        (t.slots, t.outerSlots) = (4, 4);
        (t.links, t.outerLinks) = (new Link[](1), new Link[](1));
        (t.links[0], t.outerLinks[0]) = (_own(4), _own(4));
        (t.loops[0], t.segments) = (loop, segments);
        classes.check(t);
        (uint256 steps, uint256 each) = Loops.stepsOf(loop, shard);
        assert(Loops.segmentsOf(loop) == segments);
        assert(each > 0 && steps == segments * each);
    }
}
