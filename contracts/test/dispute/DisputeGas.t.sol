// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {ArbiterContraction} from "../../src/arbiter/ArbiterContraction.sol";
import {Court} from "../../src/dispute/Court.sol";
import {Openings} from "../../src/dispute/Openings.sol";
import {Context, Cursor, Game, GamePhase, IArbiter, ICourt, Opening} from "../../src/interfaces/ICourt.sol";
import {Claim, Phase, ProgramRef, Role, Terms} from "../../src/interfaces/Types.sol";
import {Merkle} from "../../src/libraries/Merkle.sol";
import {Vm} from "../Vm.sol";
import {Market} from "../market/Market.sol";
import {Sparse, Tree, Trees} from "./Trees.sol";

/// @notice Gas of a whole dispute as transactions (21,000, calldata with its floor, refunds), from the announcement to the verdict:
/// the real Court, arbiter and market, whose first dispute and first burn it is; a claim with three votes that all passed the segment, whose rewind wastes another's task.
/// One bit of one element of a product with fan-in 1,024 is wrong. Of the big trees only what is opened is made: the digests
/// beside it are any digests.
/// forge-config: default.isolate = true
contract DisputeGasTest is Market {
    using Trees for Tree;

    uint32 private constant FAN_IN = 1024;
    uint32 private constant STEPS = 16; // of a segment
    uint32 private constant NODE = 1200; // the product
    uint256 private constant ROW = 5;
    uint256 private constant COLUMN = 6;

    /// @dev How large the program is, and the product's output in it.
    struct Size {
        uint32 nodes;
        uint32 slots;
        uint32 rows;
        uint32 columns;
    }

    IArbiter private arbiter;
    Size private size;
    bytes private node; // the product's encoding
    bytes private leaf; // the disputed leaf as the defender shows it
    Opening[] private openings;
    Sparse private trace;
    Sparse private tensor;
    bytes32[] private nodeProof;
    uint256 private total;
    uint256 private moves;
    uint256 private gameId;
    Game private game;

    function newCourt(address challenges_) internal override returns (address) {
        return address(new Court(challenges_, arbiter, arbiter, arbiter, arbiter, clock));
    }

    /// @notice As large as the demonstration's: a GPT of four layers, 512 rows.
    function test_disputeInASmallProgram() external {
        _dispute(Size(1643, 170, 512, 512), "dispute_total");
        assertLe(total, 1_500_000);
        assertLe(moves, 16);
    }

    /// @notice A GPT of twelve layers with 124 million parameters: 8,192 rows, feed-forward products of 3,072 columns.
    function test_disputeInAProgramOf124MillionParameters() external {
        _dispute(Size(4900, 460, 8192, 3072), "dispute_total_124m");
        assertLe(total, 1_800_000);
        assertLe(moves, 16);
    }

    function _dispute(Size memory size_, string memory name) private {
        size = size_;
        arbiter = ArbiterContraction(deployed("ArbiterContraction", ""));
        node = _product();
        ProgramRef memory program = _program();
        setUpMarket();
        Terms memory t = aTerms();
        shape(t, program.slots, program.params, SHARDS);
        t.loops = oneLoop(program.root, program.nodes, SEGMENTS * u32(STEPS), u32(STEPS), 2);
        postJob(t);
        holdShards();
        settleAll(playRound(0));
        _makeTrees();
        (Claim memory claim, uint32 segment) = _claim();
        _open(claim, segment);
        _play();
        assertPhase(claim, Phase.CONVICTED);
        assertEq(activeOf(solvers[0], Role.SOLVER), 900 ether, "the claimant pays");
        assertEq(
            compensationSum(), 18 ether, "for an outer claim, and the other shard's task of the next round"
        );
        vm.snapshotValue("dispute", name, total);
        vm.snapshotValue("dispute", string.concat(name, "_moves"), moves);
    }

    // ---- the claim

    /// @dev A task of round 1, with three valid votes; then the round is closed and the other shard's task of the next one
    /// accepted.
    function _claim() private returns (Claim memory claim, uint32 segment) {
        claim = commitTask(1, 0);
        uint64 seedBlock = statusOf(claim).seedBlock;
        vm.roll(seedBlock + 1);
        tasks.recordSeed(claim, mineHeader(seedBlock, keccak256("randao")));
        address[] memory voters = drawnOf(claim);
        for (uint256 i; i < voters.length; ++i) {
            voteAs(voters[i], claim, true);
        }
        tasks.tally(claim);
        acceptedTask(1, 1);
        commitOuter(1);
        acceptedTask(2, 1);
    }

    function _open(Claim memory claim, uint32 segment) private {
        bytes32[] memory ends = segmentEnds(claim);
        bytes32 salt = keccak256("salt");
        bytes32 commitment = keccak256(abi.encode(whistle, idOf(claim), segment, address(0), TRUTH, salt));
        bytes32[] memory fromProof = memberProof(ends, segment);
        bytes32[] memory toProof = memberProof(ends, segment + 1);
        vm.prank(whistle);
        challenges.announce(commitment);
        _count("announce", false);
        vm.roll(vm.getBlockNumber() + 1);
        vm.recordLogs();
        vm.prank(whistle);
        gameId = challenges.open(
            claim, segment, ends[segment], fromProof, ends[segment + 1], toProof, TRUTH, salt
        );
        _count("open", false);
        Vm.Log[] memory logs = vm.getRecordedLogs();
        for (uint256 i; i < logs.length; ++i) {
            if (logs[i].topics[0] == ICourt.GameOpened.selector) game = abi.decode(logs[i].data, (Game));
        }
        assertEq(gameId, 1);
        assertEq(vault.burnt(), 0);
    }

    // ---- the game

    function _play() private {
        bytes32[] memory roots = new bytes32[](STEPS - 1);
        for (uint256 i; i < roots.length; ++i) {
            roots[i] = keccak256(abi.encode("root", i));
        }
        (bytes32 paramsHash, Context memory context, Cursor memory cursor) = Trees.parts(game);
        _send(
            true,
            abi.encodeCall(ICourt.revealSteps, (gameId, paramsHash, context, cursor, roots)),
            "reveal_steps"
        );
        (paramsHash, context, cursor) = Trees.parts(game);
        _send(
            false,
            abi.encodeCall(ICourt.pickStep, (gameId, paramsHash, context, cursor, roots, 5)),
            "pick_step"
        );
        (paramsHash, context, cursor) = Trees.parts(game);
        bytes memory data = abi.encodeCall(
            ICourt.revealTrace, (gameId, paramsHash, context, cursor, trace.root, trace.opened[0])
        );
        _send(true, data, "reveal_trace");
        _descend(trace);
        _descend(tensor);
        (paramsHash, context, cursor) = Trees.parts(game);
        _send(
            true,
            abi.encodeCall(ICourt.revealLeaf, (gameId, paramsHash, context, cursor, leaf)),
            "reveal_leaf"
        );
        _prove();
    }

    /// @dev From the first opening of the trace tree to its leaf, or of the tensor's tree from its root.
    function _descend(Sparse memory tree) private {
        for (uint256 round; round < tree.opened.length; ++round) {
            bytes32[] memory children = tree.opened[round];
            if (uint8(game.cursor.phase) & 1 == 0) {
                (bytes32 contextHash, Cursor memory cursor) = Trees.within(game);
                _send(true, abi.encodeCall(ICourt.split, (gameId, contextHash, cursor, children)), "split");
            }
            _pick(tree, round, children);
        }
    }

    function _pick(Sparse memory tree, uint256 round, bytes32[] memory children) private {
        uint32 child = tree.picks[round];
        bytes32[] memory siblings = Trees.build(children).proof(child);
        if (game.cursor.phase == GamePhase.PICK_NODE && round + 1 == tree.opened.length) {
            bytes memory whole = abi.encodeCall(
                ICourt.pick, (gameId, game, child, children[child], siblings, node, nodeProof)
            );
            return _send(false, whole, "pick_node");
        }
        (bytes32 contextHash, Cursor memory cursor) = Trees.within(game);
        bytes memory data = abi.encodeCall(
            ICourt.pickWithin, (gameId, contextHash, cursor, child, children[child], siblings)
        );
        _send(false, data, "pick");
    }

    function _prove() private {
        uint64 element = uint64(ROW * size.columns + COLUMN);
        uint256 place = (element * 4 % Openings.LEAF_BYTES) / 32;
        bytes32[] memory proof = Trees.wordProof(leaf, place);
        bytes memory data = abi.encodeCall(
            ICourt.prove, (gameId, game, Trees.word(leaf, place), proof, node, element, openings)
        );
        _send(false, data, "prove_and_convict");
        assertEq(ICourt(address(court)).gameHash(gameId), 0, "decided");
    }

    function _send(bool defends, bytes memory data, string memory name) private {
        vm.recordLogs();
        vm.prank(defends ? game.cursor.defender : game.cursor.challenger);
        (bool ok, bytes memory why) = address(court).call(data);
        if (!ok) {
            assembly ("memory-safe") {
                revert(add(why, 32), mload(why))
            }
        }
        _count(name, true);
        Vm.Log[] memory logs = vm.getRecordedLogs();
        Vm.Log memory last = logs[0];
        if (last.topics[0] == ICourt.Moved.selector) {
            (, Context memory context, Cursor memory cursor,) =
                abi.decode(last.data, (GamePhase, Context, Cursor, bytes32[]));
            game = Trees.withParts(game, context, cursor);
        } else if (last.topics[0] != ICourt.GameDecided.selector) {
            (Cursor memory cursor,) = last.topics[0] == ICourt.Narrowed.selector
                ? abi.decode(last.data, (Cursor, bytes32[]))
                : _frontOf(last.data);
            (, Context memory context,) = Trees.parts(game);
            game = Trees.withParts(game, context, cursor);
        }
    }

    function _frontOf(bytes memory data) private pure returns (Cursor memory cursor, bytes32[] memory none) {
        (cursor,) = abi.decode(data, (Cursor, bytes));
        none = new bytes32[](0);
    }

    function _count(string memory name, bool move) private {
        total += vm.snapshotGasLastCall("dispute", string.concat(vm.toString(size.nodes), "_", name));
        if (move) ++moves;
    }

    // ---- the program and its trees

    function _product() private view returns (bytes memory) {
        (uint32 m, uint32 n) = (size.rows, size.columns);
        bytes memory a =
            abi.encodePacked(uint32(NODE - 4), hex"0202", m, FAN_IN, uint32(NODE - 3), hex"0201", m);
        bytes memory b =
            abi.encodePacked(uint32(NODE - 2), hex"0202", n, FAN_IN, uint32(NODE - 1), hex"0201", n);
        return abi.encodePacked(hex"5400020400", m, n, a, b);
    }

    function _program() private returns (ProgramRef memory) {
        uint256 depth = Merkle.depth(1 + size.nodes + size.slots);
        bytes32 root;
        (root, nodeProof) = Trees.path(Merkle.leaf(node), 1 + NODE, depth, "program");
        return ProgramRef(root, size.nodes, size.slots, 1);
    }

    function _makeTrees() private {
        IArbiter.Span[] memory spans = new IArbiter.Span[](4);
        bytes32[] memory roots = new bytes32[](4);
        for (uint32 i; i < 4; ++i) {
            uint256 rows = i < 2 ? size.rows : size.columns;
            uint256 bytes_ = i & 1 == 0 ? rows * FAN_IN * 2 : rows * 2;
            uint256 first = i == 0 ? ROW : i == 2 ? COLUMN : 0;
            spans[i] = IArbiter.Span(i, uint64(first * 2048), _numbers(i, Openings.leafSize(bytes_, first)));
            bytes32[] memory siblings;
            uint256 depth = Merkle.depth(Openings.leaves(bytes_));
            (roots[i], siblings) = Trees.path(Merkle.leaf(spans[i].data), first, depth, bytes32(uint256(i)));
            openings.push(Opening(i, uint64(first), spans[i].data, siblings, new bytes32[](0)));
        }
        uint256 element = ROW * size.columns + COLUMN;
        uint32 right = arbiter.evaluate(node, uint64(element), spans);
        uint256 tensorBytes = uint256(size.rows) * size.columns * 4;
        uint256 index = element * 4 / Openings.LEAF_BYTES;
        leaf = _numbers(9, Openings.leafSize(tensorBytes, index));
        _write(leaf, element * 4 % Openings.LEAF_BYTES, right ^ 1);
        tensor = Trees.sparse(Merkle.leaf(leaf), index, Merkle.depth(Openings.leaves(tensorBytes)));
        _makeTrace(roots);
    }

    /// @dev The whole trace tree: the product's inputs must be proven in it too.
    function _makeTrace(bytes32[] memory roots) private {
        bytes32[] memory leaves = new bytes32[](size.nodes);
        for (uint256 i; i < leaves.length; ++i) {
            leaves[i] = i + 4 >= NODE && i < NODE ? roots[i + 4 - NODE] : keccak256(abi.encode("node", i));
        }
        leaves[NODE] = tensor.root;
        Tree memory tree = Trees.build(leaves);
        for (uint256 i; i < 4; ++i) {
            uint256 input = NODE - 4 + i;
            bytes32[] memory path = tree.proof(input);
            openings[i].path = i == 0 ? path : Trees.cut(path, input - 1, input);
        }
        trace = Trees.opened(tree, NODE);
    }

    /// @dev Numbers below 2^13 in size, as `quantise` gives (odd `seed`: exponents), none with a zero byte by design.
    function _numbers(uint256 seed, uint256 length) private pure returns (bytes memory data) {
        data = new bytes(length);
        for (uint256 i; i < length; i += 2) {
            uint256 random = uint256(keccak256(abi.encode(seed, i)));
            bool exponent = seed & 1 == 1 && seed < 4;
            uint256 number =
                exponent ? 0xfff0 | random % 16 : (random & 1 == 0 ? random % 8192 : 65_536 - random % 8192);
            data[i] = bytes1(uint8(number));
            data[i + 1] = bytes1(uint8(number >> 8));
        }
    }

    function _write(bytes memory data, uint256 cursor, uint32 bits) private pure {
        for (uint256 i; i < 4; ++i) {
            data[cursor + i] = bytes1(uint8(bits >> (8 * i)));
        }
    }
}
