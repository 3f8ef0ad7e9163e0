// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {Loop} from "../../src/interfaces/Types.sol";
import {Merkle} from "../../src/libraries/Merkle.sol";
import {Sampling} from "../../src/libraries/Sampling.sol";
import {Test} from "../Vm.sol";

interface VmFiles {
    function readFileBinary(string calldata path) external view returns (bytes memory);
}

/// @notice Trees, proofs, keys and draws from the shared vectors (format: spec/vectors/trees.py), which
/// tests/unit/vectors/test_tree_vectors.py reads too.
contract TreeVectorsTest is Test {
    bytes private data;
    uint256 private cursor;

    function test_Attack38_treesProofsAndDrawsAreThoseOfTheVectors() external {
        data = VmFiles(address(vm)).readFileBinary("../tests/vectors/trees.bin");
        uint256 count = _number(4);
        assertGe(count, 60);
        for (uint256 i; i < count; ++i) {
            _tree();
        }
        count = _number(4);
        assertGe(count, 10);
        for (uint256 i; i < count; ++i) {
            bytes memory leaf = _take(_number(2));
            assertEq(Merkle.leaf(leaf), _digest());
            bytes32 key = _digest();
            assertEq(Merkle.keyed(key, leaf), _digest());
        }
        count = _number(4);
        assertGe(count, 10);
        for (uint256 i; i < count; ++i) {
            _draw();
        }
        assertEq(cursor, data.length);
    }

    function verify(bytes32 root, bytes32 digest, uint256 index, uint256 count, bytes32[] calldata proof)
        external
        view
        returns (bool)
    {
        return Merkle.verify(root, digest, index, count, proof);
    }

    function rangeRoot(bytes32[] memory run, uint256 first, uint256 count, bytes32[] calldata siblings)
        external
        view
        returns (bytes32)
    {
        return Merkle.rangeRoot(run, first, count, siblings);
    }

    function _tree() private {
        uint256 n = _number(2);
        bytes32[] memory digests = _digests(n);
        bytes32 root = _digest();
        uint256 index = _number(2);
        bytes32[] memory proof = _digests(_number(1));
        assertTrue(this.verify(root, digests[index], index, n, proof));
        uint256 start = _number(2);
        bytes32[] memory run = new bytes32[](_number(2) - start);
        for (uint256 i; i < run.length; ++i) {
            run[i] = digests[start + i];
        }
        assertEq(this.rangeRoot(run, start, n, _digests(_number(1))), root);
        assertEq(Merkle.root(digests), root);
    }

    function _draw() private {
        bytes32 seed = _digest();
        address verifier = address(uint160(_number(20)));
        assertEq(Sampling.key(verifier, seed), _digest());
        Loop[] memory loops = new Loop[](_number(1));
        uint256 samples;
        for (uint256 i; i < loops.length; ++i) {
            loops[i] = Loop(0, 1, uint32(3 * _number(2)), 3, uint32(_number(2)), 0, 1);
            samples += loops[i].samples;
        }
        for (uint256 i; i < samples; ++i) {
            assertEq(Sampling.segment(seed, verifier, i, loops), _number(2));
        }
    }

    function _number(uint256 width) private returns (uint256 value) {
        bytes memory raw = _take(width);
        for (uint256 i; i < width; ++i) {
            value = value << 8 | uint8(raw[i]);
        }
    }

    function _digest() private returns (bytes32) {
        return bytes32(_number(32));
    }

    function _digests(uint256 count) private returns (bytes32[] memory digests) {
        digests = new bytes32[](count);
        for (uint256 i; i < count; ++i) {
            digests[i] = _digest();
        }
    }

    function _take(uint256 size) private returns (bytes memory raw) {
        raw = new bytes(size);
        for (uint256 i; i < size; ++i) {
            raw[i] = data[cursor + i];
        }
        cursor += size;
    }
}
