// SPDX-License-Identifier: MIT
pragma solidity ^0.8.28;

import {NodeRules} from "../arbiter/NodeRules.sol";
import {Node, Nodes} from "../arbiter/Nodes.sol";
import {Front, Game, GamePhase, IArbiter, ICourt, Opening, Scope} from "../interfaces/ICourt.sol";
import {IChallenges} from "../interfaces/IMarket.sol";
import {Merkle} from "../libraries/Merkle.sol";
import {Descent} from "./Descent.sol";
import {Elements} from "./Elements.sol";
import {Games} from "./Games.sol";
import {Leaves} from "./Leaves.sol";
import {Openings} from "./Openings.sol";

/// @title The dispute game
/// @notice docs/protocol.md, section 6. Holds one hash a game and no tokens; only the two players can move, and only in
/// their own phases, so a copied move is worth nothing.
contract Court is ICourt {
    using Games for Game;

    address private immutable CHALLENGES;
    IArbiter private immutable ELEMENTWISE;
    IArbiter private immutable TRANSCENDENTAL;
    IArbiter private immutable CONTRACTION;
    IArbiter private immutable INDEX;

    /// @dev The next game's id. It starts at 1, so that no game pays for a slot that was zero, and no id is 0.
    uint256 private _nextId = 1;
    mapping(uint256 gameId => bytes32) private _hashes;
    /// @dev keccak256(game.hash(), challengerWon) of a verdict that Challenges could not take.
    mapping(uint256 gameId => bytes32) private _undelivered;

    constructor(
        address challenges,
        IArbiter elementwise,
        IArbiter transcendental,
        IArbiter contraction,
        IArbiter index
    ) {
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
        (Scope memory scope, Front memory front) = (game.scope(), game.front());
        (scope.traceRoot, scope.node, scope.size, scope.nodeHash) = (0, 0, 0, 0);
        (front.digest, front.level, front.index, front.revealed) = (0, 0, 0, 0);
        if (game.steps == 0) {
            Descent.openState(front, game.outRoot, game.program.slots);
        } else {
            front.phase = game.steps > 1 ? GamePhase.STEPS : GamePhase.TRACE;
            front.leaves = game.program.nodes;
        }
        front.deadline = uint64(block.timestamp) + front.moveTime;
        _hashes[gameId] = Games.hash(Games.matter(game.basis(), scope), front);
        game.log(gameId, scope, front);
    }

    function revealSteps(
        uint256 gameId,
        bytes32 basis,
        Scope calldata scope,
        Front calldata front,
        bytes32[] calldata roots
    ) external {
        bytes32 matter = Games.matterOf(basis, scope);
        _enter(gameId, matter, front, GamePhase.STEPS);
        if (roots.length != scope.steps - 1) revert WrongCount(scope.steps - 1, roots.length);
        Front memory next = front;
        next.phase = GamePhase.PICK_STEP;
        next.revealed = Games.digestOf(roots);
        _narrow(gameId, matter, next, roots);
    }

    function pickStep(
        uint256 gameId,
        bytes32 basis,
        Scope calldata scope,
        Front calldata front,
        bytes32[] calldata roots,
        uint32 j
    ) external {
        _enter(gameId, Games.matterOf(basis, scope), front, GamePhase.PICK_STEP);
        if (Games.digestOf(roots) != front.revealed) revert WrongChildren();
        if (j >= scope.steps) revert IndexOutOfRange(j, scope.steps);
        (Scope memory within, Front memory next) = (scope, front);
        next.phase = GamePhase.TRACE;
        next.revealed = 0;
        within.step += j;
        within.steps = 1;
        if (j > 0) within.inRoot = roots[j - 1];
        if (j < roots.length) {
            within.outRoot = roots[j];
            within.key = 0; // an inner state root is nobody's keyed trace
        }
        _leave(gameId, basis, within, next, GamePhase.PICK_STEP, new bytes32[](0));
    }

    function revealTrace(
        uint256 gameId,
        bytes32 basis,
        Scope calldata scope,
        Front calldata front,
        bytes32 traceRoot,
        bytes32[] calldata children
    ) external {
        _enter(gameId, Games.matterOf(basis, scope), front, GamePhase.TRACE);
        if (scope.key != 0 && traceRoot != scope.outRoot) revert WrongChildren();
        (Scope memory within, Front memory next) = (scope, front);
        next.phase = GamePhase.PICK_NODE;
        within.traceRoot = traceRoot;
        next.digest = traceRoot;
        next.level = uint32(Merkle.depth(front.leaves));
        next.revealed = Descent.opened(next.level, children);
        _leave(gameId, basis, within, next, GamePhase.TRACE, children);
    }

    function split(uint256 gameId, bytes32 matter, Front calldata front, bytes32[] calldata children)
        external
    {
        GamePhase phase = front.phase;
        _enter(gameId, matter, front, Descent.splits(phase) ? phase : GamePhase.SPLIT_NODE);
        Front memory next = front;
        next.revealed = Descent.opened(front.level, children);
        next.phase = GamePhase(uint8(phase) - 1);
        _narrow(gameId, matter, next, children);
    }

    function pickWithin(
        uint256 gameId,
        bytes32 matter,
        Front calldata front,
        uint32 child,
        bytes32 digest,
        bytes32[] calldata siblings
    ) external {
        GamePhase phase = front.phase;
        _enter(gameId, matter, front, Descent.picks(phase) ? phase : GamePhase.PICK_NODE);
        Front memory next = Descent.picked(front, child, digest, siblings);
        if (next.index >= front.leaves) revert IndexOutOfRange(next.index, front.leaves);
        if (next.level == 0) {
            if (phase != GamePhase.PICK_LEAF) revert WrongPhase(phase); // `pick` brings the node along
            next.phase = GamePhase.REVEAL_LEAF;
        } else {
            next.phase = GamePhase(uint8(phase) + 1);
        }
        _narrow(gameId, matter, next, new bytes32[](0));
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
        _enter(gameId, game, Descent.picks(game.phase) ? game.phase : GamePhase.PICK_NODE);
        Front memory next = Descent.picked(game.front(), child, digest, siblings);
        if (next.index < game.leaves) return _goOn(gameId, game, next, node, nodeProof);
        // INVARIANT: what lies wholly beyond the last leaf is padding, whoever built the tree.
        if (digest == Merkle.zero(next.level)) revert NoDifference();
        _decide(gameId, game, true, "padding");
    }

    function proveChildren(uint256 gameId, Game calldata game, bytes32[] calldata children) external {
        _enter(gameId, game, Descent.picks(game.phase) ? game.phase : GamePhase.PICK_NODE);
        if (Games.digestOf(children) != game.revealed) revert WrongChildren();
        if (Merkle.fold(children) == game.digest) revert NoDifference();
        _decide(gameId, game, true, "children");
    }

    function openOutput(uint256 gameId, Game calldata game) external {
        _enter(gameId, game, GamePhase.PICK_NODE);
        if (game.key != 0) revert WrongPhase(game.phase);
        (Scope memory scope, Front memory next) = (game.scope(), game.front());
        Descent.openState(next, game.outRoot, game.program.slots);
        _leave(gameId, game.basis(), scope, next, GamePhase.PICK_NODE, new bytes32[](0));
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
            gameId, game, game.phase == GamePhase.PICK_OUTPUT ? GamePhase.PICK_OUTPUT : GamePhase.PICK_NODE
        );
        // Where an input state is disputed there is no trace yet, and traceRoot is nobody's.
        if (game.key != 0 || game.steps == 0) revert WrongPhase(game.phase);
        if (stateLeaf == traceLeaf) revert NoDifference();
        uint256 slots = game.program.slots;
        uint256 nodes = game.program.nodes;
        if (slot >= slots) revert IndexOutOfRange(slot, slots);
        bytes32 output = Merkle.leaf(abi.encodePacked(ref));
        if (
            !Merkle.verify(game.program.root, output, 1 + nodes + slot, 1 + nodes + slots, refProof)
                || !Merkle.verify(game.outRoot, stateLeaf, slot, slots, stateProof)
                || !Merkle.verify(game.traceRoot, traceLeaf, ref, nodes, traceProof)
        ) revert BadProof();
        _decide(gameId, game, true, "output");
    }

    function revealLeaf(
        uint256 gameId,
        bytes32 basis,
        Scope calldata scope,
        Front calldata front,
        bytes calldata data
    ) external {
        bytes32 matter = Games.matterOf(basis, scope);
        _enter(gameId, matter, front, GamePhase.REVEAL_LEAF);
        uint256 size = Openings.leafSize(scope.size, front.index);
        if (data.length != size) revert WrongCount(size, data.length);
        if (Openings.hash(scope.key, data) != front.digest) revert BadProof();
        Front memory next = front;
        next.phase = GamePhase.PROVE;
        next.revealed = Leaves.root(data);
        next.deadline = uint64(block.timestamp) + next.moveTime;
        _hashes[gameId] = Games.hash(matter, next);
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
        if (keccak256(node) != game.nodeHash) revert BadProof();
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
        if (block.timestamp <= game.deadline) revert DeadlineNotPassed(game.deadline);
        _decide(gameId, game, !Descent.challengerMoves(game.phase), "timeout");
    }

    function deliver(uint256 gameId, Game calldata game) external {
        bytes32 kept = _undelivered[gameId];
        bool challengerWon = kept == keccak256(abi.encode(game.hash(), true));
        bool defenderWon = kept == keccak256(abi.encode(game.hash(), false));
        if (!challengerWon && !defenderWon) revert NothingToDeliver(gameId);
        delete _undelivered[gameId];
        IChallenges(CHALLENGES).resolve(gameId, game, challengerWon);
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
        _require(game.front(), phase);
    }

    /// @dev The same for a game of which the part before the front is known by its hash.
    function _enter(uint256 gameId, bytes32 matter, Front calldata front, GamePhase phase) private view {
        if (_hashes[gameId] != Games.hashOf(matter, front)) revert WrongGame(gameId);
        _require(front, phase);
    }

    function _require(Front calldata front, GamePhase phase) private view {
        if (front.phase != phase) revert WrongPhase(front.phase);
        address mover = Descent.challengerMoves(phase) ? front.challenger : front.defender;
        if (msg.sender != mover) revert NotYourMove(mover);
        if (block.timestamp > front.deadline) revert DeadlinePassed(front.deadline);
    }

    /// @dev Hands the move over and starts the other side's clock.
    function _leave(
        uint256 gameId,
        bytes32 basis,
        Scope memory scope,
        Front memory next,
        GamePhase move,
        bytes32[] memory digests
    ) private {
        next.deadline = uint64(block.timestamp) + next.moveTime;
        _hashes[gameId] = Games.hash(Games.matter(basis, scope), next);
        emit Moved(gameId, move, scope, next, digests);
    }

    /// @dev The same for a move within a tree.
    function _narrow(uint256 gameId, bytes32 matter, Front memory next, bytes32[] memory children) private {
        next.deadline = uint64(block.timestamp) + next.moveTime;
        _hashes[gameId] = Games.hash(matter, next);
        emit Narrowed(gameId, next, children);
    }

    // ---- verdicts and phases

    /// @dev The verdict stands before anyone is told, and whatever happens to the telling.
    function _decide(uint256 gameId, Game calldata game, bool challengerWon, string memory reason) private {
        delete _hashes[gameId];
        emit GameDecided(gameId, game.claimId, challengerWon, reason);
        try IChallenges(CHALLENGES).resolve(gameId, game, challengerWon) {}
        catch {
            // Too little gas was sent along, or worse: anyone may try again.
            _undelivered[gameId] = keccak256(abi.encode(game.hash(), challengerWon));
            emit Undelivered(gameId, challengerWon);
        }
    }

    // ---- trees and elements

    /// @dev Hands over a game whose picked child, at `next`, is no padding.
    function _goOn(
        uint256 gameId,
        Game calldata game,
        Front memory next,
        bytes calldata node,
        bytes32[] calldata nodeProof
    ) private {
        GamePhase phase = game.phase;
        Scope memory scope = game.scope();
        if (phase == GamePhase.PICK_NODE && next.level == 0) {
            Descent.enterNode(game.program, scope, next, node, nodeProof);
        } else {
            if (node.length + nodeProof.length != 0) revert WrongCount(0, node.length + nodeProof.length);
            if (next.level > 0) next.phase = GamePhase(uint8(phase) + 1);
            else if (phase == GamePhase.PICK_LEAF) next.phase = GamePhase.REVEAL_LEAF;
            else revert WrongPhase(phase); // a slot's digest is not opened further: proveOutput ends it
        }
        _leave(gameId, game.basis(), scope, next, phase, new bytes32[](0));
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
        if ((op == Nodes.STATE) != (game.node < game.program.slots)) revert MalformedNode();
        if (op == Nodes.STATE) return Elements.ofState(game, decoded, element, openings);
        if (op == Nodes.DATA) return Elements.ofRecord(game, decoded, element, openings);
        if (op == Nodes.STEP) return Elements.ofStep(game, decoded);
        return _arbiter(op).evaluate(node, element, Openings.spans(game, decoded.inputs, openings));
    }

    function _arbiter(uint256 op) private view returns (IArbiter) {
        if (op >= Nodes.STRIDED) return INDEX;
        if (op >= Nodes.SUM) return CONTRACTION;
        if ((op >= Nodes.EXP && op <= Nodes.COS) || op == Nodes.POW) return TRANSCENDENTAL;
        return ELEMENTWISE;
    }
}
