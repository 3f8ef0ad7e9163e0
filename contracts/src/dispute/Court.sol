// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {NodeRules} from "../arbiter/NodeRules.sol";
import {Node, Nodes} from "../arbiter/Nodes.sol";
import {IChallenges} from "../interfaces/IChallenges.sol";
import {IClock} from "../interfaces/IClock.sol";
import {Context, Cursor, Game, GamePhase, IArbiter, ICourt, Opening} from "../interfaces/ICourt.sol";
import {Merkle} from "../libraries/Merkle.sol";
import {Deadlines} from "../market/Deadlines.sol";
import {Bisection} from "./Bisection.sol";
import {Elements} from "./Elements.sol";
import {Games} from "./Games.sol";
import {Leaves} from "./Leaves.sol";
import {Openings} from "./Openings.sol";

/// @title The dispute game
/// @notice docs/protocol.md, section 6. Holds one hash a game and no tokens; only the two players can move, and only in
/// their own phases, so a copied move is worth nothing.
contract Court is ICourt, Deadlines {
    using Games for Game;

    address private immutable CHALLENGES;
    IArbiter private immutable ELEMENTWISE;
    IArbiter private immutable TRANSCENDENTAL;
    IArbiter private immutable CONTRACTION;
    IArbiter private immutable INDEX;

    /// @dev The next game's id. It starts at 1, so that no game pays for a slot that was zero, and no id is 0.
    uint256 private _nextId = 1;
    mapping(uint256 gameId => bytes32) private _hashes;

    constructor(
        address challenges,
        IArbiter elementwise,
        IArbiter transcendental,
        IArbiter contraction,
        IArbiter index,
        IClock clock
    ) Deadlines(clock) {
        CHALLENGES = challenges;
        ELEMENTWISE = elementwise;
        TRANSCENDENTAL = transcendental;
        CONTRACTION = contraction;
        INDEX = index;
    }

    // ---- external

    function open(Game calldata game) external returns (uint256 gameId) {
        if (msg.sender != CHALLENGES) revert NotChallenges();
        unchecked {
            gameId = _nextId++;
        }
        (Context memory context, Cursor memory cursor) = (game.context, game.cursor);
        (context.traceRoot, context.node, context.size, context.nodeHash) = (0, 0, 0, 0);
        (cursor.digest, cursor.level, cursor.index, cursor.revealed) = (0, 0, 0, 0);
        if (game.context.steps == 0) {
            Bisection.openState(cursor, game.context.outRoot, game.params.program.slots);
        } else {
            cursor.phase = game.context.steps > 1 ? GamePhase.STEPS : GamePhase.TRACE;
            cursor.leaves = game.params.program.nodes;
        }
        cursor.deadline = uint64(block.timestamp) + cursor.moveTime;
        _hashes[gameId] = Games.hash(Games.contextHash(game.paramsHash(), context), cursor);
        emit GameOpened(gameId, game.params.claimId, Game(game.params, context, cursor));
    }

    function revealSteps(
        uint256 gameId,
        bytes32 paramsHash,
        Context calldata context,
        Cursor calldata cursor,
        bytes32[] calldata roots
    ) external {
        bytes32 contextHash = Games.contextHashOf(paramsHash, context);
        _enter(gameId, contextHash, cursor, GamePhase.STEPS);
        if (roots.length != context.steps - 1) revert WrongCount(context.steps - 1, roots.length);
        Cursor memory next = cursor;
        next.phase = GamePhase.PICK_STEP;
        next.revealed = Games.digestOf(roots);
        _turn(gameId, contextHash, next);
        emit Narrowed(gameId, next, roots);
    }

    function pickStep(
        uint256 gameId,
        bytes32 paramsHash,
        Context calldata context,
        Cursor calldata cursor,
        bytes32[] calldata roots,
        uint32 j
    ) external {
        _enter(gameId, Games.contextHashOf(paramsHash, context), cursor, GamePhase.PICK_STEP);
        if (Games.digestOf(roots) != cursor.revealed) revert WrongChildren();
        if (j >= context.steps) revert IndexOutOfRange(j, context.steps);
        (Context memory within, Cursor memory next) = (context, cursor);
        next.phase = GamePhase.TRACE;
        next.revealed = 0;
        within.step += j;
        within.steps = 1;
        if (j > 0) within.inRoot = roots[j - 1];
        if (j < roots.length) {
            within.outRoot = roots[j];
            within.key = 0; // an inner state root is nobody's keyed trace
        }
        _turn(gameId, Games.contextHash(paramsHash, within), next);
        emit Moved(gameId, GamePhase.PICK_STEP, within, next, new bytes32[](0));
    }

    function revealTrace(
        uint256 gameId,
        bytes32 paramsHash,
        Context calldata context,
        Cursor calldata cursor,
        bytes32 traceRoot,
        bytes32[] calldata children
    ) external {
        _enter(gameId, Games.contextHashOf(paramsHash, context), cursor, GamePhase.TRACE);
        if (context.key != 0 && traceRoot != context.outRoot) revert WrongChildren();
        (Context memory within, Cursor memory next) = (context, cursor);
        next.phase = GamePhase.PICK_NODE;
        within.traceRoot = traceRoot;
        next.digest = traceRoot;
        next.level = uint32(Merkle.depth(cursor.leaves));
        next.revealed = Bisection.opened(next.level, children);
        _turn(gameId, Games.contextHash(paramsHash, within), next);
        emit Moved(gameId, GamePhase.TRACE, within, next, children);
    }

    function split(uint256 gameId, bytes32 contextHash, Cursor calldata cursor, bytes32[] calldata children)
        external
    {
        GamePhase phase = cursor.phase;
        _enter(gameId, contextHash, cursor, Bisection.splits(phase) ? phase : GamePhase.SPLIT_NODE);
        Cursor memory next = cursor;
        next.revealed = Bisection.opened(cursor.level, children);
        next.phase = Bisection.pickAfter(phase);
        _turn(gameId, contextHash, next);
        emit Narrowed(gameId, next, children);
    }

    function pickWithin(
        uint256 gameId,
        bytes32 contextHash,
        Cursor calldata cursor,
        uint32 child,
        bytes32 digest,
        bytes32[] calldata siblings
    ) external {
        GamePhase phase = cursor.phase;
        _enter(gameId, contextHash, cursor, Bisection.picks(phase) ? phase : GamePhase.PICK_NODE);
        Cursor memory next = Bisection.picked(cursor, child, digest, siblings);
        if (next.index >= cursor.leaves) revert IndexOutOfRange(next.index, cursor.leaves);
        if (next.level == 0) {
            if (phase != GamePhase.PICK_LEAF) revert WrongPhase(phase); // `pick` brings the node along
            next.phase = GamePhase.REVEAL_LEAF;
        } else {
            next.phase = Bisection.splitAfter(phase);
        }
        _turn(gameId, contextHash, next);
        emit Narrowed(gameId, next, new bytes32[](0));
    }

    function pick(
        uint256 gameId,
        Game calldata game,
        uint32 child,
        bytes32 digest,
        bytes32[] calldata siblings,
        bytes calldata node,
        bytes32[] calldata nodeProof
    ) external {
        _enter(gameId, game, Bisection.picks(game.cursor.phase) ? game.cursor.phase : GamePhase.PICK_NODE);
        Cursor memory next = Bisection.picked(game.cursor, child, digest, siblings);
        if (next.index < game.cursor.leaves) return _goOn(gameId, game, next, node, nodeProof);
        // INVARIANT: what lies wholly beyond the last leaf is padding, whoever built the tree.
        if (digest == Merkle.zero(next.level)) revert NoDifference();
        _decide(gameId, game, true, "padding");
    }

    function proveChildren(uint256 gameId, Game calldata game, bytes32[] calldata children) external {
        _enter(gameId, game, Bisection.picks(game.cursor.phase) ? game.cursor.phase : GamePhase.PICK_NODE);
        if (Games.digestOf(children) != game.cursor.revealed) revert WrongChildren();
        if (Merkle.fold(children) == game.cursor.digest) revert NoDifference();
        _decide(gameId, game, true, "children");
    }

    function openOutput(uint256 gameId, Game calldata game) external {
        _enter(gameId, game, GamePhase.PICK_NODE);
        if (game.context.key != 0) revert WrongPhase(game.cursor.phase);
        (Context memory context, Cursor memory next) = (game.context, game.cursor);
        Bisection.openState(next, game.context.outRoot, game.params.program.slots);
        _turn(gameId, Games.contextHash(game.paramsHash(), context), next);
        emit Moved(gameId, GamePhase.PICK_NODE, context, next, new bytes32[](0));
    }

    function proveOutput(
        uint256 gameId,
        Game calldata game,
        uint32 slot,
        uint32 ref,
        bytes32[] calldata refProof,
        bytes32 stateLeaf,
        bytes32[] calldata stateProof,
        bytes32 traceLeaf,
        bytes32[] calldata traceProof
    ) external {
        _enter(
            gameId,
            game,
            game.cursor.phase == GamePhase.PICK_OUTPUT ? GamePhase.PICK_OUTPUT : GamePhase.PICK_NODE
        );
        // Where an input state is disputed there is no trace yet, and traceRoot is nobody's.
        if (game.context.key != 0 || game.context.steps == 0) revert WrongPhase(game.cursor.phase);
        if (stateLeaf == traceLeaf) revert NoDifference();
        uint256 slots = game.params.program.slots;
        uint256 nodes = game.params.program.nodes;
        if (slot >= slots) revert IndexOutOfRange(slot, slots);
        bytes32 output = Merkle.leaf(abi.encodePacked(ref));
        if (
            !Merkle.verify(game.params.program.root, output, 1 + nodes + slot, 1 + nodes + slots, refProof)
                || !Merkle.verify(game.context.outRoot, stateLeaf, slot, slots, stateProof)
                || !Merkle.verify(game.context.traceRoot, traceLeaf, ref, nodes, traceProof)
        ) revert BadProof();
        _decide(gameId, game, true, "output");
    }

    function revealLeaf(
        uint256 gameId,
        bytes32 paramsHash,
        Context calldata context,
        Cursor calldata cursor,
        bytes calldata data
    ) external {
        bytes32 contextHash = Games.contextHashOf(paramsHash, context);
        _enter(gameId, contextHash, cursor, GamePhase.REVEAL_LEAF);
        uint256 size = Openings.leafSize(context.size, cursor.index);
        if (data.length != size) revert WrongCount(size, data.length);
        if (Openings.hash(context.key, data) != cursor.digest) revert BadProof();
        Cursor memory next = cursor;
        next.phase = GamePhase.PROVE;
        next.revealed = Leaves.root(data);
        _turn(gameId, contextHash, next);
        emit LeafRevealed(gameId, next, data);
    }

    function prove(
        uint256 gameId,
        Game calldata game,
        bytes32 word,
        bytes32[] calldata wordProof,
        bytes calldata node,
        uint64 element,
        Opening[] calldata openings
    ) external {
        _enter(gameId, game, GamePhase.PROVE);
        if (keccak256(node) != game.context.nodeHash) revert BadProof();
        Node memory decoded = Nodes.decode(node);
        uint256 revealed = Elements.revealed(game, word, wordProof, element, Nodes.width(decoded.dtype));
        if (!NodeRules.canonical(revealed, decoded.dtype)) {
            return _decide(gameId, game, true, "leaf");
        }
        if (revealed == _expected(game, decoded, node, element, openings)) revert NoDifference();
        _decide(gameId, game, true, "arithmetic");
    }

    function timeout(uint256 gameId, Game calldata game) external {
        _known(gameId, game);
        if (!_passed(game.cursor.deadline)) revert DeadlineNotPassed(game.cursor.deadline);
        _decide(gameId, game, !Bisection.challengerMoves(game.cursor.phase), "timeout");
    }

    function gameHash(uint256 gameId) external view returns (bytes32) {
        return _hashes[gameId];
    }

    // ---- moves

    function _known(uint256 gameId, Game calldata game) private view {
        bytes32 stored = _hashes[gameId];
        if (stored == 0 || stored != game.hash()) revert WrongGame(gameId);
    }

    /// @dev The game stands as given, in `phase`, its clock runs, and the caller is the one to move.
    function _enter(uint256 gameId, Game calldata game, GamePhase phase) private view {
        _known(gameId, game);
        _require(game.cursor, phase);
    }

    /// @dev The same for a game of which the part before the cursor is known by its hash.
    function _enter(uint256 gameId, bytes32 contextHash, Cursor calldata cursor, GamePhase phase)
        private
        view
    {
        if (_hashes[gameId] != Games.hashOf(contextHash, cursor)) revert WrongGame(gameId);
        _require(cursor, phase);
    }

    function _require(Cursor calldata cursor, GamePhase phase) private view {
        if (cursor.phase != phase) revert WrongPhase(cursor.phase);
        address mover = Bisection.challengerMoves(phase) ? cursor.challenger : cursor.defender;
        if (msg.sender != mover) revert NotYourMove(mover);
        if (_passed(cursor.deadline)) revert DeadlinePassed(cursor.deadline);
    }

    /// @dev Hands the move over and starts the other side's clock.
    function _turn(uint256 gameId, bytes32 contextHash, Cursor memory next) private {
        next.deadline = uint64(block.timestamp) + next.moveTime;
        _hashes[gameId] = Games.hash(contextHash, next);
    }

    // ---- verdicts and phases

    function _decide(uint256 gameId, Game calldata game, bool challengerWon, string memory reason) private {
        delete _hashes[gameId];
        emit GameDecided(gameId, game.params.claimId, challengerWon, reason);
        // INVARIANT: takes every verdict. It calls no token, and what it does is bounded.
        IChallenges(CHALLENGES).resolve(gameId, game, challengerWon);
    }

    // ---- trees and elements

    /// @dev Hands over a game whose picked child, at `next`, is no padding.
    function _goOn(
        uint256 gameId,
        Game calldata game,
        Cursor memory next,
        bytes calldata node,
        bytes32[] calldata nodeProof
    ) private {
        GamePhase phase = game.cursor.phase;
        Context memory context = game.context;
        if (phase == GamePhase.PICK_NODE && next.level == 0) {
            Bisection.enterNode(game.params.program, context, next, node, nodeProof);
        } else {
            if (node.length + nodeProof.length != 0) revert WrongCount(0, node.length + nodeProof.length);
            if (next.level > 0) next.phase = Bisection.splitAfter(phase);
            else if (phase == GamePhase.PICK_LEAF) next.phase = GamePhase.REVEAL_LEAF;
            else revert WrongPhase(phase); // a slot's digest is not opened further: proveOutput ends it
        }
        _turn(gameId, Games.contextHash(game.paramsHash(), context), next);
        emit Moved(gameId, phase, context, next, new bytes32[](0));
    }

    /// @dev What the element's bits must be.
    function _expected(
        Game calldata game,
        Node memory decoded,
        bytes calldata node,
        uint64 element,
        Opening[] calldata openings
    ) private view returns (uint256) {
        uint256 op = decoded.op;
        // INVARIANT: the first `slots` nodes are the state, and no others.
        if ((op == Nodes.STATE) != (game.context.node < game.params.program.slots)) revert MalformedNode();
        if (op == Nodes.STATE) return Elements.ofState(game, decoded, element, openings);
        if (op == Nodes.DATA || op == Nodes.RECORD) {
            return Elements.ofRecord(game, decoded, element, openings);
        }
        if (op == Nodes.STEP || op == Nodes.SHARD) return Elements.ofCounter(game, decoded);
        return _arbiter(op).evaluate(node, element, Openings.spans(game, decoded.inputs, openings));
    }

    function _arbiter(uint256 op) private view returns (IArbiter) {
        if (op >= Nodes.STRIDED) return INDEX;
        if (op >= Nodes.SUM) return CONTRACTION;
        if ((op >= Nodes.EXP && op <= Nodes.COS) || op == Nodes.POW) return TRANSCENDENTAL;
        return ELEMENTWISE;
    }
}
