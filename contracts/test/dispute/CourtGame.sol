// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {ArbiterContraction} from "../../src/arbiter/ArbiterContraction.sol";
import {ArbiterElementwise} from "../../src/arbiter/ArbiterElementwise.sol";
import {ArbiterIndex} from "../../src/arbiter/ArbiterIndex.sol";
import {ArbiterTranscendental} from "../../src/arbiter/ArbiterTranscendental.sol";
import {Court} from "../../src/dispute/Court.sol";
import {Openings} from "../../src/dispute/Openings.sol";
import {IClock} from "../../src/interfaces/IClock.sol";
import {Context, Cursor, Game, GamePhase, ICourt, Opening} from "../../src/interfaces/ICourt.sol";
import {ProgramRef} from "../../src/interfaces/Types.sol";
import {Merkle} from "../../src/libraries/Merkle.sol";
import {PlainClock} from "../PlainClock.sol";
import {Test, Vm} from "../Vm.sol";
import {Tree, Trees} from "./Trees.sol";

interface VmFiles {
    function readFileBinary(string calldata path) external view returns (bytes memory);
}

/// @notice Takes the court's verdicts; refuses them while `closed`.
contract ChallengesFake {
    mapping(uint256 => uint256) public verdicts; // 1 = defender won, 2 = challenger won
    bool public closed;

    function setClosed(bool closed_) external {
        closed = closed_;
    }

    function resolve(uint256 gameId, Game calldata, bool challengerWon) external {
        require(!closed, "closed");
        require(verdicts[gameId] == 0, "told twice");
        verdicts[gameId] = challengerWon ? 2 : 1;
    }
}

/// @notice One step of the program in tests/vectors/game.bin, with every node's honest output.
struct Step {
    ProgramRef program;
    uint32 recordSize;
    bytes32 seed;
    uint32 shard;
    uint64 step;
    bytes[] nodes; // encodings
    bytes[] honest; // outputs
    uint32[] outputs; // refs
    bytes[] records;
}

