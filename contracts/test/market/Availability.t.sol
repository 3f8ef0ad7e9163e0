// SPDX-License-Identifier: MIT
pragma solidity ^0.8.28;

import {IAvailability} from "../../src/interfaces/IAvailability.sol";
import {ITasks} from "../../src/interfaces/IMarket.sol";
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
        t.inner.root = Merkle.root(program);
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

    function demandAs(address who, Claim memory claim, uint32 end) private returns (uint256 id) {
        bytes32[] memory ends = segmentEnds(claim);
        bytes32[] memory proof = memberProof(ends, end);
        vm.prank(who);
        id = availability.demand(claim, end, ends[end], proof);
    }

    function mineSeed() private returns (bytes32 blockHash) {
        uint256 seedBlock = vm.getBlockNumber() + 1;
        blockHash = keccak256(abi.encode("demand's block", seedBlock));
        vm.roll(seedBlock + 1);
        vm.setBlockhash(seedBlock, blockHash);
    }

    function placeOf(bytes32 blockHash, uint256 id, uint256 i) private view returns (uint256, uint256) {
        (uint256 slot, uint64 draw) = availability.drawn(blockHash, id, i, SLOTS);
        return (slot, draw % leavesOf("end", slot).length);
    }

    function pieces(string memory state, bytes32 blockHash, uint256 id)
        private
        view
        returns (IAvailability.Chunk[] memory chunks)
    {
        chunks = new IAvailability.Chunk[](availability.CHUNKS());
        for (uint256 i; i < chunks.length; ++i) {
            (uint256 slot, uint256 leaf) = placeOf(blockHash, id, i);
            chunks[i] = pieceOf(state, slot, leaf);
        }
    }

    function demandedEnd() private returns (Claim memory claim, uint256 id, bytes32 blockHash) {
        claim = committed();
        id = demandAs(whistle, claim, u32(SEGMENTS));
        blockHash = mineSeed();
    }

    function refuseSupply(
        uint256 id,
        Claim memory claim,
        IAvailability.Chunk[] memory chunks,
        bytes memory refusal
    ) private {
        vm.expectRevert(refusal);
        availability.supply(id, claim, chunks);
    }

    function test_shownPiecesSaveTheClaimAndCostTheDemanderItsBond() external {
        uint256 before = free(whistle);
        uint256 earned = free(solvers[0]);
        uint256 burnt = vault.burned();
        (Claim memory claim, uint256 id, bytes32 blockHash) = demandedEnd();
        assertEq(before - free(whistle), 30 ether);
        assertEq(statusOf(claim).openGames, 1);
        availability.supply(id, claim, pieces("end", blockHash, id));
        assertEq(statusOf(claim).openGames, 0);
        assertPhase(claim, Phase.COMMITTED);
        assertEq(before - free(whistle), 30 ether, "the bond is gone");
        assertEq(free(solvers[0]) - earned, 15 ether, "half of it pays the claimant");
        assertEq(vault.burned() - burnt, 15 ether);
        refuseSupply(
            id,
            claim,
            pieces("end", blockHash, id),
            abi.encodeWithSelector(IAvailability.NoSuchDemand.selector, id)
        );
        assertSolvent();
    }

    function test_anInputStateIsShownToo() external {
        Claim memory claim = committed();
        uint256 id = demandAs(whistle, claim, 0);
        availability.supply(id, claim, pieces("genesis", mineSeed(), id));
        assertEq(statusOf(claim).openGames, 0);
    }

    function test_Attack33_aSolverThatHidesOneChunkIsConvictedAndItsVotersAreNot() external {
        Claim memory claim = committed();
        address[] memory voters = accept(claim);
        uint256 staked;
        for (uint256 i; i < voters.length; ++i) {
            staked += activeOf(voters[i], Role.VERIFIER);
        }
        uint256 id = demandAs(whistle, claim, u32(SEGMENTS));
        bytes32 blockHash = mineSeed();
        IAvailability.Chunk[] memory chunks = pieces("end", blockHash, id);
        chunks[2].data[7] ^= 0x01; // the fault: one byte of one chunk is not what was committed
        refuseSupply(id, claim, chunks, abi.encodeWithSelector(IAvailability.BadProof.selector, 2));
        vm.expectPartialRevert(IAvailability.NotDue.selector);
        availability.expire(id, claim);
        skip(61);
        chunks = pieces("end", blockHash, id);
        vm.expectPartialRevert(IAvailability.TooLate.selector);
        availability.supply(id, claim, chunks);
        uint256 before = free(whistle);
        availability.expire(id, claim);
        assertPhase(claim, Phase.CONVICTED);
        assertEq(activeOf(solvers[0], Role.SOLVER), 900 ether, "the solver pays");
        assertEq(free(whistle) - before, 30 ether + 50 ether, "bond and half of the slash");
        uint256 left;
        for (uint256 i; i < voters.length; ++i) {
            assertEq(lockedOf(voters[i], Role.VERIFIER), 0);
            left += activeOf(voters[i], Role.VERIFIER);
        }
        assertEq(left, staked, "nobody was asked to check that the states can be had");
        assertSolvent();
    }

    function test_everyPieceMustBeTheDrawnOne() external {
        (Claim memory claim, uint256 id, bytes32 blockHash) = demandedEnd();
        bytes memory wrong = abi.encodeWithSelector(IAvailability.BadProof.selector, 1);
        IAvailability.Chunk[] memory chunks = pieces("end", blockHash, id);
        (uint256 slot, uint256 leaf) = placeOf(blockHash, id, 1);
        chunks[1] = pieceOf("end", (slot + 1) % SLOTS, 0);
        refuseSupply(id, claim, chunks, wrong); // another slot
        chunks[1] = pieceOf("genesis", slot, leaf);
        refuseSupply(id, claim, chunks, wrong); // another state
        chunks[1] = pieceOf("end", slot, leaf);
        chunks[1].data = abi.encodePacked(chunks[1].data, uint8(0));
        refuseSupply(id, claim, chunks, wrong); // a byte too many
        chunks[1] = pieceOf("end", slot, leaf);
        chunks[1].leafProof = new bytes32[](chunks[1].leafProof.length + 1);
        refuseSupply(id, claim, chunks, wrong); // a sibling too many
        chunks[1] = pieceOf("end", slot, leaf);
        chunks[1].slotProof[0] = bytes32(0);
        refuseSupply(id, claim, chunks, wrong);
        chunks[1] = pieceOf("end", slot, leaf);
        chunks[1].node = nodeOf((slot + 1) % SLOTS);
        refuseSupply(id, claim, chunks, wrong); // the encoding of another node
        IAvailability.Chunk[] memory few = new IAvailability.Chunk[](3);
        refuseSupply(id, claim, few, abi.encodeWithSelector(IAvailability.WrongCount.selector, 4, 3));
        availability.supply(id, claim, pieces("end", blockHash, id));
    }

    function test_everySlotAndLeafIsDrawnSometimes() external view {
        uint256[5] memory hits;
        for (uint256 i; i < 200; ++i) {
            (uint256 slot, uint256 leaf) = placeOf(keccak256(abi.encode(i)), 1, 0);
            ++hits[slot == 0 ? leaf : slot + 2];
        }
        for (uint256 i; i < 3; ++i) {
            assertGt(hits[i], 8, "leaves of slot 0: 22 expected");
        }
        assertGt(hits[3], 35, "slots of one leaf: 67 expected");
        assertGt(hits[4], 35);
    }

    function test_nothingIsShownBeforeTheDrawOrAfterItsBlockIsForgotten() external {
        Claim memory claim = committed();
        uint256 id = demandAs(whistle, claim, 1);
        IAvailability.Chunk[] memory chunks = pieces("end", 0, id);
        uint256 seedBlock = vm.getBlockNumber() + 1;
        vm.roll(seedBlock);
        refuseSupply(id, claim, chunks, abi.encodeWithSelector(IAvailability.NotDrawnYet.selector, seedBlock));
        vm.roll(seedBlock + 9000);
        refuseSupply(id, claim, chunks, abi.encodeWithSelector(IAvailability.SeedGone.selector, seedBlock));
    }

    function test_onlyStatesOfTheClaimAreDemanded() external {
        Claim memory claim = committed();
        bytes32[] memory ends = segmentEnds(claim);
        bytes32[] memory proof = memberProof(ends, 1);
        vm.startPrank(whistle);
        vm.expectRevert(IAvailability.WrongState.selector);
        availability.demand(claim, 2, ends[1], proof);
        vm.expectRevert(abi.encodeWithSelector(IAvailability.NoSuchSegment.selector, 5));
        availability.demand(claim, 5, ends[1], proof);
        claim.price += 1;
        vm.expectPartialRevert(ITasks.WrongClaim.selector);
        availability.demand(claim, 1, ends[1], proof);
        vm.stopPrank();
    }

    function test_anOpenDemandHoldsSettlementUpAndAShutWindowTakesNone() external {
        Claim memory claim = committed();
        accept(claim);
        skip(500);
        uint256 id = demandAs(whistle, claim, u32(SEGMENTS));
        bytes32 blockHash = mineSeed();
        skip(1);
        vm.expectRevert(abi.encodeWithSelector(ITasks.GamesOpen.selector, 1));
        tasks.settle(claim);
        availability.supply(id, claim, pieces("end", blockHash, id));
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
        availability.demand(late, 0, ends[0], proof);
    }

    function test_aDemandOnAClaimThatFellOtherwiseGivesTheBondBack() external {
        (Claim memory claim, uint256 id, bytes32 blockHash) = demandedEnd();
        uint256 other = demandAs(stranger_(), claim, 1);
        convictByGame(claim);
        uint256 before = free(whistle);
        availability.supply(id, claim, pieces("end", blockHash, id));
        assertEq(free(whistle) - before, 30 ether, "shown for nothing");
        skip(61);
        before = free(stranger);
        uint256 stake = activeOf(solvers[0], Role.SOLVER);
        availability.expire(other, claim);
        assertEq(free(stranger) - before, 30 ether);
        assertEq(activeOf(solvers[0], Role.SOLVER), stake, "nobody is slashed twice");
        assertSolvent();
    }

    function stranger_() private returns (address) {
        fund(stranger, 100 ether);
        return stranger;
    }

    function test_onlyItsOwnClaimAnswersADemand() external {
        (Claim memory claim, uint256 id, bytes32 blockHash) = demandedEnd();
        IAvailability.Chunk[] memory chunks = pieces("end", blockHash, id);
        Claim memory other = submit(solvers[1], draft2());
        vm.expectPartialRevert(ITasks.WrongClaim.selector);
        availability.supply(id, other, chunks);
        skip(61);
        vm.expectPartialRevert(ITasks.WrongClaim.selector);
        availability.expire(id, other);
        availability.expire(id, claim);
    }

    function draft2() private returns (Claim memory claim) {
        claim = draft(Kind.TASK, 0, 1);
        claim.inputRoot = Merkle.root(rootsOf("genesis"));
    }
}
