// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {ArbiterContraction} from "../../src/arbiter/ArbiterContraction.sol";
import {Openings} from "../../src/dispute/Openings.sol";
import {Game, GamePhase, IArbiter, ICourt, Opening} from "../../src/interfaces/ICourt.sol";
import {Merkle} from "../../src/libraries/Merkle.sol";
import {CourtGame} from "./CourtGame.sol";
import {Tree, Trees} from "./Trees.sol";

interface VmGas {
    function cool(address account) external;
    function snapshotGasLastCall(string calldata group, string calldata name) external returns (uint256);
    function snapshotValue(string calldata group, string calldata name, uint256 value) external;
}

/// @notice What the moves cost as transactions, in a game over a trace of 1,643 nodes (a four-layer GPT with AdamW).
/// @dev A recorded figure is a whole transaction under EIP-7623: with t = zero bytes + 4 · other bytes of the calldata,
/// 21000 + max(4·t + execution, 10·t). Execution is what the call used, all accounts cold before it; `*_execution` keeps
/// it apart. Refunds are not subtracted.
contract GasTest is CourtGame {
    using Trees for Tree;

    VmGas private constant gas = VmGas(address(vm));
    uint256 private constant NODES = 1643;
    uint256 private constant EACH = type(uint256).max / 0xffffffff; // 1 in every four bytes

    function setUp() external {
        vm.warp(1_000_000);
    }

    /// @notice K = 1,024 with 4 × 4 outputs.
    function test_check1024() external {
        uint256 cost = _check(4, 1024, "check_1024");
        assertLe(cost, 350_000);
    }

    /// @notice K = 1,024 with 64 × 64 outputs: a full leaf of them comes along.
    function test_check1024Wide() external {
        uint256 cost = _check(64, 1024, "check_1024_wide");
        assertLe(cost, 450_000);
    }

    /// @notice The bound, K = 4,096.
    function test_checkAtTheBound() external {
        uint256 cost = _check(4, 4096, "check_bound");
        assertLe(cost, 1_000_000);
    }

    /// @notice The arbiter alone at the bound: what the assembly loops cost.
    function test_arbiterAlone() external {
        IArbiter arbiter = ArbiterContraction(deployed("ArbiterContraction", ""));
        IArbiter.Span[] memory spans = new IArbiter.Span[](4);
        bytes memory row = new bytes(16_384);
        for (uint256 i; i < row.length; i += 32) {
            // Numbers between 2^-7 and 2: exponents 0x3c to 0x3f, any sign and fraction.
            uint256 random = uint256(keccak256(abi.encode(i)));
            uint256 word = random & (EACH * 0xffffff83) | (EACH * 0x0000003c);
            assembly ("memory-safe") {
                mstore(add(add(row, 32), i), word)
            }
        }
        for (uint256 i; i < 4; ++i) {
            spans[i] = IArbiter.Span(uint32(i), 0, i & 1 == 0 ? Trees.slice(row, 0, 8192) : new bytes(2));
        }
        arbiter.evaluate(_product(1, 1024), 0, spans);
        assertLe(gas.snapshotGasLastCall("Arbiter", "product_1024"), 150_000);
        arbiter.evaluate(_product(1, 4096), 0, spans);
        assertLe(gas.snapshotGasLastCall("Arbiter", "product_4096"), 350_000);
        spans[0].data = row;
        bytes memory x = hex"0000000000020000000100001000"; // node 0, f32 [1, 4096]
        arbiter.evaluate(abi.encodePacked(hex"500001010000000001", x), 0, spans);
        assertLe(gas.snapshotGasLastCall("Arbiter", "sum_4096"), 900_000);
        spans[1].data = row;
        for (uint256 i; i < row.length; i += 512) {
            row[i + 3] = 0x01; // small beside the rest: these need rounding one by one
            row[i + 7] = 0x39;
        }
        spans[0].data = row;
        arbiter.evaluate(abi.encodePacked(hex"500001010000000001", x), 0, spans);
        assertLe(gas.snapshotGasLastCall("Arbiter", "sum_4096_wide"), 1_200_000);
        bytes memory index = hex"00000001010100001000"; // node 1, i32 [4096]
        arbiter.evaluate(abi.encodePacked(hex"55000202000000000100000001", x, index), 0, spans);
        assertLe(gas.snapshotGasLastCall("Arbiter", "scatter_sum_4096"), 900_000);
    }

    /// @notice Of 16 children, in a trace of 256 nodes.
    function test_splitAndPick() external {
        (uint256 pick, uint256 split) = _splitAndPick(256, 16, "");
        assertLe(pick, 45_000);
        assertLe(split, 60_000);
    }

    /// @notice Of as many as a move opens at most: 64 children.
    function test_splitAndPick64() external {
        (uint256 pick, uint256 split) = _splitAndPick(4096, 64, "_64");
        assertLe(pick, 50_000);
        assertLe(split, 120_000);
    }

    function _splitAndPick(uint256 nodes, uint256 width, string memory name)
        private
        returns (uint256 pick, uint256 split)
    {
        Tree memory trace = _bigGame(4, 16, nodes);
        (uint256 id, Game memory game) = _open(_newGame(0, 0));
        game = _revealTrace(id, game, trace);
        bytes32[] memory children = trace.children(game.cursor.level, 0);
        assertEq(children.length, width);
        bytes32[] memory siblings = Trees.build(children).proof(0);
        bytes memory data =
            abi.encodeCall(ICourt.pickWithin, (id, _matter(game), _front(game), 0, children[0], siblings));
        pick = _transact(challenger, data, string.concat("game_pick", name));
        game = _within(game);
        assertEq(uint8(game.cursor.phase), uint8(GamePhase.SPLIT_NODE));
        children = trace.children(game.cursor.level, game.cursor.index);
        assertEq(children.length, width);
        data = abi.encodeCall(ICourt.split, (id, _matter(game), _front(game), children));
        split = _transact(defender, data, string.concat("game_split", name));
    }

    /// @dev A product [m, k] × [m, k] of four slots, then constants up to `nodes`; the fixture is `s`.
    function _bigGame(uint256 m, uint256 k, uint256 nodes) private returns (Tree memory trace) {
        _slot(0, m, k, m * k * 2, 7);
        _slot(1, m, 0, m * 2, 0);
        _slot(2, m, k, m * k * 2, 11);
        _slot(3, m, 0, m * 2, 0);
        s.nodes.push(_product(uint32(m), uint32(k)));
        s.honest.push(new bytes(m * m * 4));
        bytes memory constant_ = abi.encodePacked(hex"0300000001", int64(0));
        while (s.nodes.length < nodes) {
            s.nodes.push(constant_);
        }
        _seal(4);
        bytes32[] memory roots = new bytes32[](nodes);
        bytes32 zero = Merkle.leaf(new bytes(4));
        for (uint256 i; i < nodes; ++i) {
            roots[i] = i < s.honest.length ? Trees.tensor(s.honest[i], 0).root() : zero;
        }
        trace = Trees.build(roots);
    }

    /// @dev i16 [m, k], or [m] for k = 0, of numbers below 2^13 in size, as `quantise` gives.
    function _slot(uint32 slot, uint256 m, uint256 k, uint256 size, uint256 seed) private {
        bytes memory dims = k == 0 ? abi.encodePacked(uint32(m)) : abi.encodePacked(uint32(m), uint32(k));
        s.nodes.push(abi.encodePacked(hex"0102", uint8(dims.length / 4), hex"0001", dims, uint64(slot)));
        bytes memory data = new bytes(size);
        for (uint256 i; seed != 0 && i < size; i += 2) {
            uint256 q = uint256(keccak256(abi.encode(seed, i))) % 16_385;
            uint16 bits = uint16(int16(int256(q) - 8192));
            data[i] = bytes1(uint8(bits));
            data[i + 1] = bytes1(uint8(bits >> 8));
        }
        s.honest.push(data);
        s.outputs.push(slot);
    }

    function _product(uint32 m, uint32 k) private pure returns (bytes memory) {
        bytes memory inputs = abi.encodePacked(uint32(0), hex"0202", m, k, uint32(1), hex"0201", m);
        inputs = abi.encodePacked(inputs, uint32(2), hex"0202", m, k, uint32(3), hex"0201", m);
        return abi.encodePacked(hex"5400020400", m, m, inputs);
    }

    /// @dev Plays to PROVE and sends the proof of element (1, 2); the claimed product is all zeros.
    function _check(uint256 m, uint256 k, string memory name) private returns (uint256 cost) {
        Tree memory trace = _bigGame(m, k, NODES);
        (uint256 id, Game memory game) = _open(_newGame(0, 0));
        game = _revealTrace(id, game, trace);
        game = _pick(id, game, trace, 4);
        while (game.cursor.phase == GamePhase.SPLIT_NODE) {
            game = _pick(id, _split(id, game, trace), trace, 4);
        }
        Tree memory tensor = Trees.tensor(s.honest[4], 0);
        while (game.cursor.phase == GamePhase.SPLIT_LEAF) {
            game = _pick(id, _split(id, game, tensor), tensor, 0);
        }
        game = _revealLeaf(id, game, s.honest[4]);
        Opening[] memory openings = new Opening[](4);
        for (uint256 i; i < 4; ++i) {
            openings[i] = _row(trace, i, i == 0 ? 1 : i == 2 ? 2 : 0, i & 1 == 0 ? 2 * k : 2 * m);
        }
        bytes memory leaf = _leafOf(game, s.honest[4]);
        // The word's bytes cost as much as real ones would.
        bytes memory data = _proveCall(id, game, leaf, uint64(m + 2), openings);
        cost = _transact(challenger, data, name) + 30 * 32;
        gas.snapshotValue("Court", name, cost);
        assertEq(challenges.verdicts(id), 2);
    }

    function _proveCall(
        uint256 id,
        Game memory game,
        bytes memory leaf,
        uint64 element,
        Opening[] memory openings
    ) private view returns (bytes memory) {
        uint256 place = _wordOf(game, s.nodes[4], element);
        bytes32[] memory proof = Trees.wordProof(leaf, place);
        return abi.encodeCall(
            ICourt.prove, (id, game, Trees.word(leaf, place), proof, s.nodes[4], element, openings)
        );
    }

    /// @dev The leaves that hold row `row` of slot `ref`.
    function _row(Tree memory trace, uint256 ref, uint256 row, uint256 rowSize)
        private
        view
        returns (Opening memory)
    {
        bytes memory tensor = s.honest[ref];
        Tree memory tree = Trees.tensor(tensor, 0);
        uint256 size = Openings.LEAF_BYTES;
        uint256 first = row * rowSize / size;
        uint256 stop = (row + 1) * rowSize < tensor.length ? (row + 1) * rowSize : tensor.length;
        uint256 end = Openings.leaves(stop);
        stop = end * size < tensor.length ? end * size : tensor.length;
        bytes memory data = Trees.slice(tensor, first * size, stop - first * size);
        bytes32[] memory path = trace.proof(ref);
        if (ref > 0) path = Trees.cut(path, ref - 1, ref);
        return Opening(uint32(ref), uint64(first), data, tree.rangeProof(first, end), path);
    }

    /// @dev Sends the call from `sender` with everything cold and records what the transaction would have cost.
    function _transact(address sender, bytes memory data, string memory name) private returns (uint256 cost) {
        gas.cool(address(court));
        gas.cool(address(challenges));
        vm.recordLogs();
        vm.prank(sender);
        (bool ok, bytes memory why) = address(court).call(data);
        uint256 execution = gas.snapshotGasLastCall("Court", string.concat(name, "_execution"));
        if (!ok) {
            assembly ("memory-safe") {
                revert(add(why, 32), mload(why))
            }
        }
        uint256 tokens;
        for (uint256 i; i < data.length; ++i) {
            tokens += data[i] == 0 ? 1 : 4;
        }
        uint256 ordinary = 4 * tokens + execution;
        cost = 21_000 + (ordinary > 10 * tokens ? ordinary : 10 * tokens);
        gas.snapshotValue("Court", name, cost);
    }
}
