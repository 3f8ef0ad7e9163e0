// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {IAvailability} from "../../src/interfaces/IAvailability.sol";
import {IClock} from "../../src/interfaces/IClock.sol";
import {ITasks} from "../../src/interfaces/ITasks.sol";
import {Claim, Kind, Phase, Role, Terms} from "../../src/interfaces/Types.sol";
import {Merkle} from "../../src/libraries/Merkle.sol";
import {Market} from "./Market.sol";

/// @notice Demands for pieces of a state (docs/protocol.md 7.3), on a program whose states are known: slot 0 has three leaves,
/// the last one short; slots 1 and 2 have one each.
contract AvailabilityTest is Market {
    uint256 private constant LEAF = 2048;
    uint256 private constant NODES = 20;

    uint32[SLOTS] private elements = [uint32(1100), 512, 1];
    bytes32[] private program; // leaves of the program's tree

    function setUp() external {
        setUpMarket();
        program = new bytes32[](1 + NODES + SLOTS);
        for (uint256 i; i < program.length; ++i) {
            program[i] = keccak256(abi.encode("encoding", i));
        }
        for (uint256 slot; slot < SLOTS; ++slot) {
            program[1 + slot] = Merkle.leaf(nodeOf(slot));
        }
        Terms memory t = aTerms();
        t.loops[0].root = Merkle.root(program);
        t.genesisRoot = Merkle.root(rootsOf("genesis"));
        postJob(t);
        holdShards();
    }

    // A state and its pieces

    /// @dev The encoding of `state(slot)`: f32, one dimension.
    function nodeOf(uint256 slot) private view returns (bytes memory) {
        return
            abi.encodePacked(uint8(1), uint8(0), uint8(1), uint8(0), uint8(1), elements[slot], uint64(slot));
    }

    function sizeOf(uint256 slot) private view returns (uint256) {
        return 4 * elements[slot];
    }

    function leafOf(string memory state, uint256 slot, uint256 leaf)
        private
        view
        returns (bytes memory data)
    {
        uint256 left = sizeOf(slot) - leaf * LEAF;
        data = new bytes(left < LEAF ? left : LEAF);
        bytes32 word = keccak256(abi.encode(state, slot, leaf));
        for (uint256 i; i < data.length; ++i) {
            data[i] = word[i % 32];
        }
    }

    function leavesOf(string memory state, uint256 slot) private view returns (bytes32[] memory digests) {
        digests = new bytes32[]((sizeOf(slot) + LEAF - 1) / LEAF);
        for (uint256 i; i < digests.length; ++i) {
            digests[i] = Merkle.leaf(leafOf(state, slot, i));
        }
    }

    function rootsOf(string memory state) private view returns (bytes32[] memory roots) {
        roots = new bytes32[](SLOTS);
        for (uint256 slot; slot < SLOTS; ++slot) {
            roots[slot] = Merkle.root(leavesOf(state, slot));
        }
    }

    function pieceOf(string memory state, uint256 slot, uint256 leaf)
        private
        view
        returns (IAvailability.Chunk memory chunk)
    {
        chunk.node = nodeOf(slot);
        chunk.nodeProof = memberProof(program, 1 + slot);
        chunk.data = leafOf(state, slot, leaf);
        chunk.leafProof = memberProof(leavesOf(state, slot), leaf);
        chunk.slotProof = memberProof(rootsOf(state), slot);
    }

    // A claim and a demand

    function committed() private returns (Claim memory) {
        Claim memory claim = draft(Kind.TASK, 0, 0);
        claim.inputRoot = Merkle.root(rootsOf("genesis"));
        claim.outputRoot = Merkle.root(rootsOf("end"));
        return submit(solvers[0], claim);
    }

    /// @dev Both leaves at the edge of slot 0, and one leaf of each other slot.
    function somePlaces() private pure returns (IAvailability.StateLeaf[] memory places) {
        places = new IAvailability.StateLeaf[](4);
        (places[0].leaf, places[1].leaf) = (0, 2);
        (places[2].slot, places[3].slot) = (1, 2);
    }

    function onePlace(uint32 slot, uint32 leaf)
        private
        pure
        returns (IAvailability.StateLeaf[] memory places)
    {
        places = new IAvailability.StateLeaf[](1);
        places[0] = IAvailability.StateLeaf(slot, leaf);
    }

    function demandAs(address who, Claim memory claim, uint32 end, IAvailability.StateLeaf[] memory places)
        private
        returns (uint256 id, IAvailability.Asked memory asked)
    {
        bytes32[] memory ends = segmentEnds(claim);
        bytes32[] memory proof = memberProof(ends, end);
        vm.prank(who);
        id = availability.demand(claim, end, ends[end], proof, places);
        uint256 deadline = block.timestamp + 60;
        asked = IAvailability.Asked(idOf(claim), ends[end], who, uint48(deadline), places);
    }

    function pieces(string memory state, IAvailability.Asked memory asked)
        private
        view
        returns (IAvailability.Chunk[] memory chunks)
    {
        chunks = new IAvailability.Chunk[](asked.places.length);
        for (uint256 i; i < chunks.length; ++i) {
            (uint256 slot, uint256 leaf) = (asked.places[i].slot, asked.places[i].leaf);
            chunks[i] = pieceOf(state, slot, leaf % leavesOf(state, slot).length);
        }
    }

    function demandedEnd()
        private
        returns (Claim memory claim, uint256 id, IAvailability.Asked memory asked)
    {
        claim = committed();
        (id, asked) = demandAs(whistle, claim, u32(SEGMENTS), somePlaces());
    }

    function refuseSupply(
        uint256 id,
        IAvailability.Asked memory asked,
        Claim memory claim,
        IAvailability.Chunk[] memory chunks,
        bytes memory refusal
    ) private {
        vm.expectRevert(refusal);
        availability.supply(id, asked, claim, chunks);
    }

    function test_shownPiecesSaveTheClaimAndCostTheDemanderItsBond() external {
        uint256 before = free(whistle);
        uint256 earned = free(solvers[0]);
        uint256 burnt = vault.burnt();
        (Claim memory claim, uint256 id, IAvailability.Asked memory asked) = demandedEnd();
        assertEq(before - free(whistle), 30 ether);
        assertEq(statusOf(claim).openGames, 1);
        availability.supply(id, asked, claim, pieces("end", asked));
        assertEq(statusOf(claim).openGames, 0);
        assertPhase(claim, Phase.COMMITTED);
        assertEq(before - free(whistle), 30 ether, "the bond is gone");
        assertEq(free(solvers[0]) - earned, 15 ether, "half of it pays the claimant");
        assertEq(vault.burnt() - burnt, 15 ether);
        refuseSupply(
            id,
            asked,
            claim,
            pieces("end", asked),
            abi.encodeWithSelector(IAvailability.NoSuchDemand.selector, id)
        );
        assertSolvent();
    }

    /// @notice W4: a deadline that is over has not passed before the market's clock says so (Clock.t.sol, Halt.t.sol).
    function test_W4_aHaltConvictsNobodyForWhatWasAskedOfIt() external {
        (Claim memory claim, uint256 id, IAvailability.Asked memory asked) = demandedEnd();
        skip(600);
        vm.mockCall(address(clock), abi.encodeCall(IClock.time, ()), abi.encode(asked.deadline));
        vm.expectRevert(abi.encodeWithSelector(IAvailability.NotDue.selector, asked.deadline + 1));
        availability.expire(id, asked, claim);
        availability.supply(id, asked, claim, pieces("end", asked));
        assertPhase(claim, Phase.COMMITTED);
    }

    function test_anInputStateIsShownToo() external {
        Claim memory claim = committed();
        (uint256 id, IAvailability.Asked memory asked) = demandAs(whistle, claim, 0, somePlaces());
        availability.supply(id, asked, claim, pieces("genesis", asked));
        assertEq(statusOf(claim).openGames, 0);
    }

    function test_Attack33_aSolverThatHidesOneChunkIsConvictedAndItsVotersAreNot() external {
        Claim memory claim = committed();
        address[] memory voters = accept(claim);
        uint256 staked;
        for (uint256 i; i < voters.length; ++i) {
            staked += activeOf(voters[i], Role.VERIFIER);
        }
        (uint256 id, IAvailability.Asked memory asked) = demandAs(whistle, claim, u32(SEGMENTS), somePlaces());
        IAvailability.Chunk[] memory chunks = pieces("end", asked);
        chunks[2].data[7] ^= 0x01; // the fault: one byte of one chunk is not what was committed
        bytes memory wrong = abi.encodeWithSelector(IAvailability.BadProof.selector, 2);
        refuseSupply(id, asked, claim, chunks, wrong);
        vm.expectPartialRevert(IAvailability.NotDue.selector);
        availability.expire(id, asked, claim);
        skip(61);
        chunks = pieces("end", asked);
        vm.expectPartialRevert(IAvailability.TooLate.selector);
        availability.supply(id, asked, claim, chunks);
        uint256 before = free(whistle);
        availability.expire(id, asked, claim);
        assertPhase(claim, Phase.CONVICTED);
        assertEq(activeOf(solvers[0], Role.SOLVER), 900 ether, "the solver pays");
        assertEq(
            free(whistle) - before, 30 ether + 47 ether, "bond and half of the slash, less the votes' fees"
        );
        uint256 left;
        for (uint256 i; i < voters.length; ++i) {
            left += activeOf(voters[i], Role.VERIFIER);
        }
        assertEq(left, staked, "nobody was asked to check that the states can be had");
        assertSolvent();
    }

    function test_everyPieceMustBeTheNamedOne() external {
        (Claim memory claim, uint256 id, IAvailability.Asked memory asked) = demandedEnd();
        bytes memory wrong = abi.encodeWithSelector(IAvailability.BadProof.selector, 1);
        IAvailability.Chunk[] memory chunks = pieces("end", asked);
        (uint256 slot, uint256 leaf) = (asked.places[1].slot, asked.places[1].leaf);
        chunks[1] = pieceOf("end", slot, leaf - 1);
        refuseSupply(id, asked, claim, chunks, wrong); // a leaf that nobody named
        chunks[1] = pieceOf("end", (slot + 1) % SLOTS, 0);
        refuseSupply(id, asked, claim, chunks, wrong); // another slot
        chunks[1] = pieceOf("genesis", slot, leaf);
        refuseSupply(id, asked, claim, chunks, wrong); // another state
        chunks[1] = pieceOf("end", slot, leaf);
        chunks[1].data = abi.encodePacked(chunks[1].data, uint8(0));
        refuseSupply(id, asked, claim, chunks, wrong); // a byte too many
        chunks[1] = pieceOf("end", slot, leaf);
        chunks[1].leafProof = new bytes32[](chunks[1].leafProof.length + 1);
        refuseSupply(id, asked, claim, chunks, wrong); // a sibling too many
        chunks[1] = pieceOf("end", slot, leaf);
        chunks[1].slotProof[0] = bytes32(0);
        refuseSupply(id, asked, claim, chunks, wrong);
        chunks[1] = pieceOf("end", slot, leaf);
        chunks[1].node = nodeOf((slot + 1) % SLOTS);
        refuseSupply(id, asked, claim, chunks, wrong); // the encoding of another node
        IAvailability.Chunk[] memory few = new IAvailability.Chunk[](3);
        refuseSupply(id, asked, claim, few, abi.encodeWithSelector(IAvailability.WrongCount.selector, 4, 3));
        availability.supply(id, asked, claim, pieces("end", asked));
    }

    /// @notice A leaf has as many bytes as its place in the slot says: who commits to another can show it to nobody.
    function test_aLeafOfAnotherLengthIsNoLeafOfTheSlot() external {
        for (uint32 shard; shard < 2; ++shard) {
            IAvailability.Chunk memory chunk = pieceOf("end", 0, 1);
            chunk.data = new bytes(shard == 0 ? LEAF - 1 : LEAF + 1);
            (bytes32[] memory leaves, bytes32[] memory roots) = (leavesOf("end", 0), rootsOf("end"));
            leaves[1] = Merkle.leaf(chunk.data); // the fault: the state has it so
            roots[0] = Merkle.root(leaves);
            chunk.slotProof = memberProof(roots, 0);
            Claim memory claim = draft(Kind.TASK, 0, shard);
            claim.inputRoot = Merkle.root(rootsOf("genesis"));
            claim.outputRoot = Merkle.root(roots);
            claim = submit(solvers[shard], claim);
            (uint256 id, IAvailability.Asked memory asked) =
                demandAs(whistle, claim, u32(SEGMENTS), onePlace(0, 1));
            IAvailability.Chunk[] memory chunks = new IAvailability.Chunk[](1);
            chunks[0] = chunk;
            bytes memory wrong = abi.encodeWithSelector(IAvailability.BadProof.selector, 0);
            refuseSupply(id, asked, claim, chunks, wrong);
        }
    }

    /// @dev Whoever hides a leaf has everything else to show, and is asked for that one.
    function test_Attack33_aHiddenLeafThatIsNamedIsNeverSurvived(uint32 where, uint32 shown) external {
        Claim memory claim = committed();
        uint32[5] memory slots = [uint32(0), 0, 0, 1, 2];
        uint32[5] memory leaves = [uint32(0), 1, 2, 0, 0];
        (where, shown) = (where % 5, shown % 5);
        vm.assume(where != shown);
        (uint256 id, IAvailability.Asked memory asked) =
            demandAs(whistle, claim, u32(SEGMENTS), onePlace(slots[where], leaves[where]));
        IAvailability.Chunk[] memory chunks = new IAvailability.Chunk[](1);
        chunks[0] = pieceOf("end", slots[shown], leaves[shown]); // the fault: what it still has, in place of what it hides
        bytes memory wrong = abi.encodeWithSelector(IAvailability.BadProof.selector, 0);
        refuseSupply(id, asked, claim, chunks, wrong);
        asked.places[0] = IAvailability.StateLeaf(slots[shown], leaves[shown]); // or the demand for it, bent
        vm.expectPartialRevert(IAvailability.WrongDemand.selector);
        availability.supply(id, asked, claim, chunks);
        asked.places[0] = IAvailability.StateLeaf(slots[where], leaves[where]);
        skip(61);
        availability.expire(id, asked, claim);
        assertPhase(claim, Phase.CONVICTED);
    }

    function test_oneLeafIsEnoughAndIsShownInTheDemandsBlock() external {
        Claim memory claim = committed();
        uint256 here = vm.getBlockNumber();
        (uint256 id, IAvailability.Asked memory asked) = demandAs(whistle, claim, 1, onePlace(0, 1));
        refuseSupply(
            id, asked, claim, pieces("end", asked), abi.encodeWithSelector(IAvailability.BadProof.selector, 0)
        ); // another state
        (id, asked) = demandAs(whistle, claim, u32(SEGMENTS), onePlace(0, 1));
        availability.supply(id, asked, claim, pieces("end", asked));
        assertEq(vm.getBlockNumber(), here);
    }

    function test_aLeafBeyondTheSlotsEndIsTakenModuloItsLeavesSoThatNoDemandIsUnanswerable() external {
        Claim memory claim = committed();
        IAvailability.StateLeaf[] memory places = new IAvailability.StateLeaf[](3);
        places[0] = IAvailability.StateLeaf(0, 5); // of three: the last
        places[1] = IAvailability.StateLeaf(2, type(uint32).max); // of one
        places[2] = places[0]; // the same again
        (uint256 id, IAvailability.Asked memory asked) = demandAs(whistle, claim, u32(SEGMENTS), places);
        IAvailability.Chunk[] memory chunks = pieces("end", asked);
        assertEq(chunks[0].data, leafOf("end", 0, 2));
        availability.supply(id, asked, claim, chunks);
    }

    function test_placesOutOfTheProgramTooManyOrNoneAreRefusedAtOnce() external {
        Claim memory claim = committed();
        bytes32[] memory ends = segmentEnds(claim);
        bytes32[] memory proof = memberProof(ends, 1);
        vm.startPrank(whistle);
        IAvailability.StateLeaf[] memory places = somePlaces();
        places[3].slot = SLOTS;
        vm.expectRevert(abi.encodeWithSelector(IAvailability.NoSuchSlot.selector, SLOTS));
        availability.demand(claim, 1, ends[1], proof, places);
        for (uint256 i; i <= 5; i += 5) {
            places = new IAvailability.StateLeaf[](i);
            vm.expectRevert(abi.encodeWithSelector(IAvailability.WrongPlaces.selector, 4, i));
            availability.demand(claim, 1, ends[1], proof, places);
        }
        vm.stopPrank();
    }

    function test_anOuterClaimsStateHasItsOwnSlotsAndSegments() external {
        for (uint32 k; k < SHARDS; ++k) {
            Claim memory task = draft(Kind.TASK, 0, k);
            (task.inputRoot, task.outputRoot) = (Merkle.root(rootsOf("genesis")), Merkle.root(rootsOf("end")));
            accept(submit(solvers[k], task));
        }
        Claim memory outer = commitOuter(0);
        bytes32[] memory ends = segmentEnds(outer);
        bytes32[] memory proof = memberProof(ends, 1);
        uint32 slots = (2 + SHARDS) * PARAMS;
        vm.startPrank(whistle);
        availability.demand(outer, 1, ends[1], proof, onePlace(slots - 1, 0));
        vm.expectRevert(abi.encodeWithSelector(IAvailability.NoSuchSlot.selector, slots));
        availability.demand(outer, 1, ends[1], proof, onePlace(slots, 0));
        vm.expectRevert(abi.encodeWithSelector(IAvailability.NoSuchSegment.selector, 2));
        availability.demand(outer, 2, ends[1], proof, onePlace(0, 0));
        vm.stopPrank();
    }

    function test_onlyWhatWasAskedIsAnswered() external {
        (Claim memory claim, uint256 id, IAvailability.Asked memory asked) = demandedEnd();
        IAvailability.Chunk[] memory chunks = pieces("end", asked);
        bytes memory wrong =
            abi.encodeWithSelector(IAvailability.WrongDemand.selector, keccak256(abi.encode(asked)));
        asked.demander = solvers[0];
        refuseSupply(id, asked, claim, chunks, wrong);
        asked.demander = whistle;
        asked.deadline -= 1;
        skip(60);
        vm.expectRevert(wrong);
        availability.expire(id, asked, claim);
        asked.deadline += 1;
        asked.claimId = 0;
        refuseSupply(id, asked, claim, chunks, wrong);
        asked.claimId = idOf(claim);
        claim.price += 1;
        vm.expectPartialRevert(ITasks.WrongClaim.selector);
        availability.supply(id, asked, claim, chunks);
        claim.price -= 1;
        vm.expectRevert(abi.encodeWithSelector(IAvailability.NoSuchDemand.selector, id + 1));
        availability.supply(id + 1, asked, claim, chunks);
        availability.supply(id, asked, claim, chunks);
    }

    function test_theEventTellsAllThatIsAsked() external {
        Claim memory claim = committed();
        bytes32[] memory ends = segmentEnds(claim);
        uint48 deadline = uint48(block.timestamp + 60);
        vm.expectEmit(address(availability));
        emit IAvailability.Demanded(1, idOf(claim), whistle, 1, ends[1], deadline, somePlaces());
        demandAs(whistle, claim, 1, somePlaces());
    }

    function test_theEventsTellHowADemandEnds() external {
        (Claim memory claim, uint256 id, IAvailability.Asked memory asked) = demandedEnd();
        (uint256 second, IAvailability.Asked memory others) = demandAs(whistle, claim, 1, somePlaces());
        (uint256 third, IAvailability.Asked memory late) = demandAs(stranger_(), claim, 1, somePlaces());
        IAvailability.Chunk[] memory chunks = pieces("end", asked);
        uint256 snapshot = vm.snapshotState();
        vm.expectEmit(address(availability));
        emit IAvailability.Supplied(id, idOf(claim), 15 ether, 15 ether);
        availability.supply(id, asked, claim, chunks);
        vm.revertToState(snapshot);
        skip(60);
        convictByGame(claim);
        vm.expectEmit(address(availability));
        emit IAvailability.Supplied(id, idOf(claim), 0, 30 ether);
        availability.supply(id, asked, claim, chunks);
        vm.revertToState(snapshot);
        skip(61);
        vm.expectEmit(address(availability));
        emit IAvailability.Withheld(second, idOf(claim), true);
        availability.expire(second, others, claim);
        vm.expectEmit(address(availability));
        emit IAvailability.Withheld(third, idOf(claim), false);
        availability.expire(third, late, claim);
    }

    function test_onlyStatesOfTheClaimAreDemanded() external {
        Claim memory claim = committed();
        bytes32[] memory ends = segmentEnds(claim);
        bytes32[] memory proof = memberProof(ends, 1);
        vm.startPrank(whistle);
        vm.expectRevert(IAvailability.WrongState.selector);
        availability.demand(claim, 2, ends[1], proof, somePlaces());
        vm.expectRevert(abi.encodeWithSelector(IAvailability.NoSuchSegment.selector, 5));
        availability.demand(claim, 5, ends[1], proof, somePlaces());
        claim.price += 1;
        vm.expectPartialRevert(ITasks.WrongClaim.selector);
        availability.demand(claim, 1, ends[1], proof, somePlaces());
        vm.stopPrank();
    }

    function test_anOpenDemandHoldsSettlementUpAndAShutWindowTakesNone() external {
        Claim memory claim = committed();
        accept(claim);
        skip(500);
        (uint256 id, IAvailability.Asked memory asked) = demandAs(whistle, claim, u32(SEGMENTS), somePlaces());
        skip(1);
        vm.expectRevert(abi.encodeWithSelector(ITasks.GamesOpen.selector, 1));
        tasks.settle(claim);
        availability.supply(id, asked, claim, pieces("end", asked));
        tasks.settle(claim);
        assertPhase(claim, Phase.SETTLED);
        Claim memory late = draft(Kind.TASK, 0, 1);
        late.inputRoot = Merkle.root(rootsOf("genesis"));
        late = submit(solvers[1], late);
        accept(late);
        skip(501);
        bytes32[] memory ends = segmentEnds(late);
        bytes32[] memory proof = memberProof(ends, 0);
        vm.expectPartialRevert(ITasks.WindowClosed.selector);
        vm.prank(whistle);
        availability.demand(late, 0, ends[0], proof, somePlaces());
    }

    function test_aDemandOnAClaimThatFellOtherwiseGivesTheBondBack() external {
        (Claim memory claim, uint256 id, IAvailability.Asked memory asked) = demandedEnd();
        (uint256 other, IAvailability.Asked memory others) = demandAs(stranger_(), claim, 1, somePlaces());
        convictByGame(claim);
        uint256 before = free(whistle);
        availability.supply(id, asked, claim, pieces("end", asked));
        assertEq(free(whistle) - before, 30 ether, "shown for nothing");
        skip(61);
        before = free(stranger);
        uint256 stake = activeOf(solvers[0], Role.SOLVER);
        availability.expire(other, others, claim);
        assertEq(free(stranger) - before, 30 ether);
        assertEq(activeOf(solvers[0], Role.SOLVER), stake, "nobody is slashed twice");
        assertSolvent();
    }

    function stranger_() private returns (address) {
        fund(stranger, 100 ether);
        return stranger;
    }

    function test_onlyItsOwnClaimAnswersADemand() external {
        (Claim memory claim, uint256 id, IAvailability.Asked memory asked) = demandedEnd();
        IAvailability.Chunk[] memory chunks = pieces("end", asked);
        Claim memory other = submit(solvers[1], draft2());
        vm.expectPartialRevert(ITasks.WrongClaim.selector);
        availability.supply(id, asked, other, chunks);
        skip(61);
        vm.expectPartialRevert(ITasks.WrongClaim.selector);
        availability.expire(id, asked, other);
        availability.expire(id, asked, claim);
    }

    function draft2() private returns (Claim memory claim) {
        claim = draft(Kind.TASK, 0, 1);
        claim.inputRoot = Merkle.root(rootsOf("genesis"));
    }

    /// @dev Whole transactions, in a market that has seen demands before: of four leaves, and of one.
    /// forge-config: default.isolate = true
    function test_gasOfDemands() external {
        fund(solvers[0], 1 ether);
        Claim memory claim = committed();
        (uint256 id, IAvailability.Asked memory asked) = demandAs(whistle, claim, u32(SEGMENTS), somePlaces());
        availability.supply(id, asked, claim, pieces("end", asked));
        IAvailability.StateLeaf[] memory places = new IAvailability.StateLeaf[](4);
        places[1].leaf = 1;
        places[2].leaf = 1;
        places[3].leaf = 1;
        (id, asked) = demandAs(whistle, claim, u32(SEGMENTS), places);
        vm.snapshotGasLastCall("availability", "demand_4");
        availability.supply(id, asked, claim, pieces("end", asked));
        vm.snapshotGasLastCall("availability", "supply_4");
        (id, asked) = demandAs(whistle, claim, u32(SEGMENTS), onePlace(0, 1));
        vm.snapshotGasLastCall("availability", "demand_1");
        availability.supply(id, asked, claim, pieces("end", asked));
        vm.snapshotGasLastCall("availability", "supply_1");
        (id, asked) = demandAs(whistle, claim, u32(SEGMENTS), places);
        skip(61);
        availability.expire(id, asked, claim);
        vm.snapshotGasLastCall("availability", "expire");
    }
}
