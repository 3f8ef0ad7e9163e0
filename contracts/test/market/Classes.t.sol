// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {IClasses} from "../../src/interfaces/IClasses.sol";
import {Bounds, Conditions, Kind, Link, Loop, NO_SLOT, Origin, Terms} from "../../src/interfaces/Types.sol";
import {Classes} from "../../src/market/Classes.sol";
import {Market} from "./Market.sol";

/// @notice Of every number in terms and classes the last value that is taken, and the first that is refused (docs/protocol.md,
/// 3.1 and 3.4). The market's bounds leave nothing to spare.
contract ClassesTest is Market {
    uint64 private constant LEAST_TIME = 100;
    uint64 private constant MOST_TIME = 1000;

    function setUp() external {
        classes = Classes(deployed("Classes", abi.encode(tight())));
    }

    function tight() private view returns (Bounds memory b) {
        Conditions memory c = some();
        (b.leastVote, b.mostVote, b.leastMove, b.mostMove) = (c.voteTime, c.voteTime, c.moveTime, c.moveTime);
        (b.leastWindow, b.mostWindow) = (c.challengeWindow, c.challengeWindow);
        (b.leastDelay, b.mostDelay) = (c.seedDelay, c.seedDelay);
        (b.leastTime, b.mostTime) = (LEAST_TIME, MOST_TIME);
        (b.leastStake, b.mostStake, b.leastBond) = (c.verifierStake, c.verifierStake, c.challengeBond);
        (b.clockLag, b.blockTime) = (3, 7);
    }

    function some() private view returns (Conditions memory) {
        return conditionsOf(aTerms());
    }

    function refused(Conditions memory c, string memory field) private {
        vm.expectRevert(abi.encodeWithSelector(IClasses.BadConditions.selector, field));
        classes.register(c);
    }

    function refused(Terms memory t, string memory field) private {
        t.classId = classes.register(conditionsOf(aTerms()));
        refusedByItsClass(t, field);
    }

    function refusedByItsClass(Terms memory t, string memory field) private {
        vm.expectRevert(abi.encodeWithSelector(IClasses.BadTerms.selector, field));
        classes.check(t);
    }

    /// @dev In the class that fits these terms.
    function taken(Terms memory t) private {
        t.classId = classes.register(conditionsOf(t));
        classes.check(t);
    }

    function test_theBoundsAreToldAsTheyWereDeployed() external {
        Bounds memory b = Bounds(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
        Classes others = Classes(deployed("Classes", abi.encode(b)));
        assertEq(keccak256(abi.encode(others.bounds())), keccak256(abi.encode(b)));
    }

    // Classes

    function test_aClassIsWithinTheMarketsBounds() external {
        classes.register(some());
        for (uint256 i; i < 2; ++i) {
            bool more = i == 1;
            Conditions memory c = some();
            c.seedDelay = more ? c.seedDelay + 1 : c.seedDelay - 1;
            refused(c, "seedDelay");
            c = some();
            c.voteTime = more ? c.voteTime + 1 : c.voteTime - 1;
            refused(c, "voteTime");
            c = some();
            c.challengeWindow = more ? c.challengeWindow + 1 : c.challengeWindow - 1;
            refused(c, "challengeWindow");
            c = some();
            c.moveTime = more ? c.moveTime + 1 : c.moveTime - 1;
            refused(c, "moveTime");
            c = some();
            c.verifierStake = more ? c.verifierStake + 1 : c.verifierStake - 1;
            refused(c, "verifierStake");
            c = some(); // a bond is at most the stake, which it is here
            c.challengeBond = more ? c.challengeBond + 1 : c.challengeBond - 1;
            refused(c, "challengeBond");
        }
        Conditions memory fined = some();
        fined.missPenalty = fined.verifierStake / 2;
        classes.register(fined);
        ++fined.missPenalty;
        refused(fined, "missPenalty");
        Conditions memory held = some();
        assertEq(held.solverStake, held.verifiers * held.verifierStake);
        --held.solverStake;
        refused(held, "solverStake");
    }

    function test_aClassIsOfBoundedWork() external {
        Conditions memory c = some();
        c.solverStake = 1000 ether;
        (c.verifiers, c.segments, c.samples, c.segmentSteps, c.nodes) = (1, 1, 1, 1, 1);
        classes.register(c);
        c.samples = 2;
        refused(c, "samples"); // more than segments
        (c.verifiers, c.segments, c.samples, c.segmentSteps, c.nodes) = (4, 256, 8, 64, 65_536);
        classes.register(c);
        c.segments = 8;
        classes.register(c); // as many as samples
        ++c.samples;
        refused(c, "samples");
        c.segments = 256;
        refused(c, "samples");
        c.samples = 0;
        refused(c, "samples");
        c.samples = 8;
        c.verifiers = 5;
        refused(c, "verifiers");
        c.verifiers = 0;
        refused(c, "verifiers");
        c.verifiers = 4;
        c.segments = 257;
        refused(c, "segments");
        c.segments = 0;
        refused(c, "segments");
        c.segments = 256;
        c.segmentSteps = 65;
        refused(c, "segmentSteps");
        c.segmentSteps = 0;
        refused(c, "segmentSteps");
        c.segmentSteps = 64;
        c.nodes = 65_537;
        refused(c, "nodes");
        c.nodes = 0;
        refused(c, "nodes");
    }

    function test_aClassOfOneSeatIsRegisteredOnce() external {
        Conditions memory c = some();
        c.verifiers = 1;
        bytes32 class = classes.register(c);
        assertEq(classes.conditions(class).verifiers, 1);
        vm.recordLogs();
        assertEq(classes.register(c), class);
        assertEq(vm.getRecordedLogs().length, 0, "nothing is new");
    }

    // Terms

    function test_countsHaveALastValue() external {
        taken(aTerms());
        Terms memory t = aTerms();
        t.slots = 4097;
        refused(t, "slots");
        t.slots = 4096;
        refused(t, "links"); // the next rule
        t = aTerms();
        t.outerSlots = 4097;
        refused(t, "outerSlots");
        t.outerSlots = 4096;
        refused(t, "outerLinks");
        t = aTerms();
        t.slices = 0;
        refused(t, "slices");
        t.slices = 1025;
        refused(t, "slices");
        t.slices = 1024;
        refused(t, "params");
        t = aTerms();
        t.manifest = 0;
        refused(t, "manifest");
        t.manifest = bytes32(uint256(1));
        taken(t);
        t = aTerms();
        (t.shards, t.minShards) = (0, 0);
        refused(t, "shards");
        (t.shards, t.minShards) = (1025, 1025);
        refused(t, "shards");
        (t.shards, t.minShards) = (1024, 1024);
        refused(t, "solverStake");
        t = aTerms();
        t.minShards = 0;
        refused(t, "minShards");
        t.minShards = SHARDS + 1;
        refused(t, "minShards");
        t = aTerms();
        t.rounds = 0;
        refused(t, "rounds");
        t.rounds = 1;
        taken(t);
        t = aTerms();
        t.maxUnsettled = 0;
        refused(t, "maxUnsettled");
        t.maxUnsettled = 1;
        taken(t);
        t.maxUnsettled = 33;
        refused(t, "maxUnsettled");
        t.maxUnsettled = 32;
        refused(t, "solverStake");
        t = aTerms();
        t.priceFloor = t.priceCap + 1;
        refused(t, "priceFloor");
        t.priceFloor = t.priceCap;
        taken(t);
    }

    function test_slicesHaveEqualPartsOfTheParameters() external {
        Terms memory t = aTerms();
        t.params = 0;
        refused(t, "params");
        t.params = SLOTS + 1;
        refused(t, "params");
        t.params = SLOTS; // all of them
        taken(t);
        t.slices = 2; // a parameter is left over
        refused(t, "params");
        (t.params, t.slices, t.outerSlots) = (SLOTS, 1, SLOTS);
        refused(t, "outerLinks");
        t.outerSlots = SLOTS - 1;
        refused(t, "params");
        (t.params, t.slices) = (2, 2); // one each
        refused(t, "outerLinks");
    }

    function test_timesAreWithinTheMarketsBounds() external {
        for (uint256 i; i < 2; ++i) {
            bool more = i == 1;
            uint64 bad = more ? MOST_TIME + 1 : LEAST_TIME - 1;
            Terms memory t = aTerms();
            t.taskTime = bad;
            refused(t, "taskTime");
            t.taskTime = more ? MOST_TIME : LEAST_TIME;
            taken(t);
            t.stragglerTime = bad;
            refused(t, "stragglerTime");
            t.stragglerTime = more ? MOST_TIME : LEAST_TIME;
            taken(t);
            t.outerTime = bad;
            refused(t, "outerTime");
            t.outerTime = more ? MOST_TIME : LEAST_TIME;
            taken(t);
            t.pricePeriod = more ? MOST_TIME + 1 : 0;
            refused(t, "pricePeriod");
            t.pricePeriod = more ? MOST_TIME : 1;
            taken(t);
        }
    }

    function test_stragglersHaveTheTimeOfAllVotesAndOfTheirBlocks() external {
        Terms memory t = aTerms();
        t.stragglerTime = 4 * 74 + (2 + 1 + 4 * 2 * 3) * 7 + LEAST_TIME;
        t.minShards = SHARDS - 1;
        taken(t);
        --t.stragglerTime;
        refused(t, "stragglerTime");
        t.minShards = SHARDS;
        taken(t);
    }

    function test_aSolversStakeIsTheLeastThatPaysAndNoLess() external {
        Terms memory t = aTerms();
        t.solverStake = 96 ether; // 8/3 of one round's tasks and two outer claims: 2 * 13 + 2 * 5
        taken(t);
        --t.solverStake;
        refusedByItsClass(t, "solverStake");
        t = aTerms();
        shapeSliced(t, SLOTS, PARAMS, SHARDS, 2);
        t.maxUnsettled = 3; // two rounds' tasks and six outer claims: 82
        t.solverStake = uint128(uint256(656 ether) / 3 + 1);
        taken(t);
        --t.solverStake;
        refusedByItsClass(t, "solverStake");
        t = aTerms();
        (t.priceFloor, t.priceCap, t.verifierFee) = (1 ether, 1 ether, 2 ether);
        t.solverStake = 96 ether; // 16 times six; 8/3 of what is wasted is 64
        taken(t);
        --t.solverStake;
        refusedByItsClass(t, "solverStake");
    }

    /// @dev Its class has nothing to spare either.
    function fitted() private returns (Terms memory t) {
        t = aTerms();
        (t.stateBytes, t.stepBytes, t.stepOperations) = (7, 8, 9);
        Conditions memory c = conditionsOf(t);
        (c.verifierFee, c.solverStake) = (t.verifierFee, t.solverStake);
        (c.segments, c.nodes, c.segmentSteps, c.dataBytes) = (SEGMENTS, 20, 2, 6400);
        (c.stateBytes, c.stepBytes, c.stepOperations) = (7, 8, 9);
        t.classId = classes.register(c);
    }

    function test_termsAreThoseOfTheirClass() external {
        classes.check(fitted());
        Terms memory t = fitted();
        --t.verifiers;
        refusedByItsClass(t, "verifiers");
        t = fitted();
        (t.samples, t.loops[0].samples) = (3, 3);
        refusedByItsClass(t, "samples");
        t = fitted();
        ++t.seedDelay;
        refusedByItsClass(t, "seedDelay");
        t = fitted();
        ++t.voteTime;
        refusedByItsClass(t, "voteTime");
        t = fitted();
        ++t.challengeWindow;
        refusedByItsClass(t, "challengeWindow");
        t = fitted();
        ++t.moveTime;
        refusedByItsClass(t, "moveTime");
        t = fitted();
        ++t.verifierStake;
        refusedByItsClass(t, "verifierStake");
        t = fitted();
        ++t.missPenalty;
        refusedByItsClass(t, "missPenalty");
        t = fitted();
        --t.challengeBond;
        refusedByItsClass(t, "challengeBond");
        t = fitted();
        --t.verifierFee;
        refusedByItsClass(t, "verifierFee");
        t = fitted();
        --t.solverStake;
        refusedByItsClass(t, "solverStake");
    }

    function test_workIsWithinItsClass() external {
        Terms memory t = fitted();
        ++t.loops[0].nodes;
        refusedByItsClass(t, "nodes");
        t = fitted();
        ++t.outerLoops[0].nodes;
        refusedByItsClass(t, "nodes");
        t = fitted();
        (t.loops[0].steps, t.loops[0].segmentSteps) = (12, 3);
        refusedByItsClass(t, "segmentSteps");
        t = fitted();
        (t.outerLoops[0].steps, t.outerLoops[0].segmentSteps) = (3, 3);
        refusedByItsClass(t, "segmentSteps");
        t = fitted();
        (t.loops[0].steps, t.segments) = (10, 5);
        refusedByItsClass(t, "segments");
        t = fitted();
        (t.outerLoops[0].steps, t.outerSegments) = (5, 5);
        refusedByItsClass(t, "outerSegments");
        (t.outerLoops[0].steps, t.outerSegments) = (4, 4);
        classes.check(t);
        t = fitted();
        ++t.recordSize;
        refusedByItsClass(t, "records");
        t = fitted();
        ++t.stateBytes;
        refusedByItsClass(t, "stateBytes");
        t = fitted();
        ++t.stepBytes;
        refusedByItsClass(t, "stepBytes");
        t = fitted();
        ++t.stepOperations;
        refusedByItsClass(t, "stepOperations");
    }

    // Loops

    function loops(uint256 count, uint32 samples) private pure returns (Loop[] memory all) {
        all = new Loop[](count);
        for (uint256 i; i < count; ++i) {
            all[i] = Loop("root", 20, 1, 1, samples, 0, 1);
        }
    }

    function test_thereAreEightLoopsOfAKindAtMost() external {
        Terms memory t = aTerms();
        (t.loops, t.segments, t.samples) = (loops(8, 1), 8, 8);
        taken(t);
        (t.loops, t.segments, t.samples) = (loops(9, 1), 9, 9);
        refused(t, "loops");
        (t.loops, t.segments, t.samples) = (loops(0, 1), 0, 0);
        refused(t, "loops");
        t = aTerms();
        (t.outerLoops, t.outerSegments) = (loops(8, 0), 8);
        taken(t);
        (t.outerLoops, t.outerSegments) = (loops(9, 0), 9);
        refused(t, "outerLoops");
        (t.outerLoops, t.outerSegments) = (loops(0, 0), 0);
        refused(t, "outerLoops");
    }

    function test_loopsAreOfWholeSegments() external {
        Terms memory t = aTerms();
        t.loops[0].nodes = 1;
        taken(t);
        t.loops[0].nodes = 0;
        refused(t, "loops");
        t.loops[0].nodes = 65_536;
        taken(t);
        t.loops[0].nodes = 65_537;
        refused(t, "loops");
        t = aTerms();
        t.loops[0].steps = 0;
        refused(t, "loops");
        t.loops[0].steps = 9; // one is left over
        refused(t, "loops");
        t.loops[0].steps = 1; // half a segment
        refused(t, "loops");
        t = aTerms();
        t.loops[0].segmentSteps = 0;
        refused(t, "loops");
        t = aTerms();
        (t.loops[0].steps, t.loops[0].segmentSteps) = (16, 4);
        taken(t);
        t.loops[0].slowBy = 4;
        taken(t);
        t.loops[0].slowBy = 3; // one step is left over
        refused(t, "loops");
        t.loops[0].slowBy = 5;
        refused(t, "loops");
        t.loops[0].slowBy = 0;
        refused(t, "loops");
        t = aTerms();
        (t.outerLoops[0].steps, t.outerLoops[0].segmentSteps, t.outerLoops[0].slowBy) = (2, 2, 2);
        refused(t, "outerLoops");
    }

    function test_segmentsAndSamplesAreTheSumsOfTheLoops() external {
        Terms memory t = aTerms();
        t.segments = SEGMENTS + 1;
        refused(t, "segments");
        t.segments = SEGMENTS - 1;
        refused(t, "segments");
        t = aTerms();
        t.outerSegments = 2;
        refused(t, "outerSegments");
        t.outerSegments = 0;
        refused(t, "outerSegments");
        t = aTerms();
        (t.samples, t.loops[0].samples) = (SEGMENTS, SEGMENTS); // all of them
        taken(t);
        (t.samples, t.loops[0].samples) = (SEGMENTS + 1, SEGMENTS + 1);
        refused(t, "samples");
        (t.samples, t.loops[0].samples) = (1, 1);
        taken(t);
        (t.samples, t.loops[0].samples) = (1, 2);
        refused(t, "samples");
        (t.samples, t.loops[0].samples) = (2, 1);
        refused(t, "samples");
        t = aTerms();
        t.outerLoops[0].samples = 1;
        refused(t, "samples");
        t = aTerms();
        (t.loops, t.segments) = (loops(2, 1), 2);
        t.loops[1].samples = 0; // a loop in which nobody looks
        t.samples = 1;
        refused(t, "samples");
    }

    // Links

    function linksOf(uint256 count) private pure returns (Link[] memory all) {
        all = new Link[](count);
        for (uint256 i; i < count; ++i) {
            all[i] = Link(Origin.OWN, Kind.TASK, 0, 1, 1, 0, 0, 0, 1, 1, 0);
        }
    }

    /// @dev The terms' links, and one that covers no slot.
    function withOneMore(Link[] memory before, Link memory more) private pure returns (Link[] memory all) {
        all = new Link[](before.length + 1);
        for (uint256 i; i < before.length; ++i) {
            all[i] = before[i];
        }
        all[before.length] = more;
    }

    function test_thereAreSixteenLinksOfAKindAtMost() external {
        Terms memory t = aTerms();
        (t.links, t.slots) = (linksOf(16), 16);
        taken(t);
        (t.links, t.slots) = (linksOf(17), 17);
        refused(t, "links");
        t = aTerms();
        (t.outerLinks, t.outerSlots, t.links, t.slots) = (linksOf(16), 16, linksOf(3), 3);
        taken(t);
        (t.outerLinks, t.outerSlots) = (linksOf(17), 17);
        refused(t, "outerLinks");
    }

    function test_linksCoverEverySlotOnceAndEachCoversOne() external {
        Terms memory t = aTerms();
        t.links = withOneMore(t.links, Link(Origin.OWN, Kind.TASK, 0, 0, 1, 0, 0, 0, 1, 1, 0));
        refused(t, "links");
        (t.links[2].count, t.links[2].times) = (1, 0);
        refused(t, "links");
        t.links[2].times = 1; // a slot too many
        refused(t, "links");
        t.links = linksOf(2); // one too few
        refused(t, "links");
        t = aTerms();
        t.outerLinks[0].count = 3;
        refused(t, "outerLinks");
        (t.outerLinks[0].count, t.outerLinks[0].times) = (2, 2);
        taken(t);
        t.outerLinks[0].origin = Origin.GENESIS;
        taken(t);
    }

    /// @dev Terms whose task has two slots by this link, and one of its own.
    function reading(Link memory link) private view returns (Terms memory t) {
        t = aTerms();
        t.links[0] = link;
    }

    function test_aLinkNamesWhatIsThereBeforeItsReader() external {
        Terms memory t = reading(Link(Origin.OUT, Kind.TASK, 1, 1, 2, 0, 0, NO_SLOT, 1, 1, 0));
        taken(t);
        t.links[0].lag = 0; // a task of its own round
        refused(t, "links");
        t.links[0] = Link(Origin.OUT, Kind.OUTER, 1, 2, 1, 0, 0, NO_SLOT, 1, 1, 0);
        taken(t);
        t.links[0].lag = 0;
        refused(t, "links");
        t = aTerms();
        t.outerLinks[0] = Link(Origin.OUT, Kind.OUTER, 1, 4, 1, 0, 0, NO_SLOT, 1, 1, 0);
        taken(t);
        t.outerLinks[0].lag = 0; // an outer claim of its own round; its tasks are there
        refused(t, "outerLinks");
        assertEq(t.outerLinks[1].lag, 0);
    }

    function test_aLinkNamesAsManyClaimsAsARoundHas() external {
        Terms memory t = aTerms();
        (t.slots, t.links[0]) = (4, Link(Origin.OUT, Kind.TASK, 1, 1, 3, 0, 0, NO_SLOT, 1, 1, 0));
        refused(t, "links"); // of two shards
        t = reading(Link(Origin.OUT, Kind.OUTER, 1, 1, 2, 0, 0, NO_SLOT, 1, 1, 0));
        refused(t, "links"); // of one slice
        t = reading(Link(Origin.PRESENT, Kind.TASK, 1, 1, 2, 0, 0, 0, 0, 0, 0));
        taken(t); // which has no parts
        (t.links[0].count, t.links[0].times) = (2, 1);
        refused(t, "links"); // one bool each
        t = aTerms();
        shapeSliced(t, SLOTS, PARAMS, SHARDS, 2);
        t.links[0] = Link(Origin.PRESENT, Kind.OUTER, 1, 1, 2, 0, 0, 0, 1, 1, 0);
        refused(t, "links"); // outer claims are never missing
    }

    function test_aLinksPartsAreSlotsOfItsSource() external {
        Terms memory t = reading(Link(Origin.OUT, Kind.OUTER, 1, 2, 1, 2, 0, NO_SLOT, 1, 2, 4));
        assertEq(t.outerSlots, 8);
        taken(t); // two from 2 on, two from 6 on
        t.links[0].stride = 5;
        refused(t, "links");
        (t.links[0].first, t.links[0].stride) = (3, 4);
        refused(t, "links");
        (t.links[0].first, t.links[0].stride) = (0, 2);
        taken(t);
        t.links[0].stride = 1; // parts that overlap
        refused(t, "links");
        t.links[0].mod = 1;
        taken(t); // there is one part
        t.links[0].mod = 0;
        refused(t, "links");
        (t.links[0].mod, t.links[0].div) = (1, 0);
        refused(t, "links");
        t = reading(Link(Origin.OUT, Kind.TASK, 1, 2, 1, 1, 0, NO_SLOT, 1, 1, 0));
        taken(t); // of three slots the last two
        t.links[0].first = 2;
        refused(t, "links");
    }

    function test_aLinkNamesSlotsOfItsReaderInstead() external {
        Terms memory t = reading(Link(Origin.OUT, Kind.TASK, 1, 2, 1, 0, 0, 1, 1, 1, 0));
        taken(t);
        t.links[0].otherwise = 2; // of three
        refused(t, "links");
        t = aTerms();
        t.outerLinks[1].otherwise = 6;
        taken(t);
        t.outerLinks[1].otherwise = 7; // of eight
        refused(t, "outerLinks");
        t.outerLinks[1].otherwise = NO_SLOT;
        taken(t);
    }
}
