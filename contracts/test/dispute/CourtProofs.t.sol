// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {Openings} from "../../src/dispute/Openings.sol";
import {Game, GamePhase, ICourt, Opening} from "../../src/interfaces/ICourt.sol";
import {Kind} from "../../src/interfaces/Types.sol";
import {Merkle} from "../../src/libraries/Merkle.sol";
import {CourtGame} from "./CourtGame.sol";
import {Tree, Trees} from "./Trees.sol";

/// @notice Proofs, openings and nodes that are not what they say convict nobody.
contract CourtProofsTest is CourtGame {
    using Trees for Tree;

    function setUp() external {
        vm.warp(1_000_000);
        _load();
    }

    // ---- attack 38: proofs and trees that are not what they say

    function test_Attack38_childrenOfAnotherNodeOrNumberAreRefused() external {
        Tree memory trace = Trees.over(s.honest, 0);
        (uint256 id, Game memory game) = _open(_newGame(0, 0));
        bytes32 root = trace.root();
        bytes32[] memory children = trace.children(7, 0);
        vm.startPrank(defender);
        vm.expectRevert(abi.encodeWithSelector(ICourt.WrongCount.selector, 16, 0));
        court.revealTrace(id, _basis(game), _scope(game), _front(game), root, new bytes32[](0)); // an empty expansion
        vm.expectRevert(abi.encodeWithSelector(ICourt.WrongCount.selector, 16, 128));
        court.revealTrace(id, _basis(game), _scope(game), _front(game), root, trace.levels[0]); // one level too deep
        children[3] = ~children[3];
        vm.stopPrank();
        game = _revealTrace(id, game, trace);
        _lastPick(id, game, children, 0, abi.encodePacked(ICourt.WrongChildren.selector));
        children[3] = ~children[3];
        bytes32[] memory siblings = Trees.build(children).proof(0);
        vm.startPrank(challenger);
        vm.expectRevert(ICourt.WrongChildren.selector);
        court.pick(id, game, 1, children[0], siblings, "", new bytes32[](0));
        vm.expectRevert(abi.encodeWithSelector(ICourt.IndexOutOfRange.selector, 16, 16));
        court.pick(id, game, 16, children[0], siblings, "", new bytes32[](0));
        vm.expectRevert(abi.encodeWithSelector(ICourt.WrongCount.selector, 0, 1));
        court.pick(id, game, 0, children[0], siblings, "x", new bytes32[](0));
        vm.stopPrank();
    }

    /// @notice Nobody can pick in a tree that was opened falsely, so whoever opens falsely loses, wherever it is.
    function test_Attack11_childrenThatDoNotFoldLose() external {
        Tree memory trace = Trees.over(s.honest, 0);
        bytes[] memory tensors = _lie(16, 0, 1);
        (uint256 id, Game memory game) = _open(_newGame(0, 0));
        bytes32[] memory children = trace.children(7, 0);
        children[3] = ~children[3];
        uint256 before = vm.snapshotState();
        vm.recordLogs();
        vm.prank(defender);
        court.revealTrace(id, _basis(game), _scope(game), _front(game), trace.root(), children);
        _loses(id, _after(game), children);
        vm.revertToState(before);
        trace = Trees.over(tensors, 0);
        for (uint256 deep; deep < 2; ++deep) {
            Game memory now_ = _pick(id, _revealTrace(id, game, trace), trace, 16);
            if (deep == 1) now_ = _pick(id, _split(id, now_, trace), trace, 16);
            assertEq(uint8(now_.cursor.phase), uint8(deep == 0 ? GamePhase.SPLIT_NODE : GamePhase.SPLIT_LEAF));
            Tree memory tree = deep == 0 ? trace : Trees.tensor(tensors[16], 0);
            children = tree.children(now_.cursor.level, now_.cursor.index);
            children[0] = ~children[0];
            vm.recordLogs();
            vm.prank(defender);
            court.split(id, _matter(now_), _front(now_), children);
            _loses(id, _within(now_), children);
            vm.revertToState(before);
        }
    }

    function _loses(uint256 id, Game memory game, bytes32[] memory children) private {
        assertEq(game.cursor.revealed, keccak256(abi.encodePacked(children)));
        bytes32[] memory siblings = Trees.build(children).proof(1);
        vm.startPrank(challenger);
        vm.expectRevert(ICourt.WrongChildren.selector);
        court.pick(id, game, 1, children[1], siblings, "", new bytes32[](0)); // there is no way to go on
        children[2] = ~children[2];
        vm.expectRevert(ICourt.WrongChildren.selector);
        court.proveChildren(id, game, children); // not what was opened
        children[2] = ~children[2];
        vm.stopPrank();
        vm.expectRevert(abi.encodeWithSelector(ICourt.NotYourMove.selector, challenger));
        court.proveChildren(id, game, children);
        vm.prank(challenger);
        court.proveChildren(id, game, children);
        assertEq(challenges.verdicts(id), 2);
    }

    function test_childrenThatFoldConvictNobody() external {
        Tree memory trace = Trees.over(s.honest, 0);
        (uint256 id, Game memory game) = _open(_newGame(0, 0));
        vm.expectRevert(abi.encodeWithSelector(ICourt.WrongPhase.selector, GamePhase.TRACE));
        vm.prank(challenger);
        court.proveChildren(id, game, new bytes32[](0));
        game = _revealTrace(id, game, trace);
        bytes32[] memory children = trace.children(7, 0);
        vm.expectRevert(ICourt.NoDifference.selector);
        vm.prank(challenger);
        court.proveChildren(id, game, children);
        game = _pick(id, game, trace, 8);
        assertEq(game.cursor.revealed, 0, "what was opened is spent");
    }

    function test_Attack38_anotherNodesEncodingIsRefused() external {
        Tree memory trace = Trees.over(s.honest, 0);
        (uint256 id, Game memory game) = _open(_newGame(0, 0));
        game = _split(id, _pick(id, _revealTrace(id, game, trace), trace, 8), trace);
        bytes32[] memory children = trace.children(3, 8);
        bytes32[] memory siblings = Trees.build(children).proof(0);
        bytes32[] memory proof = _programTree().proof(10);
        bytes memory node = s.nodes[9];
        vm.expectRevert(ICourt.BadProof.selector);
        vm.prank(challenger);
        court.pick(id, game, 0, children[0], siblings, node, proof); // node 9's encoding and proof for node 8
        proof = _programTree().proof(9);
        node = s.nodes[8];
        assembly ("memory-safe") {
            mstore(proof, sub(mload(proof), 1))
        }
        vm.expectRevert(ICourt.BadProof.selector);
        vm.prank(challenger);
        court.pick(id, game, 0, children[0], siblings, node, proof); // a proof that is one short
    }

    /// @notice An inner node's 64 bytes shown as a leaf, or under the other domain, do not hash to the digest.
    function test_Attack38_leafNodeConfusionIsRefused() external {
        bytes32 left = keccak256("l");
        bytes32 right = keccak256("r");
        bytes memory both = abi.encodePacked(left, right);
        assertNotEq(Merkle.node(left, right), Merkle.leaf(both));
        assertNotEq(Merkle.node(left, right), sha256(both));
        assertNotEq(Merkle.leaf(both), Merkle.keyed(left, abi.encodePacked(right)));
        assertNotEq(Merkle.leaf(abi.encodePacked(left, right)), Merkle.keyed(0, both));
        (uint256 id, Game memory game) = _open(_newGame(0, 0));
        game = _descend(id, game, s.honest, 17, 0);
        bytes memory leaf = _leafOf(game, s.honest[17]);
        vm.startPrank(defender);
        vm.expectRevert(abi.encodeWithSelector(ICourt.WrongCount.selector, Openings.LEAF_BYTES, 64));
        court.revealLeaf(id, _basis(game), _scope(game), _front(game), both);
        leaf[5] ^= 0x01;
        vm.expectRevert(ICourt.BadProof.selector);
        court.revealLeaf(id, _basis(game), _scope(game), _front(game), leaf);
        vm.stopPrank();
    }

    function test_Attack38_openingsAreCheckedToTheLastByte() external {
        bytes[] memory tensors = _lie(16, 0, 1);
        (uint256 id, Game memory game) = _open(_newGame(0, 0));
        game = _revealLeaf(id, _descend(id, game, tensors, 16, 0), tensors[16]);
        Opening[] memory good = _openings(game, tensors, 16, 0);
        bytes memory leaf = _leafOf(game, tensors[16]);
        _badOpening(id, game, leaf, good, 0);
        vm.prank(challenger);
        _proveAs(id, game, leaf, s.nodes[16], 0, good);
        assertEq(challenges.verdicts(id), 2, "and the good ones convict");
    }

    function _badOpening(
        uint256 id,
        Game memory game,
        bytes memory leaf,
        Opening[] memory good,
        uint64 element
    ) private {
        bytes memory w = good[0].data;
        bytes memory node = s.nodes[game.context.node];
        for (uint256 kind; kind < 15; ++kind) {
            Opening[] memory bad = abi.decode(abi.encode(good), (Opening[]));
            if (kind == 0) bad[0].data[0] ^= 0x01; // another byte
            if (kind == 1) bad[0].data = Trees.slice(w, 0, w.length - 1); // cut short
            if (kind == 2) bad[0].data = ""; // nothing
            if (kind == 3) bad[0].firstLeaf = 1; // shifted out of the tensor
            if (kind == 4) bad[0].firstLeaf = type(uint64).max; // overflow
            if (kind == 5) bad[0].siblings = new bytes32[](good[0].siblings.length + 1); // a sibling too many
            if (kind == 6) bad[0].path = new bytes32[](6); // a path that is one short
            if (kind == 7) bad[0].path[0] ^= bytes32(uint256(1)); // a wrong path
            if (kind == 8) bad[0].input = 2; // no such input
            if (kind == 9) bad[0].input = 1; // the other input's bytes
            if (kind == 10) bad[0].data = abi.encodePacked(w, bytes1(0)); // a byte too many
            if (kind == 11) bad[1].data[0] ^= 0x01; // another byte where the way joins the first one's
            if (kind == 12) bad[1].path = new bytes32[](good[1].path.length + 1); // joined a level too high
            if (kind == 13) bad[1].path = good[0].path; // joined nowhere
            if (kind == 14) (bad[0], bad[1]) = (good[1], good[0]); // the whole way last
            vm.prank(challenger);
            (bool ok,) = address(court)
                .call(
                    abi.encodeCall(
                        ICourt.prove,
                        (id, game, Trees.word(leaf, 0), Trees.wordProof(leaf, 0), node, element, bad)
                    )
                );
            assertFalse(ok, string.concat("kind ", vm.toString(kind)));
        }
        vm.startPrank(challenger);
        vm.expectRevert(abi.encodeWithSelector(ICourt.MissingInput.selector, 0, 0));
        _proveAs(id, game, leaf, node, element, new Opening[](0));
        vm.expectRevert(abi.encodeWithSelector(ICourt.IndexOutOfRange.selector, 1024, 1280));
        _proveAs(id, game, leaf, node, 1024, good);
        vm.expectRevert(ICourt.BadProof.selector);
        _proveAs(id, game, leaf, s.nodes[17], element, good);
        leaf[0] ^= 0x01;
        vm.expectRevert(ICourt.BadProof.selector);
        _proveAs(id, game, leaf, node, element, good);
        leaf[0] ^= 0x01;
        vm.stopPrank();
    }

    function test_dataMustComeFromTheDrawnRecord() external {
        bytes[] memory tensors = _lie(2, 40, 1);
        (uint256 id, Game memory game) = _open(_newGame(0, 0));
        game = _revealLeaf(id, _descend(id, game, tensors, 2, 0), tensors[2]);
        Opening[] memory openings = _openings(game, tensors, 2, 40);
        uint256 drawn = openings[0].firstLeaf;
        uint256 other = (drawn + 1) % s.records.length;
        openings[0].firstLeaf = uint64(other);
        openings[0].data = s.records[other];
        openings[0].siblings = _datasetTree().proof(other);
        vm.expectRevert(abi.encodeWithSelector(ICourt.MissingInput.selector, 0, drawn));
        vm.prank(challenger);
        _proveAs(id, game, tensors[2], s.nodes[2], 40, openings);
        _prove(id, game, tensors, 40);
        assertEq(challenges.verdicts(id), 2);
    }

    /// @notice Where there is no record to read, in an outer claim, a job without records or past a record's end, a byte is 0,
    /// and nothing is opened: whoever claims anything else is convicted.
    function test_R9_whatReadsNoRecordIsZero() external {
        for (uint256 how; how < 3; ++how) {
            bytes[] memory tensors = _lie(2, 40, 1);
            Game memory game = _newGame(0, 0);
            if (how == 0) game.params.accused.kind = Kind.OUTER;
            else if (how == 1) game.params.records = 0;
            else game.params.recordSize = 0;
            uint256 id;
            (id, game) = _open(game);
            game = _revealLeaf(id, _descend(id, game, tensors, 2, 0), tensors[2]);
            assertGt(uint8(tensors[2][40]), 0);
            Opening[] memory openings = _openings(game, tensors, 2, 40);
            vm.expectRevert(abi.encodeWithSelector(ICourt.WrongCount.selector, 0, 1));
            vm.prank(challenger);
            _proveAs(id, game, tensors[2], s.nodes[2], 40, openings);
            vm.prank(challenger);
            _proveAs(id, game, tensors[2], s.nodes[2], 40, new Opening[](0));
            assertEq(challenges.verdicts(id), 2);
        }
    }

    /// @notice And who claims a zero there is not.
    function test_R9_aZeroThatReadsNoRecordConvictsNobody() external {
        bytes[] memory tensors = _lie(2, 40, uint8(s.honest[2][40])); // the byte's own bits: it becomes 0
        assertEq(uint8(tensors[2][40]), 0);
        Game memory game = _newGame(0, 0);
        game.params.accused.kind = Kind.OUTER;
        uint256 id;
        (id, game) = _open(game);
        game = _revealLeaf(id, _descend(id, game, tensors, 2, 0), tensors[2]);
        vm.expectRevert(ICourt.NoDifference.selector);
        vm.prank(challenger);
        _proveAs(id, game, tensors[2], s.nodes[2], 40, new Opening[](0));
    }

    /// @notice A record node's record is the one that its input names, clamped, and both are to be shown.
    function test_recordMustBeTheNamedOne() external {
        uint256 node = _first(0x07);
        bytes[] memory tensors = _lie(node, 40, 1);
        (uint256 id, Game memory game) = _open(_newGame(0, 0));
        game = _revealLeaf(id, _descend(id, game, tensors, node, 0), tensors[node]);
        Opening[] memory openings = _openings(game, tensors, node, 40);
        uint256 named = openings[1].firstLeaf;
        uint256 other = (named + 1) % s.records.length;
        Opening memory right = openings[1];
        openings[1] = _record(1, other);
        _refused(
            id,
            game,
            tensors[node],
            node,
            openings,
            abi.encodeWithSelector(ICourt.MissingInput.selector, 0, named)
        );
        openings[1] = right;
        openings[1].input = 0;
        _refused(
            id,
            game,
            tensors[node],
            node,
            openings,
            abi.encodeWithSelector(ICourt.IndexOutOfRange.selector, 0, 2)
        );
        openings[1].input = 1;
        openings[0].data[0] ^= 0x01;
        _refused(id, game, tensors[node], node, openings, abi.encodeWithSelector(ICourt.BadProof.selector));
        openings[0].data[0] ^= 0x01;
        Opening[] memory alone = new Opening[](1);
        alone[0] = openings[0];
        _refused(
            id, game, tensors[node], node, alone, abi.encodeWithSelector(ICourt.WrongCount.selector, 2, 1)
        );
        _prove(id, game, tensors, 40);
        assertEq(challenges.verdicts(id), 2);
    }

    function _refused(
        uint256 id,
        Game memory game,
        bytes memory tensor,
        uint256 node,
        Opening[] memory openings,
        bytes memory why
    ) private {
        vm.expectRevert(why);
        vm.prank(challenger);
        _proveAs(id, game, tensor, s.nodes[node], 40, openings);
    }

    /// @dev The fixture's first node of this operation.
    function _first(uint8 op) private view returns (uint256 node) {
        while (uint8(s.nodes[node][0]) != op) ++node;
    }

    /// @notice A malformed node convicts nobody: the challenger's clock runs on.
    function test_malformedNodeConvictsNobody() external {
        s.nodes[12][1] = 0x00; // iadd that claims to give f32
        _seal(1);
        (uint256 id, Game memory game) = _open(_newGame(0, 0));
        game = _revealLeaf(id, _descend(id, game, s.honest, 12, 0), s.honest[12]);
        Opening[] memory openings = _openings(game, s.honest, 12, 0);
        vm.expectRevert(ICourt.MalformedNode.selector);
        vm.prank(challenger);
        _proveAs(id, game, s.honest[12], s.nodes[12], 0, openings);
        vm.warp(game.cursor.deadline + 1);
        court.timeout(id, game);
        assertEq(challenges.verdicts(id), 1);
    }

    /// @notice A `state` node beyond the slots, or another node among them, convicts nobody.
    function test_stateNodesStandFirstOrConvictNobody() external {
        s.nodes[1] = s.nodes[12];
        _seal(1);
        (uint256 id, Game memory game) = _open(_newGame(0, 0));
        game = _revealLeaf(id, _descend(id, game, s.honest, 1, 0), s.honest[1]);
        vm.expectRevert(ICourt.MalformedNode.selector);
        vm.prank(challenger);
        _proveAs(id, game, s.honest[1], s.nodes[1], 0, new Opening[](0));
    }
}
