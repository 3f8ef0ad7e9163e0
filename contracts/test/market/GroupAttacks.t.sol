// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {IChallenges} from "../../src/interfaces/IChallenges.sol";
import {Context} from "../../src/interfaces/ICourt.sol";
import {Claim, Kind, Link, Loop, NO_SLOT, Origin, Phase, Terms} from "../../src/interfaces/Types.sol";
import {Loops} from "../../src/libraries/Loops.sol";
import {Merkle} from "../../src/libraries/Merkle.sol";
import {Market} from "./Market.sol";

/// @notice Attacks by shards of two speeds and by parts (docs/decisions/0042): terms at every bound, segments that
/// a slow shard does not have, another path's module for a proof.
contract GroupAttacksTest is Market {
    Claim private none;

    function setUp() external {
        setUpMarket();
    }

    /// @dev Whether the job would be posted.
    function taken(Terms memory t) private view returns (bool) {
        try classes.check(t) {
            return true;
        } catch {
            return false;
        }
    }

    /// @notice Whatever numbers a link has that is taken, no reader's part leaves its source's slots, and none divides by zero.
    function test_Attack_noPartThatIsTakenLeavesItsSource(uint256 seed, uint32 reader) external {
        Terms memory t = aTerms();
        classes.register(conditionsOf(t));
        uint16[8] memory some = [0, 1, 2, 3, 255, 257, 1 << 15, type(uint16).max];
        uint256 accepted;
        for (uint256 i; i < 64; ++i) {
            seed = uint256(keccak256(abi.encode(seed)));
            Link memory l = t.links[0];
            l.first = some[seed % 5] % 9;
            l.div = some[(seed >> 32) % 8];
            l.mod = some[(seed >> 64) % 8];
            l.stride = some[(seed >> 96) % 8];
            if (!taken(t)) continue;
            ++accepted;
            uint256 first = Loops.firstOf(l, reader);
            assertEq(first, l.first + ((uint256(reader) / l.div) % l.mod) * l.stride);
            assertLe(first + l.count, t.outerSlots);
        }
        assertGt(accepted, 0);
    }

    function loopOf(uint256 seed) private pure returns (Loop memory l) {
        uint8[6] memory by = [1, 2, 4, 8, 32, 64];
        uint32 slowBy = by[seed % 6];
        uint32 segmentSteps = slowBy * u32(1 + (seed >> 8) % (64 / slowBy));
        (l.root, l.nodes, l.samples) = (keccak256("inner"), 20, 2);
        (l.steps, l.segmentSteps) = (segmentSteps * SEGMENTS, segmentSteps);
        (l.slowFrom, l.slowBy) = (u32((seed >> 16) % 3), slowBy);
        if (seed >> 255 == 1) l.slowFrom = type(uint32).max;
    }

    /// @notice A game on any segment of a shard begins at the step, and is about as many, as a walk through its steps says;
    /// a segment that no shard has opens none.
    function test_Attack_aGameIsAboutTheShardsOwnSteps(uint256 seed) external {
        Terms memory t = aTerms();
        t.loops[0] = loopOf(seed);
        t.loops[0].samples = t.samples;
        postJob(t);
        holdShards();
        uint32 shard = u32((seed >> 32) % 2);
        Claim memory claim = commitTask(0, shard);
        uint256 by = shard < t.loops[0].slowFrom ? 1 : t.loops[0].slowBy;
        for (uint32 segment; segment < SEGMENTS; ++segment) {
            Context memory context = court.game(challengeAs(whistle, claim, segment)).context;
            assertEq(context.steps, t.loops[0].segmentSteps / by);
            assertEq(context.step, uint256(segment) * t.loops[0].segmentSteps / by);
        }
        uint32[4] memory absent = [SEGMENTS, SEGMENTS + 1, type(uint32).max - 1, type(uint32).max];
        bytes32[] memory proof = memberProof(segmentEnds(claim), 0);
        for (uint256 i; i < 4; ++i) {
            bytes32 salt = announceAs(whistle, idOf(claim), absent[i], address(0));
            vm.expectRevert(IChallenges.BadProof.selector);
            vm.prank(whistle);
            challenges.open(claim, absent[i], claim.inputRoot, proof, claim.outputRoot, proof, TRUTH, salt);
        }
        assertPhase(claim, Phase.COMMITTED);
    }

    /// @dev Two modules of one slot each in an outer claim's slots 0 and 1, and in every task's slots 1 and 2: a path begins with
    /// its module of the last aggregate and with its neighbour's, or, where that is away, with its own slot 1.
    function twoPaths() private {
        Terms memory t = aTerms();
        (t.params, t.minShards, t.rounds) = (1, 1, 4);
        t.links = new Link[](3);
        t.links[0] = Link(Origin.OUT, Kind.OUTER, 1, 1, 1, 0, 0, NO_SLOT, 1, 2, 1);
        t.links[1] = Link(Origin.OUT, Kind.TASK, 1, 1, 1, 1, 1, 1, 1, 2, 1);
        t.links[2] = Link(Origin.OWN, Kind.TASK, 0, 1, 1, 0, 0, 0, 1, 1, 0);
        (t.maxUnsettled, t.solverStake) = (3, 200 ether);
        postJob(t);
        holdShards();
    }

    function slotsOf(Claim memory claim) private pure returns (bytes32[] memory) {
        uint256 n = claim.kind == Kind.TASK ? SLOTS : (2 + SHARDS) * PARAMS;
        return stateSlots(string.concat("out", vm.toString(claim.manifest)), n);
    }

    /// @dev A proof that slot `slot` of the claim's input is not slot `index` of the source's output, which is refused.
    function unproven(
        Claim memory claim,
        bytes32[] memory input,
        uint32 slot,
        Claim memory source,
        uint256 index,
        bytes4 why
    ) private {
        bytes32[] memory from = slotsOf(source);
        bytes32 salt = announceSlot(whistle, idOf(claim), slot, input[slot]);
        bytes32[] memory proof = memberProof(input, slot);
        bytes32[] memory sourceProof = memberProof(from, index);
        vm.expectRevert(why);
        vm.prank(whistle);
        challenges.proveBinding(
            claim, slot, input[slot], proof, source, from[index], sourceProof, TRUTH, salt
        );
    }

    /// @notice An honest path is proven wrong by no other path's module, by no neighbour's other part, and not by the part of
    /// what replaces a neighbour that is away.
    function test_Attack_anHonestPathFallsByNoOthersModule() external {
        twoPaths();
        Claim[3] memory c = [acceptedTask(0, 0), acceptedTask(0, 1), none];
        c[2] = commitOuter(0);
        Claim memory claim = draft(Kind.TASK, 1, 1);
        bytes32[] memory input = new bytes32[](SLOTS);
        (input[0], input[1], input[2]) = (slotsOf(c[2])[1], slotsOf(c[0])[2], slotsOf(c[1])[2]);
        claim.inputRoot = rootOf(input);
        claim.segmentsRoot = Merkle.root(segmentEnds(claim));
        claim = submit(solvers[1], claim);
        unproven(claim, input, 0, c[2], 0, IChallenges.BadProof.selector);
        unproven(claim, input, 0, c[2], 1, IChallenges.NoDifference.selector);
        unproven(claim, input, 1, c[0], 1, IChallenges.BadProof.selector);
        unproven(claim, input, 1, c[0], 2, IChallenges.NoDifference.selector);
        assertPhase(claim, Phase.COMMITTED);
        accept(claim);
        skip(1301); // and its neighbour is away
        commitOuter(1);
        Claim memory next = draft(Kind.TASK, 2, 1);
        bytes32[] memory own = slotsOf(claim);
        (input[0], input[1], input[2]) = (keccak256("any"), own[1], own[2]);
        next.inputRoot = rootOf(input);
        next.segmentsRoot = Merkle.root(segmentEnds(next));
        next = submit(solvers[1], next);
        unproven(next, input, 1, claim, 2, IChallenges.BadProof.selector);
        unproven(next, input, 1, claim, 1, IChallenges.NoDifference.selector);
    }

    function rootOf(bytes32[] memory slots) private view returns (bytes32) {
        bytes32[] memory copy = new bytes32[](slots.length);
        for (uint256 i; i < copy.length; ++i) {
            copy[i] = slots[i];
        }
        return Merkle.root(copy);
    }
}
