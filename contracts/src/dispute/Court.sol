// SPDX-License-Identifier: MIT
pragma solidity ^0.8.28;

import {NodeRules} from "../arbiter/NodeRules.sol";
import {Node, Nodes} from "../arbiter/Nodes.sol";
import {Front, Game, GamePhase, IArbiter, ICourt, Opening, Scope} from "../interfaces/ICourt.sol";
import {IChallenges} from "../interfaces/IMarket.sol";
import {Merkle} from "../libraries/Merkle.sol";
import {Games} from "./Games.sol";
import {Leaves} from "./Leaves.sol";
import {Openings} from "./Openings.sol";

/// @title The dispute game
/// @notice docs/protocol.md, section 6. Holds one hash a game and no tokens; only the two players can move, and only in
/// their own phases, so a copied move is worth nothing.
contract Court is ICourt {
    using Games for Game;

    uint256 private constant LEVELS = 6; // levels that one move opens at most
    uint256 private constant STEP_MASK = 0x7fffffff;

    address private immutable CHALLENGES;
    IArbiter private immutable ELEMENTWISE;
    IArbiter private immutable TRANSCENDENTAL;
    IArbiter private immutable CONTRACTION;
    IArbiter private immutable INDEX;

    uint256 private _games;
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
        gameId = ++_games;
        (Scope memory scope, Front memory front) = (game.scope(), game.front());
        (scope.traceRoot, scope.node, scope.size, scope.nodeHash) = (0, 0, 0, 0);
        (front.digest, front.level, front.index, front.revealed) = (0, 0, 0, 0);
        if (game.steps == 0) {
            _openState(front, game.outRoot, game.program.slots);
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
        _enter(gameId, Games.matterOf(basis, scope), front, GamePhase.STEPS);
        if (roots.length != scope.steps - 1) revert WrongCount(scope.steps - 1, roots.length);
        Front memory next = front;
        next.phase = GamePhase.PICK_STEP;
        next.revealed = keccak256(abi.encodePacked(roots));
        _leave(gameId, basis, scope, next, GamePhase.STEPS, roots);
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
        if (keccak256(abi.encodePacked(roots)) != front.revealed) revert WrongChildren();
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
        _requireOpened(traceRoot, next.level, children);
        _leave(gameId, basis, within, next, GamePhase.TRACE, children);
    }

    function split(uint256 gameId, bytes32 matter, Front calldata front, bytes32[] calldata children)
        external
    {
        GamePhase phase = front.phase;
        _enter(gameId, matter, front, _splits(phase) ? phase : GamePhase.SPLIT_NODE);
        _requireOpened(front.digest, front.level, children);
        Front memory next = front;
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
        _enter(gameId, matter, front, _picks(phase) ? phase : GamePhase.PICK_NODE);
        Front memory next = _picked(front, child, digest, siblings);
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
        _enter(gameId, game, _picks(game.phase) ? game.phase : GamePhase.PICK_NODE);
        Front memory next = _picked(game.front(), child, digest, siblings);
        if (next.index < game.leaves) return _goOn(gameId, game, next, node, nodeProof);
        // INVARIANT: what lies wholly beyond the last leaf is padding, whoever built the tree.
        if (digest == Merkle.zero(next.level)) revert NoDifference();
        _decide(gameId, game, true, "padding");
    }

    function openOutput(uint256 gameId, Game calldata game) external {
        _enter(gameId, game, GamePhase.PICK_NODE);
        if (game.key != 0) revert WrongPhase(game.phase);
        (Scope memory scope, Front memory next) = (game.scope(), game.front());
        _openState(next, game.outRoot, game.program.slots);
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
        uint256 revealed = _element(game, word, wordProof, element, Nodes.width(decoded.dtype));
        if (!NodeRules.canonical(revealed, decoded.dtype)) {
            return _decide(gameId, game, true, "leaf");
        }
        if (revealed == _expected(game, decoded, node, element, openings)) revert NoDifference();
        _decide(gameId, game, true, "arithmetic");
    }

    function timeout(uint256 gameId, Game calldata game) external {
        _known(gameId, game);
        if (block.timestamp <= game.deadline) revert DeadlineNotPassed(game.deadline);
        _decide(gameId, game, !_challengerMoves(game.phase), "timeout");
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
        address mover = _challengerMoves(phase) ? front.challenger : front.defender;
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

    function _splits(GamePhase phase) private pure returns (bool) {
        return
            phase == GamePhase.SPLIT_NODE || phase == GamePhase.SPLIT_LEAF || phase == GamePhase.SPLIT_OUTPUT;
    }

    function _picks(GamePhase phase) private pure returns (bool) {
        return phase == GamePhase.PICK_NODE || phase == GamePhase.PICK_LEAF || phase == GamePhase.PICK_OUTPUT;
    }

    function _challengerMoves(GamePhase phase) private pure returns (bool) {
        return uint8(phase) & 1 == 1;
    }

    /// @dev From here on the defender opens outRoot's tree.
    function _openState(Front memory next, bytes32 outRoot, uint32 slots) private pure {
        next.phase = GamePhase.SPLIT_OUTPUT;
        next.digest = outRoot;
        next.level = uint32(Merkle.depth(slots));
        next.leaves = slots;
        next.index = 0;
    }

    // ---- trees

    /// @dev Levels that a move opens of a tree with `level` levels left: as few moves as LEVELS allows, of even height.
    // casting to 'uint32' is safe because it is at most LEVELS
    // forge-lint: disable-next-item(unsafe-typecast)
    function _height(uint256 level) private pure returns (uint32) {
        if (level <= LEVELS) return uint32(level);
        uint256 moves = (level + LEVELS - 1) / LEVELS;
        return uint32((level + moves - 1) / moves);
    }

    /// @dev The front with the picked child as the tree node in dispute; its phase is still the old one.
    function _picked(Front calldata front, uint32 child, bytes32 digest, bytes32[] calldata siblings)
        private
        view
        returns (Front memory next)
    {
        uint32 height = _height(front.level);
        if (child >> height != 0) revert IndexOutOfRange(child, uint256(1) << height);
        if (siblings.length != height || Merkle.fold(digest, child, siblings) != front.digest) {
            revert WrongChildren();
        }
        next = front;
        next.level = front.level - height;
        next.digest = digest;
        next.index = front.index + (uint64(child) << next.level);
    }

    /// @dev Checks that `children` are the descendants of `digest`, `level` levels above its leaves, one move below it.
    function _requireOpened(bytes32 digest, uint256 level, bytes32[] calldata children) private view {
        uint256 count = uint256(1) << _height(level);
        if (children.length != count) revert WrongCount(count, children.length);
        if (Merkle.fold(children) != digest) revert WrongChildren();
    }

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
            _enterNode(game, scope, next, node, nodeProof);
        } else {
            if (node.length + nodeProof.length != 0) revert WrongCount(0, node.length + nodeProof.length);
            if (next.level > 0) next.phase = GamePhase(uint8(phase) + 1);
            else if (phase == GamePhase.PICK_LEAF) next.phase = GamePhase.REVEAL_LEAF;
            else revert WrongPhase(phase); // a slot's digest is not opened further: proveOutput ends it
        }
        _leave(gameId, game.basis(), scope, next, phase, new bytes32[](0));
    }

    /// @dev The picked trace leaf is node next.index: from here on the game is about its output tensor.
    function _enterNode(
        Game calldata game,
        Scope memory scope,
        Front memory next,
        bytes calldata node,
        bytes32[] calldata proof
    ) private view {
        uint256 count = 1 + uint256(game.program.nodes) + game.program.slots;
        if (!Merkle.verify(game.program.root, Openings.hash(0, node), 1 + next.index, count, proof)) {
            revert BadProof();
        }
        uint256 size = Nodes.sizeOf(Nodes.decode(node));
        uint256 leaves = Openings.leaves(size);
        scope.node = uint32(next.index);
        scope.nodeHash = keccak256(node);
        // casting to 'uint64' is safe because a tensor has at most 2^28 elements of 4 bytes
        // forge-lint: disable-next-line(unsafe-typecast)
        scope.size = uint64(size);
        next.level = uint32(Merkle.depth(leaves));
        // forge-lint: disable-next-line(unsafe-typecast)
        next.leaves = uint64(leaves);
        next.index = 0;
        next.phase = leaves == 1 ? GamePhase.REVEAL_LEAF : GamePhase.SPLIT_LEAF;
    }

    // ---- one element

    /// @dev Bits of element `element` of the tensor, which must lie in the revealed leaf, in its word `word`.
    function _element(
        Game calldata game,
        bytes32 word,
        bytes32[] calldata proof,
        uint256 element,
        uint256 width
    ) private pure returns (uint256 bits) {
        uint256 start = game.index * Openings.LEAF_BYTES;
        uint256 cursor = element * width;
        if (cursor < start || cursor + width > start + Openings.leafSize(game.size, game.index)) {
            revert IndexOutOfRange(element, game.size / width);
        }
        cursor -= start;
        if (!Leaves.verify(game.revealed, word, cursor / 32, proof)) revert BadProof();
        for (uint256 i = cursor % 32 + width; i > cursor % 32; --i) {
            bits = (bits << 8) | uint8(word[i - 1]);
        }
    }

    /// @dev `width` bytes from `cursor` on, little-endian.
    function _bits(bytes calldata data, uint256 cursor, uint256 width) private pure returns (uint256 bits) {
        for (uint256 i = width; i > 0; --i) {
            bits = (bits << 8) | uint8(data[cursor + i - 1]);
        }
    }

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
        if (op == Nodes.STATE) return _stateElement(game, decoded, element, openings);
        if (op == Nodes.DATA) return _dataElement(game, decoded, element, openings);
        if (op == Nodes.STEP) {
            NodeRules.checkSource(decoded);
            return game.step & STEP_MASK;
        }
        return _arbiter(op).evaluate(node, element, Openings.spans(game, decoded.inputs, openings));
    }

    function _arbiter(uint256 op) private view returns (IArbiter) {
        if (op >= Nodes.STRIDED) return INDEX;
        if (op >= Nodes.SUM) return CONTRACTION;
        if ((op >= Nodes.EXP && op <= Nodes.COS) || op == Nodes.POW) return TRANSCENDENTAL;
        return ELEMENTWISE;
    }

    /// @dev The same element of the slot's tensor in the accepted input state.
    function _stateElement(
        Game calldata game,
        Node memory decoded,
        uint256 element,
        Opening[] calldata openings
    ) private view returns (uint256) {
        NodeRules.checkSource(decoded);
        if (decoded.attrs[0] != int256(uint256(game.node))) revert MalformedNode();
        Opening calldata opening = _only(openings, element);
        bytes32 root = Openings.tensorRoot(opening, game.size, 0);
        if (!Merkle.verify(game.inRoot, root, game.node, game.program.slots, opening.path)) {
            revert BadProof();
        }
        uint256 width = Nodes.width(decoded.dtype);
        uint256 start = opening.firstLeaf * Openings.LEAF_BYTES;
        uint256 cursor = element * width;
        if (cursor < start || cursor + width > start + opening.data.length) revert MissingInput(0, element);
        return _bits(opening.data, cursor - start, width);
    }

    /// @dev One byte of the record that the counters choose for this row (docs/protocol.md, 2.6).
    function _dataElement(
        Game calldata game,
        Node memory decoded,
        uint256 element,
        Opening[] calldata openings
    ) private view returns (uint256) {
        NodeRules.checkSource(decoded);
        uint256 columns = decoded.dims[1];
        uint256 offset = uint256(decoded.attrs[0]);
        if (game.records == 0 || offset + columns > game.recordSize) revert MalformedNode();
        bytes calldata data =
            _record(game, uint256(decoded.attrs[1]) + element / columns, _only(openings, element));
        return uint8(data[offset + element % columns]);
    }

    function _record(Game calldata game, uint256 row, Opening calldata opening)
        private
        view
        returns (bytes calldata data)
    {
        // casting to 'uint32' is safe because a dimension is at most 2^28; 'bytes8' means the first 8 bytes (rule 2.6)
        // forge-lint: disable-next-item(unsafe-typecast)
        bytes32 drawn =
            sha256(abi.encodePacked("assay/record/1", game.seed, game.shard, game.step, uint32(row)));
        // forge-lint: disable-next-item(unsafe-typecast)
        uint256 record = uint64(bytes8(drawn)) % game.records;
        data = opening.data;
        if (opening.firstLeaf != record) revert MissingInput(0, record);
        if (data.length != game.recordSize || opening.path.length != 0) revert BadProof();
        bytes32 digest = Openings.hash(0, data);
        if (!Merkle.verify(game.datasetRoot, digest, record, game.records, opening.siblings)) {
            revert BadProof();
        }
    }

    /// @dev The one opening of a node that has one source outside the trace.
    function _only(Opening[] calldata openings, uint256 element) private pure returns (Opening calldata) {
        if (openings.length == 0) revert MissingInput(0, element);
        if (openings.length > 1) revert WrongCount(1, openings.length);
        if (openings[0].input != 0) revert IndexOutOfRange(openings[0].input, 1);
        return openings[0];
    }
}
