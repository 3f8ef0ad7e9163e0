// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {Court} from "../../src/dispute/Court.sol";
import {Openings} from "../../src/dispute/Openings.sol";
import {Game, GamePhase, IArbiter, ICourt, Opening} from "../../src/interfaces/ICourt.sol";
import {Merkle} from "../../src/libraries/Merkle.sol";
import {CourtGame} from "./CourtGame.sol";
import {Tree, Trees} from "./Trees.sol";

/// @notice Evidence whose every hash holds, about something else than the node's definition reads, convicts nobody.
contract EvidenceTest is CourtGame {
    using Trees for Tree;

    uint256 private constant IADD = 12; // i32 [] of nodes 1 and 11
    uint256 private constant MUL = 16; // f32 [40, 32] of nodes 0 and 15
    uint256 private constant STRIDED = 18; // 40 leaves
    uint256 private constant NAMES = 20; // i32 [4]
    uint256 private constant RECORD = 22; // u8 [4, 32] of node 20

    function setUp() external {
        vm.warp(1_000_000);
        _load();
    }

    /// @dev The game about leaf 0 of `node`, with its bytes shown. Nodes may have been replaced since `_load`.
    function _shown(bytes[] memory tensors, uint256 node) private returns (uint256 id, Game memory game) {
        _seal(1);
        (id, game) = _open(_newGame(0, 0));
        game = _revealLeaf(id, _descend(id, game, tensors, node, 0), tensors[node]);
    }

    function _refused(
        uint256 id,
        Game memory game,
        bytes memory tensor,
        uint64 element,
        Opening[] memory openings,
        bytes memory why
    ) private {
        bytes memory node = s.nodes[game.context.node];
        vm.expectRevert(why);
        vm.prank(challenger);
        _proveAs(id, game, _leafOf(game, tensor), node, element, openings);
    }

    // ---- operands

    /// @notice A node that reads itself or a later one has no value, so nobody is convicted by what that one holds.
    function test_anOperandAtOrAfterTheNodeConvictsNobody() external {
        for (uint256 ref = IADD; ref <= IADD + 1; ++ref) {
            s.nodes[IADD][14] = bytes1(uint8(ref)); // its second operand: 41 + 42 and 41 + 5 are not 42
            (uint256 id, Game memory game) = _shown(s.honest, IADD);
            Opening[] memory openings = _openings(game, s.honest, IADD, 0);
            _refused(id, game, s.honest[IADD], 0, openings, abi.encodePacked(ICourt.MalformedNode.selector));
        }
    }

    function test_aRecordNamedByALaterNodeConvictsNobody() external {
        s.nodes[RECORD][16] = bytes1(uint8(26)); // node 26 holds what node 20 does
        bytes[] memory tensors = _lie(RECORD, 0, 1);
        (uint256 id, Game memory game) = _shown(tensors, RECORD);
        Opening[] memory openings = _named(game, tensors, 26, 3);
        _refused(id, game, tensors[RECORD], 0, openings, abi.encodePacked(ICourt.MalformedNode.selector));
    }

    /// @notice Four bytes a row are as many as a number a row: the node's own output would do as its input.
    function test_aRecordNamedByItselfConvictsNobody() external {
        s.nodes[RECORD] = abi.encodePacked(
            hex"0703020101", uint32(4), uint32(4), uint32(RECORD), hex"0101", uint32(4), int64(2)
        );
        s.honest[RECORD] = new bytes(16);
        (uint256 id, Game memory game) = _shown(s.honest, RECORD);
        assertGt(uint8(s.records[0][2]), 0, "not the byte that is claimed");
        Opening[] memory openings = _named(game, s.honest, RECORD, 0);
        _refused(id, game, s.honest[RECORD], 0, openings, abi.encodePacked(ICourt.MalformedNode.selector));
    }

    /// @dev Node `ref`'s output as what names the record, and that record.
    function _named(Game memory game, bytes[] memory tensors, uint256 ref, uint256 record)
        private
        view
        returns (Opening[] memory openings)
    {
        openings = new Opening[](2);
        Tree memory trace = Trees.over(tensors, game.context.key);
        openings[0] = _whole(0, tensors[ref], game.context.key, trace.proof(ref));
        openings[1] = _record(1, record);
    }

    /// @notice A node that is read twice is shown twice, and both times the same.
    function test_anOperandReadTwiceIsTheSameBothTimes() external {
        s.nodes[IADD][14] = 0x01; // 41 + 41, and 42 is claimed
        (uint256 id, Game memory game) = _shown(s.honest, IADD);
        bytes memory why = abi.encodePacked(ICourt.BadProof.selector);
        Opening[] memory openings = _openings(game, s.honest, IADD, 0);
        openings[1].path = new bytes32[](0);
        openings[1].data = s.honest[11]; // 41 + 1 would be 42
        _refused(id, game, s.honest[IADD], 0, openings, why);
        openings[1].data = s.honest[1];
        openings[1].path = new bytes32[](1);
        _refused(id, game, s.honest[IADD], 0, openings, why);
        openings[1].path = new bytes32[](0);
        vm.prank(challenger);
        _proveAs(id, game, s.honest[IADD], s.nodes[IADD], 0, openings);
        assertEq(challenges.verdicts(id), 2);
    }

    /// @notice An attribute too many makes a source's encoding nobody's, whatever it would read without.
    function test_aSourceWithAnAttributeTooManyConvictsNobody() external {
        uint256[5] memory sources = [uint256(1), 2, 13, 21, RECORD]; // state, data, step, shard, record
        for (uint256 i; i < sources.length; ++i) {
            uint256 node = sources[i];
            bytes memory right = s.nodes[node];
            s.nodes[node] = bytes.concat(right, new bytes(8));
            s.nodes[node][4] = bytes1(uint8(right[4]) + 1);
            bytes[] memory tensors = _lie(node, 0, 1);
            (uint256 id, Game memory game) = _shown(tensors, node);
            Opening[] memory openings = _openings(game, tensors, node, 0);
            if (node == 13 || node == 21) openings = new Opening[](0);
            _refused(id, game, tensors[node], 0, openings, abi.encodePacked(ICourt.MalformedNode.selector));
            s.nodes[node] = right;
        }
    }

    /// @notice Each operation is asked of the arbiter of its family: 1 element-wise, 2 transcendental, 3 contraction, 4 index.
    function test_everyOperationHasItsArbiter() external {
        IArbiter[4] memory arbiters;
        bytes memory evaluate = abi.encodePacked(IArbiter.evaluate.selector);
        for (uint256 i; i < 4; ++i) {
            arbiters[i] = IArbiter(makeAddr(string.concat("arbiter ", vm.toString(i + 1))));
            vm.mockCall(address(arbiters[i]), evaluate, abi.encode(i + 1));
        }
        court = new Court(address(challenges), arbiters[0], arbiters[1], arbiters[2], arbiters[3], clock);
        bytes memory one = hex"030410111219202122232425303132333435384041424849";
        _asks(one, 1);
        _asks(hex"13141516171826", 2);
        _asks(hex"50515253545556", 3);
        _asks(hex"6061626364", 4);
    }

    function _asks(bytes memory operations, uint8 arbiter) private {
        for (uint256 i; i < operations.length; ++i) {
            this.ask(operations[i], arbiter);
        }
    }

    /// @dev A call of its own, so that forty games do not share one memory.
    function ask(bytes1 operation, uint8 arbiter) external {
        s.nodes[IADD][0] = operation;
        s.honest[IADD] = abi.encodePacked(arbiter, hex"000000"); // it cannot be proven wrong
        (uint256 id, Game memory game) = _shown(s.honest, IADD);
        bytes memory why = abi.encodePacked(ICourt.NoDifference.selector);
        _refused(id, game, s.honest[IADD], 0, _openings(game, s.honest, IADD, 0), why);
    }

    // ---- the state

    /// @notice Node 0 is slot 0 and no other: an encoding that says otherwise has no value.
    function test_aStateNodeOfAnotherSlotConvictsNobody() external {
        s.nodes[0][20] = 0x01; // the last byte of its attribute: state(1)
        bytes[] memory tensors = _lie(0, 0, 1);
        (uint256 id, Game memory game) = _shown(tensors, 0);
        Opening[] memory openings = _openings(game, tensors, 0, 0);
        _refused(id, game, tensors[0], 0, openings, abi.encodePacked(ICourt.MalformedNode.selector));
    }

    /// @notice Slot 1's number, which is as large as slot 0's, is not slot 0's.
    function test_anotherSlotsLeafConvictsNobody() external {
        s.nodes[0] = abi.encodePacked(hex"0101000001", int64(0));
        s.honest[0] = hex"07000000";
        (uint256 id, Game memory game) = _shown(s.honest, 0);
        Opening[] memory openings = new Opening[](1);
        openings[0] = _whole(0, s.honest[1], 0, _inState().proof(1));
        _refused(id, game, s.honest[0], 0, openings, abi.encodePacked(ICourt.BadProof.selector));
        openings[0] = _whole(0, s.honest[0], 0, _inState().proof(0));
        _refused(id, game, s.honest[0], 0, openings, abi.encodePacked(ICourt.NoDifference.selector));
    }

    // ---- leaves

    /// @notice A leaf of fewer bytes is the last one or none: whoever builds a tree with a short one in the middle cannot
    /// have the elements after it read from the wrong place.
    function test_aShortLeafBeforeTheLastIsNoEvidence() external {
        bytes[] memory tensors = _lie(MUL, 0, 1);
        for (uint256 run = 1; run <= 2; ++run) {
            bytes memory data = Trees.slice(s.honest[0], 0, run * Openings.LEAF_BYTES - 4);
            Tree memory built = Trees.tensor(s.honest[0], 0);
            uint256 from = (run - 1) * Openings.LEAF_BYTES;
            built.levels[0][run - 1] = Merkle.leaf(Trees.slice(data, from, Openings.LEAF_BYTES - 4));
            built = Trees.build(built.levels[0]);
            bytes32[] memory roots = Trees.over(tensors, 0).levels[0];
            roots[0] = built.root();
            Tree memory trace = Trees.build(roots);
            (uint256 id, Game memory game) = _open(_newGame(0, 0));
            game = _descendIn(id, game, trace, Trees.tensor(tensors[MUL], 0), MUL, 0);
            game = _revealLeaf(id, game, tensors[MUL]);
            Opening[] memory openings = new Opening[](2);
            openings[0] = Opening(0, 0, data, built.rangeProof(0, run), trace.proof(0));
            openings[1] = _whole(1, s.honest[15], 0, Trees.cut(trace.proof(15), 0, 15));
            _refused(id, game, tensors[MUL], 0, openings, abi.encodePacked(ICourt.BadProof.selector));
        }
    }

    /// @notice Nor is a last leaf that is longer than what is left for it.
    function test_aLastLeafThatIsTooLongIsNoEvidence() external {
        bytes[] memory tensors = _lie(MUL, 0, 1);
        bytes memory data = bytes.concat(s.honest[0], new bytes(1024)); // three whole leaves
        bytes32[] memory roots = Trees.over(tensors, 0).levels[0];
        roots[0] = Trees.tensor(data, 0).root();
        Tree memory trace = Trees.build(roots);
        (uint256 id, Game memory game) = _open(_newGame(0, 0));
        game = _descendIn(id, game, trace, Trees.tensor(tensors[MUL], 0), MUL, 0);
        game = _revealLeaf(id, game, tensors[MUL]);
        Opening[] memory openings = new Opening[](2);
        openings[0] = _whole(0, data, 0, trace.proof(0));
        openings[1] = _whole(1, s.honest[15], 0, Trees.cut(trace.proof(15), 0, 15));
        _refused(id, game, tensors[MUL], 0, openings, abi.encodePacked(ICourt.BadProof.selector));
    }

    /// @notice Whole leaves from the middle of an input are evidence as good as all of it.
    function test_aRunFromTheMiddleOfAnInputConvicts() external {
        bytes[] memory tensors = _lie(MUL, Openings.LEAF_BYTES, 1); // element 512, the first of leaf 1
        for (uint256 run; run < 3; ++run) {
            (uint256 first, uint256 end) = (run == 2 ? 0 : 1, run == 1 ? 3 : 2);
            (uint256 id, Game memory game) = _open(_newGame(0, 0));
            game = _revealLeaf(id, _descend(id, game, tensors, MUL, 1), tensors[MUL]);
            Opening[] memory openings = _openings(game, tensors, MUL, 512);
            (uint256 from, uint256 to) = (first * Openings.LEAF_BYTES, end * Openings.LEAF_BYTES);
            if (to > 5120) to = 5120;
            openings[0].firstLeaf = uint64(first);
            openings[0].data = Trees.slice(s.honest[0], from, to - from);
            openings[0].siblings = Trees.tensor(s.honest[0], 0).rangeProof(first, end);
            bytes memory leaf = _leafOf(game, tensors[MUL]);
            vm.prank(challenger);
            _proveAs(id, game, leaf, s.nodes[MUL], 512, openings);
            assertEq(challenges.verdicts(id), 2);
        }
    }

    function test_aRunFromTheMiddleOfAStateConvicts() external {
        bytes[] memory tensors = _lie(0, Openings.LEAF_BYTES + 8, 1); // element 514
        (uint256 id, Game memory game) = _open(_newGame(0, 0));
        game = _revealLeaf(id, _descend(id, game, tensors, 0, 1), tensors[0]);
        Opening[] memory openings = _openings(game, tensors, 0, 514);
        openings[0].firstLeaf = 1;
        openings[0].data = Trees.slice(s.honest[0], Openings.LEAF_BYTES, Openings.LEAF_BYTES);
        openings[0].siblings = Trees.tensor(s.honest[0], 0).proof(1);
        Opening[] memory early = _openings(game, tensors, 0, 514);
        early[0].data = Trees.slice(s.honest[0], 0, Openings.LEAF_BYTES);
        early[0].siblings = Trees.tensor(s.honest[0], 0).proof(0);
        bytes memory why = abi.encodeWithSelector(ICourt.MissingInput.selector, 0, 514);
        _refused(id, game, tensors[0], 514, early, why);
        bytes memory leaf = _leafOf(game, tensors[0]);
        uint256 before = vm.snapshotState();
        vm.prank(challenger);
        _proveAs(id, game, leaf, s.nodes[0], 514, openings);
        assertEq(challenges.verdicts(id), 2);
        vm.revertToState(before);
        why = abi.encodePacked(ICourt.NoDifference.selector);
        _refused(id, game, tensors[0], 513, openings, why);
    }

    /// @notice A word is one of the shown leaf's by six siblings, and by no other number of them.
    function test_aWordIsOfTheShownLeaf() external {
        bytes[] memory tensors = _lie(IADD, 0, 1);
        (uint256 id, Game memory game) = _shown(tensors, IADD);
        Opening[] memory openings = _openings(game, tensors, IADD, 0);
        bytes memory node = s.nodes[IADD];
        for (uint256 length; length < 8; ++length) {
            bytes32 word = bytes32(length == 6 ? bytes1(0x17) : bytes1(0x2b)); // 43 was shown
            bytes32[] memory siblings = new bytes32[](length);
            bytes32[] memory right = Trees.wordProof(tensors[IADD], 0);
            for (uint256 i; i < length && i < 6; ++i) {
                siblings[i] = right[i];
            }
            vm.expectRevert(ICourt.BadProof.selector);
            vm.prank(challenger);
            court.prove(id, game, word, siblings, node, 0, openings);
        }
        _prove(id, game, tensors, 0);
        assertEq(challenges.verdicts(id), 2);
    }

    /// @notice An element lies in the shown leaf, or nothing is said about it.
    function test_onlyElementsOfTheShownLeafAreProven() external {
        bytes[] memory tensors = _lie(MUL, Openings.LEAF_BYTES, 1);
        (uint256 id, Game memory game) = _open(_newGame(0, 0));
        game = _revealLeaf(id, _descend(id, game, tensors, MUL, 1), tensors[MUL]);
        Opening[] memory openings = _openings(game, tensors, MUL, 512);
        uint64[4] memory beside = [uint64(0), 511, 1024, 1280];
        for (uint256 i; i < beside.length; ++i) {
            bytes memory why = abi.encodeWithSelector(ICourt.IndexOutOfRange.selector, beside[i], 1280);
            _refused(id, game, tensors[MUL], beside[i], openings, why);
        }
    }

    /// @notice Leaves after the element that is read, or of an input that the node has not, are no evidence of it.
    function test_leavesBesideTheElementAreNoEvidence() external {
        bytes[] memory tensors = _lie(0, 0, 1);
        (uint256 id, Game memory game) = _shown(tensors, 0);
        Opening[] memory openings = _openings(game, tensors, 0, 0);
        openings[0].firstLeaf = 1;
        openings[0].data = Trees.slice(s.honest[0], Openings.LEAF_BYTES, Openings.LEAF_BYTES);
        openings[0].siblings = Trees.tensor(s.honest[0], 0).proof(1);
        bytes memory why = abi.encodeWithSelector(ICourt.MissingInput.selector, 0, 0);
        _refused(id, game, tensors[0], 0, openings, why);
        openings = _openings(game, tensors, 0, 0);
        openings[0].input = 1;
        why = abi.encodeWithSelector(ICourt.IndexOutOfRange.selector, 1, 1);
        _refused(id, game, tensors[0], 0, openings, why);
        why = abi.encodeWithSelector(ICourt.WrongCount.selector, 1, 2);
        _refused(id, game, tensors[0], 0, new Opening[](2), why);
        (id, game) = _shown(s.honest, IADD);
        openings = _openings(game, s.honest, IADD, 0);
        openings[0].input = 2;
        why = abi.encodeWithSelector(ICourt.IndexOutOfRange.selector, 2, 2);
        _refused(id, game, s.honest[IADD], 0, openings, why);
    }

    /// @notice The first leaf that is not there is as far out as any: a bare pick does not reach it, so that nobody has to show
    /// what does not exist.
    function test_noLeafBeyondTheLastIsPicked() external {
        Tree memory trace = Trees.over(s.honest, 0);
        Tree memory tensor = Trees.tensor(s.honest[STRIDED], 0);
        (uint256 id, Game memory game) = _open(_newGame(0, 0));
        game = _pick(id, _revealTrace(id, game, trace), trace, STRIDED);
        game = _split(id, _pick(id, _split(id, game, trace), trace, STRIDED), tensor);
        assertEq(game.cursor.leaves, 40);
        bytes32[] memory children = tensor.children(6, 0);
        for (uint32 beyond = 40; beyond < 64; beyond += 23) {
            bytes32[] memory siblings = Trees.build(children).proof(beyond);
            vm.expectRevert(abi.encodeWithSelector(ICourt.IndexOutOfRange.selector, beyond, 40));
            vm.prank(challenger);
            court.pickWithin(id, _matter(game), _front(game), beyond, children[beyond], siblings);
            _lastPick(id, game, children, beyond, abi.encodePacked(ICourt.NoDifference.selector));
        }
        game = _pick(id, game, tensor, 39);
        assertEq(uint8(game.cursor.phase), uint8(GamePhase.REVEAL_LEAF));
    }

    /// @notice A descendant with all of its siblings leads to the tree node too, but from another level than a move opens.
    function test_noDeeperNodeIsPickedAsAChild() external {
        Tree memory trace = Trees.over(s.honest, 0);
        (uint256 id, Game memory game) = _open(_newGame(0, 0));
        game = _revealTrace(id, game, trace);
        for (uint256 level; level < 7; ++level) {
            if (level == 3) continue; // four levels down, as a move opens
            bytes32[] memory siblings = new bytes32[](7 - level);
            for (uint256 i; i < siblings.length; ++i) {
                siblings[i] = trace.levels[level + i][1];
            }
            vm.expectRevert(ICourt.WrongChildren.selector);
            vm.prank(challenger);
            court.pickWithin(id, _matter(game), _front(game), 0, trace.levels[level][0], siblings);
        }
    }

    // ---- the claimed output

    /// @notice Wherever in the trace the challenger turns to the claimed output, its tree is opened from the top, and has as
    /// many leaves as the state has slots.
    function test_theClaimedOutputIsOpenedFromItsTop() external {
        s.outputs.push(3);
        _seal(1);
        Tree memory trace = Trees.over(s.honest, 0);
        Tree memory claimed = _outState(s.honest);
        (uint256 id, Game memory game) = _open(_newGame(0, claimed.root()));
        game = _pick(id, _revealTrace(id, game, trace), trace, 60);
        game = _split(id, game, trace);
        assertEq(game.cursor.index, 56);
        vm.recordLogs();
        vm.prank(challenger);
        court.openOutput(id, game);
        game = _after(game);
        assertEq(game.cursor.digest, claimed.root());
        assertEq(game.cursor.level, 2);
        assertEq(game.cursor.index, 0);
        assertEq(game.cursor.leaves, 3);
        assertEq(game.cursor.revealed, 0);
        game = _split(id, game, claimed);
        bytes32[] memory siblings = claimed.proof(3);
        bytes32[] memory children = claimed.children(2, 0);
        vm.expectRevert(abi.encodeWithSelector(ICourt.IndexOutOfRange.selector, 3, 3));
        vm.prank(challenger);
        court.pickWithin(id, _matter(game), _front(game), 3, children[3], siblings);
        _lastPick(id, game, children, 3, abi.encodePacked(ICourt.NoDifference.selector));
    }

    // ---- records

    /// @notice A record's opening goes up to the data set's root, and no further.
    function test_aRecordHasNoPath() external {
        for (uint256 node = 2; node <= RECORD; node += RECORD - 2) {
            bytes[] memory tensors = _lie(node, 0, 1);
            (uint256 id, Game memory game) = _shown(tensors, node);
            Opening[] memory openings = _openings(game, tensors, node, 0);
            openings[openings.length - 1].path = new bytes32[](1);
            _refused(id, game, tensors[node], 0, openings, abi.encodePacked(ICourt.BadProof.selector));
        }
    }

    /// @notice What is read is a record of the job's data set, whole.
    function test_aRecordIsOneOfTheDataSet() external {
        for (uint256 node = 2; node <= RECORD; node += RECORD - 2) {
            bytes[] memory tensors = _lie(node, 0, 1);
            (uint256 id, Game memory game) = _shown(tensors, node);
            Opening[] memory openings = _openings(game, tensors, node, 0);
            openings[openings.length - 1].data[2] ^= 0x01; // the byte that is read
            _refused(id, game, tensors[node], 0, openings, abi.encodePacked(ICourt.BadProof.selector));
        }
    }

    /// @notice A data set whose leaf is longer than a record is nobody's fault but the poster's.
    function test_aRecordOfAnotherLengthConvictsNobody() external {
        for (uint256 i; i < s.records.length; ++i) {
            s.records[i] = bytes.concat(s.records[i], hex"00");
        }
        for (uint256 node = 2; node <= RECORD; node += RECORD - 2) {
            bytes[] memory tensors = _lie(node, 0, 1);
            (uint256 id, Game memory game) = _shown(tensors, node);
            Opening[] memory openings = _openings(game, tensors, node, 0);
            _refused(id, game, tensors[node], 0, openings, abi.encodePacked(ICourt.BadProof.selector));
        }
    }

    /// @notice Of eleven records, a number below 0 names the first and one above 10 the last.
    function test_aNamedRecordIsClampedToThoseThereAre() external {
        int32[4] memory names = [int32(-1), 10, 11, type(int32).min];
        uint256[4] memory records = [uint256(0), 10, 10, 0];
        _names(names, records);
        names = [type(int32).max, int32(0), 1, 12];
        records = [uint256(10), 0, 1, 10];
        _names(names, records);
    }

    function _names(int32[4] memory names, uint256[4] memory records) private {
        bytes memory honest;
        for (uint256 row; row < 4; ++row) {
            for (uint256 i; i < 4; ++i) {
                s.honest[NAMES][4 * row + i] = bytes1(uint8(uint32(names[row]) >> (8 * i)));
            }
            honest = bytes.concat(honest, Trees.slice(s.records[records[row]], 2, 32));
        }
        s.honest[RECORD] = honest;
        for (uint64 element = 5; element < 128; element += 32) {
            uint256 record = records[element / 32];
            _named(element, record);
        }
    }

    /// @dev That record and no neighbour of it is read, and gives what `s.honest` says.
    function _named(uint64 element, uint256 record) private {
        (uint256 id, Game memory game) = _shown(s.honest, RECORD);
        Opening[] memory openings = _named(game, s.honest, NAMES, record);
        bytes memory tensor = s.honest[RECORD];
        _refused(id, game, tensor, element, openings, abi.encodePacked(ICourt.NoDifference.selector));
        openings[1] = _record(1, record == 0 ? 1 : record - 1);
        bytes memory why = abi.encodeWithSelector(ICourt.MissingInput.selector, 0, record);
        _refused(id, game, tensor, element, openings, why);
    }
}
