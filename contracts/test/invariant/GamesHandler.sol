// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {Openings} from "../../src/dispute/Openings.sol";
import {IClock} from "../../src/interfaces/IClock.sol";
import {Game, GamePhase, ICourt, Opening} from "../../src/interfaces/ICourt.sol";
import {CourtGame} from "../dispute/CourtGame.sol";
import {Tree, Trees} from "../dispute/Trees.sol";

/// @notice Plays games one after the other: the honest side by the script, the liar at random. The liar is by turns the
/// defender, with one bit of one node planted, and the challenger of an honest trace, who points anywhere.
contract GamesHandler is CourtGame {
    using Trees for Tree;

    uint64 private constant LAG = 3;
    bytes32 private constant KEY = keccak256("a verifier's key");

    uint256 public id; // 0: no game is open
    Game internal game;
    bool public liarDefends;
    uint256 internal lie; // the liar's node: planted, or pointed at
    uint256 internal place; // byte of the lie in the node's output
    uint256 internal openedAt;
    uint256 internal moved; // when the last move was made
    uint256 internal left; // of `potential`, after the last move
    uint256 internal made; // moves of this game
    uint256 internal halted; // seconds that its moves came later than their deadlines
    uint256 public ended;
    mapping(string action => uint256) public calls;
    mapping(bytes32 key => bytes32[]) private honestRoots; // of the nodes' outputs

    constructor() {
        vm.warp(1_000_000);
        vm.roll(1000);
        _load();
        for (uint256 i; i < s.honest.length; ++i) {
            honestRoots[0].push(Trees.tensor(s.honest[i], 0).root());
            honestRoots[KEY].push(Trees.tensor(s.honest[i], KEY).root());
        }
    }

    // ---- actions

    /// @dev The next move of the open game, or a new game. Time passes first, as much as the clock allows.
    function advance(uint256 seed) external {
        if (id == 0) return _begin(seed);
        vm.warp(block.timestamp + bound(seed >> 128, 0, game.cursor.deadline - block.timestamp));
        if (seed % 16 == 3) _halt();
        bool challengers = uint8(game.cursor.phase) & 1 == 1;
        bool liarMoves = challengers != liarDefends;
        if (liarMoves && seed % 8 == 0) return _forfeit();
        if (game.cursor.phase == GamePhase.PROVE && liarMoves) return _proveNothing(seed);
        bytes32 before = keccak256(
            abi.encode(
                game.params.claimId,
                game.params.program,
                game.context.inRoot,
                game.context.outRoot,
                game.context.key
            )
        );
        (uint256 from, uint256 span, GamePhase phase) =
            (game.cursor.index, 1 << game.cursor.level, game.cursor.phase);
        _move(seed);
        if (id == 0) return;
        bytes32 later = keccak256(
            abi.encode(
                game.params.claimId,
                game.params.program,
                game.context.inRoot,
                game.context.outRoot,
                game.context.key
            )
        );
        assertTrue(before == later, "what both sides agree on stays");
        if (
            phase == GamePhase.PICK_LEAF
                || (phase == GamePhase.PICK_NODE && game.cursor.phase == GamePhase.SPLIT_NODE)
        ) {
            assertTrue(
                game.cursor.index >= from && game.cursor.index + (1 << game.cursor.level) <= from + span,
                "inside the old range"
            );
        }
        uint256 rest = potential();
        assertLt(rest, left, "the disputed range shrinks");
        (left, moved) = (rest, block.timestamp);
        assertEq(
            game.cursor.deadline, moved + MOVE_TIME, "the other side's clock starts anew, and no other runs"
        );
    }

    function newClock() internal override returns (IClock) {
        return IClock(deployed("Clock", abi.encode(LAG)));
    }

    /// @dev The chain makes no block until long after the deadline, which then passes for nobody at once.
    function _halt() private {
        halted += 600 + LAG;
        vm.warp(uint256(game.cursor.deadline) + 600);
        vm.roll(block.number + 1);
        clock.tick();
        vm.roll(block.number + LAG - 1);
        vm.warp(block.timestamp + LAG);
        ++calls["halt"];
    }

    /// @dev Whoever is not to move tries, and so does a stranger; and the clock cannot be called out.
    function trespass(uint256 seed) external {
        if (id == 0) return;
        bool challengers = uint8(game.cursor.phase) & 1 == 1;
        address[2] memory others = [challengers ? defender : challenger, address(uint160(seed | 1 << 100))];
        for (uint256 i; i < others.length; ++i) {
            _refused(
                others[i], abi.encodeCall(court.split, (id, _matter(game), _front(game), new bytes32[](16)))
            );
            _refused(
                others[i],
                abi.encodeCall(court.revealLeaf, (id, _basis(game), _scope(game), _front(game), ""))
            );
            _refused(others[i], abi.encodeCall(court.openOutput, (id, game)));
            _refused(
                others[i],
                abi.encodeCall(court.prove, (id, game, 0, new bytes32[](0), "", 0, new Opening[](0)))
            );
        }
        _refused(others[1], abi.encodeCall(court.timeout, (id, game)));
        ++calls["trespass"];
    }

    function _refused(address by, bytes memory call) private {
        vm.prank(by);
        (bool done,) = address(court).call(call);
        assertFalse(done, "only the mover moves, and only in time");
    }

    // ---- the game

    function _begin(uint256 seed) private {
        liarDefends = seed % 2 == 0;
        lie = (seed >> 8) % s.nodes.length;
        place = (seed >> 64) % s.honest[lie].length;
        bytes32 key = seed % 3 == 0 ? KEY : bytes32(0);
        bytes32 out = key == 0 ? keccak256("a claimed state") : _trace(key).root();
        Game memory opened;
        (id, opened) = _open(_newGame(key, out));
        game = opened;
        (openedAt, moved, made, left, halted) = (block.timestamp, block.timestamp, 0, potential(), 0);
        ++calls[liarDefends ? "lie" : "slander"];
    }

    /// @dev What the defender shows of a node: the honest output, or one with one bit changed.
    function _shown(uint256 node) private view returns (bytes memory tensor) {
        tensor = s.honest[node];
        if (liarDefends && node == lie) tensor[place] = bytes1(uint8(tensor[place]) ^ 1);
    }

    function _trace(bytes32 key) private view returns (Tree memory) {
        bytes32[] memory roots = honestRoots[key];
        if (liarDefends) roots[lie] = Trees.tensor(_shown(lie), key).root();
        return Trees.build(roots);
    }

    function _move(uint256 seed) private {
        ++made;
        Game memory now_ = game;
        GamePhase phase = now_.cursor.phase;
        if (phase == GamePhase.TRACE) {
            now_ = _revealTrace(id, now_, _trace(now_.context.key));
        } else if (phase == GamePhase.SPLIT_NODE) {
            now_ = _split(id, now_, _trace(now_.context.key));
        } else if (phase == GamePhase.PICK_NODE) {
            now_ = _pick(id, now_, _trace(now_.context.key), _target(seed, s.nodes.length, lie));
        } else if (phase == GamePhase.SPLIT_LEAF) {
            now_ = _split(id, now_, Trees.tensor(_shown(now_.context.node), now_.context.key));
        } else if (phase == GamePhase.PICK_LEAF) {
            bytes memory tensor = _shown(now_.context.node);
            uint256 leaf = _target(seed, Openings.leaves(tensor.length), place / Openings.LEAF_BYTES);
            now_ = _pick(id, now_, Trees.tensor(tensor, now_.context.key), leaf);
        } else if (phase == GamePhase.REVEAL_LEAF) {
            now_ = _revealLeaf(id, now_, _shown(now_.context.node));
        } else {
            _prove(id, now_, _lie(lie, place, 1), place / _width(now_.context.node));
            ++calls["prove"];
            return _end();
        }
        game = now_;
        ++calls["move"];
    }

    /// @dev The honest challenger points at the lie; the liar anywhere within what is being opened.
    function _target(uint256 seed, uint256 leaves, uint256 honest) private view returns (uint256) {
        if (liarDefends) return honest;
        uint256 last = game.cursor.index + (1 << game.cursor.level);
        return bound(seed >> 32, game.cursor.index, (last < leaves ? last : leaves) - 1);
    }

    function _width(uint256 node) private view returns (uint256) {
        return [uint256(4), 4, 2, 1, 1][uint8(s.nodes[node][1])];
    }

    /// @dev A liar at the last move: no element of a right trace is wrong.
    function _proveNothing(uint256 seed) private {
        bytes memory leaf = _leafOf(game, s.honest[game.context.node]);
        uint256 width = _width(game.context.node);
        uint256 element = game.cursor.index * Openings.LEAF_BYTES / width + seed % (leaf.length / width);
        Opening[] memory openings = _openings(game, s.honest, game.context.node, element);
        vm.expectRevert(ICourt.NoDifference.selector);
        vm.prank(challenger);
        _proveAs(id, game, leaf, s.nodes[game.context.node], uint64(element), openings);
        ++calls["nothing to prove"];
        _forfeit();
    }

    /// @dev The liar lets its clock run out.
    function _forfeit() private {
        if (block.timestamp <= game.cursor.deadline) vm.warp(uint256(game.cursor.deadline) + 1);
        ++made;
        halted += 2 * LAG;
        for (uint256 i; i < 2; ++i) {
            if (i > 0) clock.tick();
            vm.roll(block.number + LAG);
            vm.warp(block.timestamp + LAG);
        }
        court.timeout(id, game);
        ++calls["timeout"];
        _end();
    }

    function _end() private {
        assertEq(challenges.verdicts(id), liarDefends ? 2 : 1, "the honest side wins");
        assertEq(court.gameHash(id), 0, "nothing is kept");
        assertLe(block.timestamp - openedAt, made * (MOVE_TIME + 1) + halted, "within the sum of the clocks");
        vm.prank(address(this));
        (bool again,) = address(court).call(abi.encodeCall(court.timeout, (id, game)));
        assertFalse(again, "a game ends once");
        ++ended;
        id = 0;
    }

    /// @notice Most moves that can still be made.
    function potential() public view returns (uint256) {
        uint256 tensor = 2 * Trees.movesFor(game.cursor.level);
        if (game.cursor.phase == GamePhase.PROVE) return 1;
        if (game.cursor.phase == GamePhase.REVEAL_LEAF) return 2;
        if (game.cursor.phase == GamePhase.SPLIT_LEAF) return 2 + tensor;
        if (game.cursor.phase == GamePhase.PICK_LEAF) return 1 + tensor;
        if (game.cursor.phase == GamePhase.SPLIT_NODE) return 100 + tensor;
        if (game.cursor.phase == GamePhase.PICK_NODE) return 99 + tensor;
        return 200; // TRACE
    }
}
