// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {IAvailability} from "../../src/interfaces/IAvailability.sol";
import {IChallenges} from "../../src/interfaces/IChallenges.sol";
import {ITasks} from "../../src/interfaces/ITasks.sol";
import {Claim, Kind, Phase, Role, Terms} from "../../src/interfaces/Types.sol";
import {Merkle} from "../../src/libraries/Merkle.sol";
import {Sampling} from "../../src/libraries/Sampling.sol";
import {Market} from "./Market.sol";

/// @notice Valid votes whose own traces end in another state than the claim has (docs/protocol.md 5.5). The program has a node
/// for each slot, and a fourth whose output is the next value of slot 0, of three leaves.
contract VoteProofsTest is Market {
    uint256 private constant NODES = 4;
    uint32 private constant REF = 3;
    uint32 private constant ELEMENTS = 1100; // of slot 0: 4,400 bytes
    uint256 private constant LEAVES = 3;

    bytes32[] private program;
    Claim private claim;
    bytes32[] private ends;
    address[] private drawn;

    function setUp() external {
        setUpMarket();
        program = new bytes32[](1 + NODES + SLOTS);
        program[0] = keccak256("header");
        for (uint256 i; i < SLOTS; ++i) {
            program[1 + i] = Merkle.leaf(_node(i));
        }
        program[1 + REF] = keccak256("node");
        program[1 + NODES] = Merkle.leaf(abi.encodePacked(REF));
        program[2 + NODES] = Merkle.leaf(abi.encodePacked(uint32(1)));
        program[3 + NODES] = Merkle.leaf(abi.encodePacked(uint32(2)));
        Terms memory t = aTerms();
        (t.loops[0].root, t.loops[0].nodes) = (Merkle.root(copied(program)), uint32(NODES));
        postJob(t);
        holdShards();
        Claim memory given = draft(Kind.TASK, 0, 0);
        ends = segmentEnds(given);
        for (uint256 i = 1; i < ends.length; ++i) {
            ends[i] = Merkle.root(_slotRoots(i));
        }
        given.outputRoot = ends[SEGMENTS];
        given.segmentsRoot = Merkle.root(copied(ends));
        (given.claimant, given.price) = (solvers[0], 10 ether);
        given.committedAt = u64(vm.getBlockTimestamp());
        vm.prank(solvers[0]);
        tasks.commit(given, ends);
        claim = given;
        drawn = seedFor(given);
    }

    // ---- states and traces

    function _node(uint256 slot) private pure returns (bytes memory) {
        uint32 n = slot == 0 ? ELEMENTS : 1;
        return abi.encodePacked(uint8(1), uint8(0), uint8(1), uint8(0), uint8(1), n, u64(slot));
    }

    /// @dev Of slot 0 at the end of a segment.
    function _data(uint256 end, uint256 leaf, uint256 wrongLeaf) private pure returns (bytes memory data) {
        data = new bytes(leaf == 2 ? 304 : 2048);
        data[7] = bytes1(uint8(end));
        if (leaf == wrongLeaf) data[9] ^= 0x01;
    }

    /// @dev Of slot 1, whose next value is node 1.
    function _small(uint256 end) private pure returns (bytes memory) {
        return abi.encodePacked(u32(end));
    }

    function _digests(bytes32 key, uint256 end, uint256 wrongLeaf)
        private
        view
        returns (bytes32[] memory digests)
    {
        digests = new bytes32[](LEAVES);
        for (uint256 i; i < LEAVES; ++i) {
            digests[i] = Merkle.leafUnder(key, _data(end, i, wrongLeaf));
        }
    }

    function _slotRoots(uint256 end) private view returns (bytes32[] memory roots) {
        roots = stateSlots("other slots", SLOTS);
        roots[1] = Merkle.leaf(_small(end));
        roots[0] = Merkle.root(_digests(0, end, LEAVES));
    }

    /// @dev A verifier's trace of the last step before that end; it says otherwise than the claim in `wrongLeaf` of slot 0.
    function _trace(address verifier, uint256 end, uint256 wrongLeaf)
        private
        view
        returns (bytes32[] memory roots)
    {
        roots = stateSlots("trace", NODES);
        bytes32 key = Sampling.key(verifier, statusOf(claim).seed);
        roots[REF] = Merkle.root(_digests(key, end, wrongLeaf));
        roots[1] = Merkle.leafUnder(key, _small(end));
    }

    function _endOf(address verifier, uint256 sample) private view returns (uint256) {
        return sampleOf(statusOf(claim).seed, verifier, sample, SEGMENTS) + 1;
    }

    function _traces(address verifier, uint256 wrongLeaf) private view returns (bytes32[] memory traces) {
        traces = new bytes32[](2);
        for (uint256 i; i < 2; ++i) {
            traces[i] = Merkle.root(_trace(verifier, _endOf(verifier, i), wrongLeaf));
        }
    }

    function _vote(address verifier, uint256 wrongLeaf) private {
        bytes32[] memory traces = _traces(verifier, wrongLeaf);
        bytes32 seed_ = statusOf(claim).seed;
        vm.prank(verifier);
        tasks.vote(idOf(claim), seed_, true, traces);
    }

    // ---- proofs

    struct Proof {
        IAvailability.StateLeaf place;
        IAvailability.Chunk committed;
        IChallenges.VoteProof said;
    }

    /// @dev Of leaf `leaf` of slot 0, in the sample `sample` of the verifier's vote.
    function _proof(address verifier, uint256 sample, uint32 leaf, uint256 wrongLeaf)
        private
        view
        returns (Proof memory p)
    {
        uint256 end = _endOf(verifier, sample);
        p.place.leaf = leaf;
        p.committed.node = _node(0);
        p.committed.nodeProof = memberProof(program, 1);
        p.committed.data = _data(end, leaf, LEAVES);
        p.committed.leafProof = memberProof(_digests(0, end, LEAVES), leaf);
        p.committed.slotProof = memberProof(_slotRoots(end), 0);
        p.said.stateRoot = ends[end];
        p.said.stateProof = memberProof(ends, end);
        p.said.ref = REF;
        p.said.refProof = memberProof(program, 1 + NODES);
        bytes32[] memory traces = _traces(verifier, wrongLeaf);
        p.said.traceRoot = traces[sample];
        p.said.traceProof = memberProof(traces, sample);
        bytes32 key = Sampling.key(verifier, statusOf(claim).seed);
        p.said.data = _data(end, leaf, wrongLeaf);
        p.said.leafProof = memberProof(_digests(key, end, wrongLeaf), leaf);
        p.said.nodeProof = memberProof(_trace(verifier, end, wrongLeaf), REF);
    }

    function _announce(address who, address verifier, uint32 sample, Proof memory p)
        private
        returns (bytes32)
    {
        bytes32 root = keccak256(abi.encode(p.place, keccak256(p.said.data)));
        return announceRoot(who, idOf(claim), sample, verifier, root);
    }

    function _prove(address verifier, uint32 sample, Proof memory p, bytes memory refusal) private {
        bytes32 salt = _announce(whistle, verifier, sample, p);
        if (refusal.length > 0) vm.expectRevert(refusal);
        vm.prank(whistle);
        challenges.proveVote(claim, verifier, sample, p.place, p.committed, p.said, salt);
    }

    function test_aVoteForAClaimThatItsOwnTraceRefutesFallsInOneMove() external {
        _vote(drawn[0], 1);
        (uint256 rich, uint256 staked) = (free(whistle), activeOf(drawn[0], Role.VERIFIER));
        Proof memory p = _proof(drawn[0], 1, 1, 1);
        bytes32 salt = _announce(whistle, drawn[0], 1, p);
        vm.prank(whistle);
        challenges.proveVote(claim, drawn[0], 1, p.place, p.committed, p.said, salt);
        assertLt(vm.snapshotGasLastCall("market", "prove_vote"), 400_000);
        assertEq(staked - activeOf(drawn[0], Role.VERIFIER), 30 ether);
        assertEq(free(whistle) - rich, 15 ether);
        assertEq(vault.burnt(), 15 ether);
        assertEq(lockedOf(drawn[0], Role.VERIFIER), 0);
        assertTrue(tasks.votes(idOf(claim))[0].gone);
        _prove(drawn[0], 1, p, abi.encodeWithSelector(ITasks.NoSuchVote.selector, drawn[0]));
        assertSolvent();
    }

    function test_anHonestVoteIsNotDisproved() external {
        _vote(drawn[0], LEAVES);
        for (uint32 leaf; leaf < LEAVES; ++leaf) {
            Proof memory p = _proof(drawn[0], 0, leaf, LEAVES);
            _prove(drawn[0], 0, p, abi.encodeWithSelector(IChallenges.NoDifference.selector));
        }
    }

    /// @notice Each way to show, about an honest vote, two different things that are not the same place's.
    function test_Attack14_whatIsShownIsTheSamePlaceOfTheSameStep() external {
        _vote(drawn[0], LEAVES);
        _vote(drawn[1], 1);
        bytes memory bad = abi.encodeWithSelector(IChallenges.BadProof.selector);
        Proof memory p = _proof(drawn[0], 0, 0, LEAVES);
        Proof memory other = _proof(drawn[0], 0, 2, LEAVES);
        (p.said.data, p.said.leafProof) = (other.said.data, other.said.leafProof); // another leaf
        _prove(drawn[0], 0, p, bad);
        p = _proof(drawn[0], 0, 0, LEAVES);
        other = _proof(drawn[0], 1, 0, LEAVES);
        (p.committed, p.said.stateRoot, p.said.stateProof) =
        (other.committed, other.said.stateRoot, other.said.stateProof); // another segment's end
        if (_endOf(drawn[0], 0) != _endOf(drawn[0], 1)) _prove(drawn[0], 0, p, bad);
        p = _proof(drawn[0], 0, 0, LEAVES);
        (p.said.traceRoot, p.said.traceProof) = (other.said.traceRoot, other.said.traceProof); // another sample
        _prove(drawn[0], 0, p, bad);
        p = _proof(drawn[1], 0, 1, 1); // another verifier's trace
        _prove(drawn[0], 0, p, bad);
        p = _proof(drawn[0], 0, 0, LEAVES);
        p.said.ref = 1; // a node that is not the slot's next value
        p.said.nodeProof = memberProof(_trace(drawn[0], _endOf(drawn[0], 0), LEAVES), 1);
        _prove(drawn[0], 0, p, bad);
        p = _proof(drawn[0], 0, 0, LEAVES);
        p.place.slot = 1; // another slot, whose output node is another
        _prove(drawn[0], 0, p, bad);
        p = _proof(drawn[0], 0, 0, LEAVES);
        p.said.data[9] ^= 0x01; // bytes that nobody committed to
        _prove(drawn[0], 0, p, bad);
        p = _proof(drawn[0], 0, 0, LEAVES);
        p.committed.data[9] ^= 0x01;
        _prove(drawn[0], 0, p, bad);
        p = _proof(drawn[0], 0, 0, LEAVES);
        _prove(drawn[0], 2, p, abi.encodeWithSelector(IChallenges.WrongSample.selector, 2, 2));
    }

    /// @notice The same of a slot of one leaf, where any bytes make a tensor.
    function test_Attack14_aSlotOfOneLeafIsShownAsItWasCommitted() external {
        _vote(drawn[0], LEAVES);
        Proof memory p = _proof(drawn[0], 0, 0, LEAVES);
        uint256 end = _endOf(drawn[0], 0);
        (p.place.slot, p.said.ref) = (1, 1);
        (p.committed.node, p.committed.nodeProof) = (_node(1), memberProof(program, 2));
        (p.committed.data, p.said.data) = (_small(end), _small(end));
        (p.committed.leafProof, p.said.leafProof) = (new bytes32[](0), new bytes32[](0));
        p.committed.slotProof = memberProof(_slotRoots(end), 1);
        p.said.refProof = memberProof(program, 2 + NODES);
        p.said.nodeProof = memberProof(_trace(drawn[0], end, LEAVES), 1);
        _prove(drawn[0], 0, p, abi.encodeWithSelector(IChallenges.NoDifference.selector));
        p.committed.data = _small(end + 1);
        _prove(drawn[0], 0, p, abi.encodeWithSelector(IChallenges.BadProof.selector));
    }

    /// @notice Whoever copies a proof from the mempool has announced at most which vote is false, not where.
    function test_Attack36_aProofIsItsAnnouncersAlone() external {
        _vote(drawn[0], 0);
        Proof memory p = _proof(drawn[0], 0, 0, 0);
        bytes32 guess = announceAs(stranger, idOf(claim), 0, drawn[0]);
        vm.expectPartialRevert(IChallenges.NotAnnounced.selector);
        vm.prank(stranger);
        challenges.proveVote(claim, drawn[0], 0, p.place, p.committed, p.said, guess);
        vm.expectPartialRevert(IChallenges.NotAnnounced.selector);
        vm.prank(whistle);
        challenges.proveVote(claim, drawn[0], 0, p.place, p.committed, p.said, "salt");
    }

    /// @notice Also once the claim has fallen, until its seats are free; and the fee that was kept for it is burnt.
    function test_aVoteOnAFallenClaimIsDisprovedForAWindow() external {
        for (uint256 i; i < 3; ++i) {
            _vote(drawn[i], i == 0 ? 0 : LEAVES);
        }
        tasks.tally(claim);
        bytes32 salt = announceAs(whistle, idOf(claim), 0, address(0));
        bytes32[] memory from = memberProof(ends, 0);
        bytes32[] memory to = memberProof(ends, 1);
        vm.prank(whistle);
        court.decide(challenges.open(claim, 0, ends[0], from, ends[1], to, TRUTH, salt), true);
        assertPhase(claim, Phase.CONVICTED);
        (uint256 rich, uint256 burnt) = (free(whistle), vault.burnt());
        Proof memory p = _proof(drawn[0], 0, 0, 0);
        uint256 before = vm.snapshotState();
        skip(500);
        _prove(drawn[0], 0, p, "");
        assertEq(free(whistle) - rich, 15 ether);
        assertEq(vault.burnt() - burnt, 16 ether);
        skip(1);
        tasks.freeSeats(claim);
        assertEq(free(address(tasks)), 0);
        assertSolvent();
        vm.revertToState(before);
        uint64 end = u64(vm.getBlockTimestamp()) + 500;
        vm.warp(end + 1);
        _prove(drawn[0], 0, p, abi.encodeWithSelector(ITasks.WindowClosed.selector, end));
        tasks.freeSeats(claim);
        _prove(drawn[0], 0, p, abi.encodeWithSelector(ITasks.WindowClosed.selector, end));
    }
}
