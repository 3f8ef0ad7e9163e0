// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {Kind, Link, Loop, Origin, Terms} from "../../src/interfaces/Types.sol";
import {Loops} from "../../src/libraries/Loops.sol";
import {TermsStore} from "../../src/libraries/TermsStore.sol";
import {Test} from "../Vm.sol";

/// @dev Stands for Jobs: writes terms as code, and reads them as the other contracts do.
contract Shelf {
    function write(bytes32 jobId, Terms calldata terms) external {
        TermsStore.write(jobId, terms);
    }

    function load(bytes32 jobId) external view returns (Terms memory) {
        return TermsStore.load(address(this), jobId);
    }

    function loops(bytes32 jobId, Kind kind) external view returns (Loop[] memory) {
        return TermsStore.loops(address(this), jobId, kind);
    }

    function links(bytes32 jobId, Kind kind) external view returns (Link[] memory) {
        return TermsStore.links(address(this), jobId, kind);
    }

    function located(bytes32 jobId, Kind kind, uint256 segment)
        external
        view
        returns (Loop memory, uint256, uint256)
    {
        return TermsStore.located(address(this), jobId, kind, segment);
    }
}

/// @notice Terms of any loops and links come back as they were written, and each segment's loop and step are those of a walk
/// through all steps.
contract LoopsTest is Test {
    Shelf private shelf = new Shelf();
    uint256 private state;

    function random(uint256 n) private returns (uint256) {
        state = uint256(keccak256(abi.encode(state)));
        return state % n;
    }

    function someLoops(uint256 count) private returns (Loop[] memory loops) {
        loops = new Loop[](count);
        for (uint256 i; i < count; ++i) {
            uint32 segmentSteps = uint32(1 + random(3));
            uint32 steps = segmentSteps * uint32(1 + random(5));
            bytes32 root = bytes32(random(type(uint256).max));
            loops[i] = Loop(root, uint32(random(1 << 32)), steps, segmentSteps, uint32(random(1 << 32)), 0, 1);
            (loops[i].slowFrom, loops[i].slowBy) = (uint32(random(1 << 32)), uint32(random(1 << 32)));
        }
    }

    function someLinks(uint256 count) private returns (Link[] memory links) {
        links = new Link[](count);
        for (uint256 i; i < count; ++i) {
            Link memory l = links[i];
            (l.origin, l.source, l.lag) = (Origin(random(4)), Kind(random(2)), uint8(random(256)));
            (l.count, l.times) = (uint16(1 + random(3)), uint16(1 + random(3)));
            (l.first, l.shift, l.otherwise) =
            (uint16(random(1 << 16)), uint16(random(1 << 16)), uint16(random(1 << 16)));
            (l.div, l.mod, l.stride) =
            (uint16(random(1 << 16)), uint16(random(1 << 16)), uint16(random(1 << 16)));
        }
    }

    function testFuzz_termsComeBackAndSegmentsAreThoseOfAWalk(uint256 seed) external {
        state = seed;
        for (uint256 tries; tries < 32; ++tries) {
            Terms memory t;
            (t.client, t.seed, t.missPenalty) = (address(uint160(state | 1)), bytes32(state), uint128(state));
            (t.loops, t.outerLoops) = (someLoops(1 + random(8)), someLoops(1 + random(8)));
            (t.links, t.outerLinks) = (someLinks(1 + random(16)), someLinks(1 + random(16)));
            bytes32 id = bytes32(random(type(uint256).max));
            shelf.write(id, t);
            checkHead(shelf.load(id), t);
            check(id, Kind.TASK, t.loops, t.links);
            check(id, Kind.OUTER, t.outerLoops, t.outerLinks);
        }
    }

    function checkHead(Terms memory found, Terms memory t) private pure {
        assertEq(found.loops.length + found.outerLoops.length, 0, "they are read apart");
        (found.loops, found.outerLoops) = (t.loops, t.outerLoops);
        (found.links, found.outerLinks) = (t.links, t.outerLinks);
        assertEq(keccak256(abi.encode(found)), keccak256(abi.encode(t)));
    }

    function checkShards(Loop[] memory loops, Link[] memory links) private pure {
        for (uint256 l; l < loops.length; ++l) {
            Loop memory loop = loops[l];
            (loop.steps, loop.segmentSteps, loop.slowFrom, loop.slowBy) =
            (loop.steps * 3, loop.segmentSteps * 3, 5, 3);
            (uint256 steps, uint256 segmentSteps) = Loops.stepsOf(loop, 4);
            assertEq(steps, loop.steps);
            assertEq(segmentSteps, loop.segmentSteps);
            (steps, segmentSteps) = Loops.stepsOf(loop, 5);
            assertEq(3 * steps, loop.steps);
            assertEq(3 * segmentSteps, loop.segmentSteps);
        }
        Link memory link = links[0];
        (link.first, link.div, link.mod, link.stride) = (7, 2, 3, 5);
        uint8[9] memory expected = [7, 7, 12, 12, 17, 17, 7, 7, 12];
        for (uint256 shard; shard < 9; ++shard) {
            assertEq(Loops.firstOf(link, shard), expected[shard]);
        }
    }

    function check(bytes32 id, Kind kind, Loop[] memory loops, Link[] memory links) private view {
        assertEq(keccak256(abi.encode(shelf.loops(id, kind))), keccak256(abi.encode(loops)));
        assertEq(keccak256(abi.encode(shelf.links(id, kind))), keccak256(abi.encode(links)));
        uint256 segment;
        for (uint256 l; l < loops.length; ++l) {
            for (uint256 step; step < loops[l].steps; ++step) {
                if (step % loops[l].segmentSteps != 0) continue;
                (Loop memory loop, uint256 number, uint256 within) = shelf.located(id, kind, segment++);
                assertEq(keccak256(abi.encode(loop)), keccak256(abi.encode(loops[l])));
                assertEq(number, l);
                assertEq(within * loop.segmentSteps, step);
            }
        }
        checkShards(loops, links);
        uint256 slot;
        for (uint256 l; l < links.length; ++l) {
            for (uint256 i; i < uint256(links[l].count) * links[l].times; ++i) {
                (Link memory link, uint256 index) = Loops.linkOf(links, slot++);
                assertEq(keccak256(abi.encode(link)), keccak256(abi.encode(links[l])));
                assertEq(index, i);
            }
        }
    }
}
