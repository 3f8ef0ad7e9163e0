// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {Openings} from "../../src/dispute/Openings.sol";
import {Game, GamePhase, ICourt} from "../../src/interfaces/ICourt.sol";
import {Merkle} from "../../src/libraries/Merkle.sol";
import {CourtGame} from "./CourtGame.sol";
import {Tree, Trees} from "./Trees.sol";

/// @notice Attack 25: both sides let their clocks run to the last second, in the longest game that the program has.
contract LastSecondTest is CourtGame {
    using Trees for Tree;

    uint32 private constant STEPS = 4;
    uint256 private constant NODE = 18; // 40 leaves
    uint256 private constant LEAF = 35;

    uint256 private moves;

    function setUp() external {
        vm.warp(1_000_000);
        _load();
    }

    /// @dev The clock is at its last second, and one second later the move would come too late.
    function _late(Game memory game) private {
        vm.warp(game.cursor.deadline);
        ++moves;
    }

    function test_Attack25_everyMoveInTheLastSecondEndsWithinTheSumOfTheClocks() external {
        bytes[] memory tensors = _lie(NODE, Openings.LEAF_BYTES * LEAF + 8, 0x40);
        Game memory start = _newGame(0, keccak256("r4"));
        start.context.steps = STEPS;
        uint256 began = block.timestamp;
        (uint256 id, Game memory game) = _open(start);
        game = _toTheStep(id, game);
        game = _toTheLeaf(id, game, tensors);
        _late(game);
        game = _revealLeaf(id, game, tensors[NODE]);
        _late(game);
        _prove(id, game, tensors, (Openings.LEAF_BYTES * LEAF + 8) / 4);
        assertEq(challenges.verdicts(id), 2, "the challenger wins");
        assertEq(block.timestamp - began, moves * MOVE_TIME, "no clock was longer than a move's time");
        uint256 trace = Trees.movesFor(Merkle.depth(s.program.nodes));
        uint256 tensor = Trees.movesFor(Merkle.depth(Openings.leaves(tensors[NODE].length)));
        assertEq(moves, 4 + 2 * (trace > 0 ? trace : 1) + 2 * tensor, "the bound of rule 6.6 is reached");
    }

    /// @dev The step whose input is what both sides start from, so that the program's own step is disputed.
    function _toTheStep(uint256 id, Game memory game) private returns (Game memory) {
        bytes32[] memory roots = new bytes32[](STEPS - 1);
        for (uint256 i; i < roots.length; ++i) {
            roots[i] = keccak256(abi.encode("r", i + 1));
        }
        _late(game);
        vm.recordLogs();
        vm.prank(defender);
        court.revealSteps(id, _basis(game), _scope(game), _front(game), roots);
        game = _within(game);
        _late(game);
        vm.recordLogs();
        vm.prank(challenger);
        court.pickStep(id, _basis(game), _scope(game), _front(game), roots, 0);
        return _after(game);
    }

    function _toTheLeaf(uint256 id, Game memory game, bytes[] memory tensors) private returns (Game memory) {
        Tree memory trace = Trees.over(tensors, 0);
        _late(game);
        game = _revealTrace(id, game, trace);
        while (game.cursor.phase == GamePhase.PICK_NODE) {
            _late(game);
            game = _pick(id, game, trace, NODE);
            if (game.cursor.phase != GamePhase.SPLIT_NODE) break;
            _late(game);
            game = _split(id, game, trace);
        }
        Tree memory tensor = Trees.tensor(tensors[NODE], 0);
        while (game.cursor.phase == GamePhase.SPLIT_LEAF) {
            _late(game);
            game = _split(id, game, tensor);
            _late(game);
            game = _pick(id, game, tensor, LEAF);
        }
        return game;
    }

    /// @notice The second after the last is too late for the mover, and from then on anyone ends the game.
    function test_Attack25_theSecondAfterTheLastIsTooLate() external {
        (uint256 id, Game memory game) = _open(_newGame(0, keccak256("anything")));
        Tree memory trace = Trees.over(s.honest, 0);
        bytes32 root = trace.root();
        bytes32[] memory children = trace.children(trace.levels.length - 1, 0);
        vm.warp(game.cursor.deadline);
        vm.expectRevert(abi.encodeWithSelector(ICourt.DeadlineNotPassed.selector, game.cursor.deadline));
        court.timeout(id, game);
        vm.warp(game.cursor.deadline + 1);
        vm.expectRevert(abi.encodeWithSelector(ICourt.DeadlinePassed.selector, game.cursor.deadline));
        vm.prank(defender);
        court.revealTrace(id, _basis(game), _scope(game), _front(game), root, children);
        court.timeout(id, game);
        assertEq(challenges.verdicts(id), 2, "the defender let its clock run out");
    }
}