/// @notice Base of the court's tests: a court, two players, and what each move needs.
abstract contract CourtGame is Test {
    using Trees for Tree;

    uint64 internal constant MOVE_TIME = 600;
    /// @dev More than one move opens of a trace tree: constants follow the fixture's own nodes.
    uint256 internal constant FIXTURE_NODES = 70;

    ChallengesFake internal challenges = new ChallengesFake();
    IClock internal clock = newClock();
    Court internal court = Court(
        deployed(
            "Court",
            abi.encode(
                challenges,
                deployed("ArbiterElementwise", ""),
                deployed("ArbiterTranscendental", ""),
                deployed("ArbiterContraction", ""),
                deployed("ArbiterIndex", ""),
                clock
            )
        )
    );
    address internal defender = makeAddr("defender");
    address internal challenger = makeAddr("challenger");

    Step internal s;
    uint256 internal ownNodes; // of the fixture, before the constants

    // ---- fixture

    function newClock() internal virtual returns (IClock) {
        return new PlainClock();
    }

    function _load() internal {
        bytes memory data = VmFiles(address(vm)).readFileBinary("../tests/vectors/game.bin");
        uint256 nodes = _number(data, 0, 4);
        uint256 slots = _number(data, 4, 4);
        s.recordSize = uint32(_number(data, 12, 4));
        uint256 records = _number(data, 16, 4);
        s.seed = bytes32(_number(data, 20, 32));
        s.shard = uint32(_number(data, 52, 4));
        s.step = uint64(_number(data, 56, 8));
        uint256 cursor = 64;
        for (uint256 i; i < nodes; ++i) {
            s.nodes.push(Trees.slice(data, cursor + 2, _number(data, cursor, 2)));
            cursor += 2 + _number(data, cursor, 2);
            s.honest.push(Trees.slice(data, cursor + 4, _number(data, cursor, 4)));
            cursor += 4 + _number(data, cursor, 4);
        }
        for (uint256 i; i < slots; ++i) {
            s.outputs.push(uint32(_number(data, cursor, 4)));
            cursor += 4;
        }
        for (uint256 i; i < records; ++i) {
            s.records.push(Trees.slice(data, cursor, s.recordSize));
            cursor += s.recordSize;
        }
        assertEq(cursor, data.length, "trailing bytes in the fixture");
        ownNodes = nodes;
        while (s.nodes.length < FIXTURE_NODES) {
            s.nodes.push(abi.encodePacked(hex"0300000001", int64(0)));
            s.honest.push(new bytes(4));
        }
        _seal(1);
    }

    /// @dev Program root from s.nodes and s.outputs.
    function _seal(uint32 params) internal {
        s.program.root = _programTree().root();
        s.program.nodes = uint32(s.nodes.length);
        s.program.slots = uint32(s.outputs.length);
        s.program.params = params;
    }

    function _programTree() internal view returns (Tree memory) {
        uint256 nodes = s.nodes.length;
        bytes32[] memory leaves = new bytes32[](1 + nodes + s.outputs.length);
        leaves[0] = Merkle.leaf(
            abi.encodePacked(
                "assay-program-1", uint32(nodes), uint32(s.outputs.length), uint32(1), s.recordSize
            )
        );
        for (uint256 i; i < nodes; ++i) {
            leaves[1 + i] = Merkle.leaf(s.nodes[i]);
        }
        for (uint256 i; i < s.outputs.length; ++i) {
            leaves[1 + nodes + i] = Merkle.leaf(abi.encodePacked(s.outputs[i]));
        }
        return Trees.build(leaves);
    }

    function _datasetTree() internal view returns (Tree memory) {
        bytes32[] memory leaves = new bytes32[](s.records.length);
        for (uint256 i; i < leaves.length; ++i) {
            leaves[i] = Merkle.leaf(s.records[i]);
        }
        return Trees.build(leaves);
    }

    function _inState() internal view returns (Tree memory) {
        bytes[] memory slots = new bytes[](s.outputs.length);
        for (uint256 i; i < slots.length; ++i) {
            slots[i] = s.honest[i];
        }
        return Trees.over(slots, 0);
    }

    function _outState(bytes[] memory tensors) internal view returns (Tree memory) {
        bytes[] memory slots = new bytes[](s.outputs.length);
        for (uint256 i; i < slots.length; ++i) {
            slots[i] = tensors[s.outputs[i]];
        }
        return Trees.over(slots, 0);
    }

    /// @dev The honest outputs with one byte of one node changed.
    function _lie(uint256 node, uint256 cursor, uint8 change) internal view returns (bytes[] memory tensors) {
        tensors = s.honest;
        tensors[node][cursor] = bytes1(uint8(tensors[node][cursor]) ^ change);
    }

    function _newGame(bytes32 key, bytes32 outRoot) internal view returns (Game memory game) {
        game.params.claimId = keccak256("claim");
        game.cursor.challenger = challenger;
        game.cursor.defender = defender;
        game.params.program = s.program;
        game.params.datasetRoot = s.records.length == 0 ? bytes32(0) : _datasetTree().root();
        game.params.seed = s.seed;
        game.params.records = uint32(s.records.length);
        game.params.recordSize = s.recordSize;
        game.params.shard = s.shard;
        game.context.key = key;
        game.context.step = s.step;
        game.context.steps = 1;
        game.context.inRoot = _inState().root();
        game.context.outRoot = outRoot;
        game.cursor.moveTime = MOVE_TIME;
    }

    // ---- moves: each returns the game as the court then holds it

    function _open(Game memory start) internal returns (uint256 id, Game memory game) {
        vm.recordLogs();
        vm.prank(address(challenges));
        id = court.open(start);
        game = abi.decode(vm.getRecordedLogs()[0].data, (Game));
    }

    /// @dev `game` after the move that was logged last.
    function _after(Game memory game) internal returns (Game memory) {
        Vm.Log[] memory logs = vm.getRecordedLogs();
        bytes memory data = logs[logs.length - 1].data;
        if (logs[logs.length - 1].topics[0] == ICourt.LeafRevealed.selector) {
            (Cursor memory cursor,) = abi.decode(data, (Cursor, bytes));
            return Trees.withParts(game, _scope(game), cursor);
        }
        assertEq(logs[logs.length - 1].topics[0], ICourt.Moved.selector);
        (, Context memory context, Cursor memory next,) =
            abi.decode(data, (GamePhase, Context, Cursor, bytes32[]));
        return Trees.withParts(game, context, next);
    }

    /// @dev After a move within a tree of `game`.
    function _within(Game memory game) internal returns (Game memory) {
        Vm.Log[] memory logs = vm.getRecordedLogs();
        assertEq(logs[logs.length - 1].topics[0], ICourt.Narrowed.selector);
        bytes memory data = logs[logs.length - 1].data;
        (Cursor memory f,) = abi.decode(data, (Cursor, bytes32[]));
        (game.cursor.phase, game.cursor.digest, game.cursor.level, game.cursor.index) =
        (f.phase, f.digest, f.level, f.index);
        bytes32 revealed; // of the children: what follows the cursor, where they begin and how many they are
        assembly ("memory-safe") {
            let count := mload(add(data, 0x180))
            if count { revealed := keccak256(add(data, 0x1a0), shl(5, count)) }
        }
        game.cursor.revealed = revealed;
        game.cursor.deadline = f.deadline;
        assertEq(keccak256(abi.encode(_front(game))), keccak256(abi.encode(f)), "nothing else has changed");
        return game;
    }

    function _front(Game memory game) internal pure returns (Cursor memory cursor) {
        (,, cursor) = Trees.parts(game);
    }

    function _scope(Game memory game) internal pure returns (Context memory context) {
        (, context,) = Trees.parts(game);
    }

    function _basis(Game memory game) internal pure returns (bytes32 paramsHash) {
        (paramsHash,,) = Trees.parts(game);
    }

    function _matter(Game memory game) internal pure returns (bytes32 contextHash) {
        (contextHash,) = Trees.within(game);
    }

    function _revealTrace(uint256 id, Game memory game, Tree memory trace) internal returns (Game memory) {
        vm.recordLogs();
        vm.prank(defender);
        court.revealTrace(
            id,
            _basis(game),
            _scope(game),
            _front(game),
            trace.root(),
            trace.children(trace.levels.length - 1, 0)
        );
        return _after(game);
    }

    function _split(uint256 id, Game memory game, Tree memory tree) internal returns (Game memory) {
        vm.recordLogs();
        vm.prank(defender);
        court.split(id, _matter(game), _front(game), tree.children(game.cursor.level, game.cursor.index));
        return _within(game);
    }

    /// @dev Picks the child that holds leaf `leaf` of the tree.
    function _pick(uint256 id, Game memory game, Tree memory tree, uint256 leaf)
        internal
        returns (Game memory)
    {
        uint256 below = game.cursor.level - Trees.height(game.cursor.level);
        bytes memory node;
        bytes32[] memory proof;
        if (game.cursor.phase == GamePhase.PICK_NODE && below == 0) {
            node = s.nodes[leaf];
            proof = _programTree().proof(1 + leaf);
        }
        bytes32[] memory children = tree.children(game.cursor.level, game.cursor.index);
        uint32 child = uint32((leaf - game.cursor.index) >> below);
        bytes32[] memory siblings = Trees.build(children).proof(child);
        vm.recordLogs();
        if (node.length == 0) {
            vm.prank(challenger);
            court.pickWithin(id, _matter(game), _front(game), child, children[child], siblings);
            return _within(game);
        }
        vm.prank(challenger);
        court.pick(id, game, child, children[child], siblings, node, proof);
        return _after(game);
    }

    /// @dev From TRACE to REVEAL_LEAF or PROVE of leaf `leaf` of node `node`, whose tensors the defender gives.
    function _descend(uint256 id, Game memory game, bytes[] memory tensors, uint256 node, uint256 leaf)
        internal
        returns (Game memory)
    {
        Tree memory trace = Trees.over(tensors, game.context.key);
        return _descendIn(id, game, trace, Trees.tensor(tensors[node], game.context.key), node, leaf);
    }

    /// @dev The same in trees that the defender may have built as it liked.
    function _descendIn(
        uint256 id,
        Game memory game,
        Tree memory trace,
        Tree memory tensor,
        uint256 node,
        uint256 leaf
    ) internal returns (Game memory) {
        game = _revealTrace(id, game, trace);
        game = _pick(id, game, trace, node);
        while (game.cursor.phase == GamePhase.SPLIT_NODE) {
            game = _split(id, game, trace);
            game = _pick(id, game, trace, node);
        }
        while (game.cursor.phase == GamePhase.SPLIT_LEAF) {
            game = _split(id, game, tensor);
            game = _pick(id, game, tensor, leaf);
        }
        return game;
    }

    function _revealLeaf(uint256 id, Game memory game, bytes memory tensor) internal returns (Game memory) {
        bytes memory leaf = _leafOf(game, tensor);
        vm.recordLogs();
        vm.prank(defender);
        court.revealLeaf(id, _basis(game), _scope(game), _front(game), leaf);
        return _after(game);
    }

    function _leafOf(Game memory game, bytes memory tensor) internal pure returns (bytes memory) {
        uint256 size = Openings.leafSize(tensor.length, game.cursor.index);
        return Trees.slice(tensor, Openings.LEAF_BYTES * game.cursor.index, size);
    }

    /// @dev Every leaf of every input of node `node`, proven as its kind demands.
    function _openings(Game memory game, bytes[] memory tensors, uint256 node, uint256 element)
        internal
        view
        returns (Opening[] memory openings)
    {
        bytes memory encoded = s.nodes[node];
        uint8 op = uint8(encoded[0]);
        if (op == 0x01) {
            openings = new Opening[](1);
            openings[0] = _whole(0, s.honest[node], 0, _inState().proof(node));
        } else if (op == 0x02) {
            openings = new Opening[](1);
            openings[0] = _record(0, _drawn(game, encoded, element));
        } else if (op == 0x07) {
            openings = new Opening[](2);
            openings[0] = _inputs(game, tensors, encoded)[0];
            openings[1] = _record(1, _named(tensors, encoded, element));
        } else {
            openings = _inputs(game, tensors, encoded);
        }
    }

    function _inputs(Game memory game, bytes[] memory tensors, bytes memory encoded)
        private
        view
        returns (Opening[] memory openings)
    {
        openings = new Opening[](uint8(encoded[3]));
        Tree memory trace = Trees.over(tensors, game.context.key);
        uint256 cursor = 5 + 4 * uint256(uint8(encoded[2]));
        uint256 before;
        for (uint256 i; i < openings.length; ++i) {
            uint256 ref = _number(encoded, cursor, 4);
            bytes32[] memory path = trace.proof(ref);
            if (i > 0) path = Trees.cut(path, before, ref);
            openings[i] = _whole(i, tensors[ref], game.context.key, path);
            before = ref;
            cursor += 6 + 4 * uint256(uint8(encoded[cursor + 5]));
        }
    }

    function _whole(uint256 input, bytes memory tensor, bytes32 key, bytes32[] memory path)
        internal
        view
        returns (Opening memory)
    {
        Tree memory tree = Trees.tensor(tensor, key);
        bytes32[] memory siblings = tree.rangeProof(0, Openings.leaves(tensor.length));
        return Opening(uint32(input), 0, tensor, siblings, path);
    }

    function _drawn(Game memory game, bytes memory encoded, uint256 element) internal view returns (uint256) {
        uint256 columns = _number(encoded, 9, 4);
        uint256 row = _number(encoded, 21, 8) + element / columns;
        bytes32 drawn = sha256(
            abi.encodePacked(
                "assay/record/1", game.params.seed, game.params.shard, game.context.step, uint32(row)
            )
        );
        return uint64(bytes8(drawn)) % s.records.length;
    }

    /// @dev The record that a record node's input names for this element, clamped to those there are.
    function _named(bytes[] memory tensors, bytes memory encoded, uint256 element)
        internal
        view
        returns (uint256)
    {
        bytes memory index = tensors[_number(encoded, 13, 4)];
        uint256 cursor = 4 * (element / _number(encoded, 9, 4));
        uint32 named;
        for (uint256 i = 4; i > 0; --i) {
            named = named << 8 | uint8(index[cursor + i - 1]);
        }
        if (int32(named) < 0) return 0;
        return named < s.records.length ? named : s.records.length - 1;
    }

    function _record(uint256 input, uint256 record) internal view returns (Opening memory) {
        return Opening(
            uint32(input), uint64(record), s.records[record], _datasetTree().proof(record), new bytes32[](0)
        );
    }

    function _prove(uint256 id, Game memory game, bytes[] memory tensors, uint256 element) internal {
        bytes memory leaf = _leafOf(game, tensors[game.context.node]);
        Opening[] memory openings = _openings(game, tensors, game.context.node, element);
        bytes memory node = s.nodes[game.context.node];
        vm.prank(challenger);
        _proveAs(id, game, leaf, node, uint64(element), openings);
    }

    /// @dev Sends the proof; nothing else is called before it.
    function _proveAs(
        uint256 id,
        Game memory game,
        bytes memory leaf,
        bytes memory node,
        uint64 element,
        Opening[] memory openings
    ) internal {
        uint256 place = _wordOf(game, node, element);
        court.prove(id, game, Trees.word(leaf, place), Trees.wordProof(leaf, place), node, element, openings);
    }

    /// @dev Which word of the disputed leaf holds the element; 0 if none does.
    function _wordOf(Game memory game, bytes memory node, uint64 element) internal pure returns (uint256) {
        if (node.length < 2) return 0;
        uint256 cursor = uint256(element) * [uint256(4), 4, 2, 1, 1][uint8(node[1])];
        uint256 start = game.cursor.index * Openings.LEAF_BYTES;
        return cursor < start || cursor >= start + Openings.LEAF_BYTES ? 0 : (cursor - start) / 32;
    }

    /// @dev The challenger picks one of `children`, in a move that is refused (if `refusal` is not empty) or ends the game.
    function _lastPick(
        uint256 id,
        Game memory game,
        bytes32[] memory children,
        uint32 child,
        bytes memory refusal
    ) internal {
        bytes32[] memory siblings = Trees.build(children).proof(child);
        if (refusal.length != 0) vm.expectRevert(refusal);
        vm.prank(challenger);
        court.pick(id, game, child, children[child], siblings, "", new bytes32[](0));
    }

    function _number(bytes memory data, uint256 cursor, uint256 width) internal pure returns (uint256 value) {
        assembly ("memory-safe") {
            value := shr(sub(256, shl(3, width)), mload(add(add(data, 32), cursor)))
        }
    }
}
