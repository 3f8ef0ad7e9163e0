// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {Game, GamePhase, ICourt} from "../../src/interfaces/ICourt.sol";
import {CourtGame} from "./CourtGame.sol";
import {Tree, Trees} from "./Trees.sol";

/// @notice The ways of a game that whole games do not take: see Court.t.sol.
contract MovesTest is CourtGame {
    using Trees for Tree;

    function setUp() external {
        vm.warp(1_000_000);
        _load();
    }

    /// @notice Two steps are disputed by the state between them; one is opened at once.
    function test_twoStepsAreSplitAndOneIsNot() external {
        for (uint32 steps = 1; steps <= 2; ++steps) {
            Game memory start = _newGame(0, keccak256("end"));
            start.context.steps = steps;
            (uint256 id, Game memory game) = _open(start);
            assertEq(uint8(game.cursor.phase), uint8(steps == 1 ? GamePhase.TRACE : GamePhase.STEPS));
            if (steps == 1) continue;
            vm.recordLogs();
            vm.prank(defender);
            court.revealSteps(id, _basis(game), _scope(game), _front(game), new bytes32[](1));
            game = _within(game);
            vm.recordLogs();
            vm.prank(challenger);
            court.pickStep(id, _basis(game), _scope(game), _front(game), new bytes32[](1), 1);
            assertEq(_after(game).context.outRoot, keccak256("end"));
        }
    }

    /// @notice A pick with the whole game goes the same way as one within the tree, and brings no node inside a tensor.
    function test_aPickWithTheWholeGameGoesOn() external {
        Tree memory trace = Trees.over(s.honest, 0);
        Tree memory tensor = Trees.tensor(s.honest[18], 0);
        (uint256 id, Game memory game) = _open(_newGame(0, 0));
        game = _revealTrace(id, game, trace);
        vm.recordLogs();
        _lastPick(id, game, trace.children(7, 0), 2, "");
        game = _after(game);
        assertEq(uint8(game.cursor.phase), uint8(GamePhase.SPLIT_NODE));
        assertEq(game.cursor.index, 16);
        game = _split(id, _pick(id, _split(id, game, trace), trace, 18), tensor);
        vm.recordLogs();
        _lastPick(id, game, tensor.children(6, 0), 39, "");
        game = _after(game);
        assertEq(uint8(game.cursor.phase), uint8(GamePhase.REVEAL_LEAF));
        assertEq(game.cursor.index, 39);
    }

    /// @notice A node of the trace is not entered without its encoding, nor a slot of the state opened further.
    function test_aLeafOfTheTraceOrTheStateIsNotPickedWithin() external {
        Tree memory trace = Trees.over(s.honest, 0);
        Tree memory claimed = _outState(s.honest);
        (uint256 id, Game memory game) = _open(_newGame(0, claimed.root()));
        game = _split(id, _pick(id, _revealTrace(id, game, trace), trace, 18), trace);
        bytes32[] memory siblings = Trees.build(trace.children(3, 16)).proof(2);
        bytes32 digest = trace.levels[0][18];
        vm.expectRevert(abi.encodeWithSelector(ICourt.WrongPhase.selector, GamePhase.PICK_NODE));
        vm.prank(challenger);
        court.pickWithin(id, _matter(game), _front(game), 2, digest, siblings);
        vm.recordLogs();
        vm.prank(challenger);
        court.openOutput(id, game);
        game = _split(id, _after(game), claimed);
        siblings = claimed.proof(1);
        vm.expectRevert(abi.encodeWithSelector(ICourt.WrongPhase.selector, GamePhase.PICK_OUTPUT));
        vm.prank(challenger);
        court.pickWithin(id, _matter(game), _front(game), 1, claimed.levels[0][1], siblings);
    }

    function test_aNodeIsBroughtOnlyWhereOneIsEntered() external {
        Tree memory trace = Trees.over(s.honest, 0);
        (uint256 id, Game memory game) = _open(_newGame(0, 0));
        game = _revealTrace(id, game, trace);
        bytes32[] memory children = trace.children(7, 0);
        bytes32[] memory siblings = Trees.build(children).proof(0);
        vm.expectRevert(abi.encodeWithSelector(ICourt.WrongCount.selector, 0, 2));
        vm.prank(challenger);
        court.pick(id, game, 0, children[0], siblings, "x", new bytes32[](1));
    }
}
