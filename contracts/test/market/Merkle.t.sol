// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {Merkle} from "../../src/libraries/Merkle.sol";
import {Test} from "../Vm.sol";

/// @dev Calls the library with calldata proofs.
contract MerkleHarness {
    function verify(bytes32 root_, bytes32 digest, uint256 index, uint256 count, bytes32[] calldata proof)
        external
        view
        returns (bool)
    {
        return Merkle.verify(root_, digest, index, count, proof);
    }

    function rangeRoot(bytes32[] memory digests, uint256 first, uint256 count, bytes32[] calldata siblings)
        external
        view
        returns (bytes32)
    {
        return Merkle.rangeRoot(digests, first, count, siblings);
    }

    function root(bytes32[] memory digests) external view returns (bytes32) {
        return Merkle.root(digests);
    }

    function fold(bytes32[] memory digests) external view returns (bytes32) {
        return Merkle.fold(digests);
    }
}

/// @notice The tree library against a plain padded tree built level by level.
contract MerkleTest is Test {
    MerkleHarness private harness = new MerkleHarness();

    function digestsOf(uint256 n, uint256 salt) private pure returns (bytes32[] memory digests) {
        digests = new bytes32[](n);
        for (uint256 i; i < n; ++i) {
            digests[i] = keccak256(abi.encode(salt, i));
        }
    }

    /// @dev All levels of the padded tree, bottom-up, from the definition.
    function levelsOf(bytes32[] memory digests) private pure returns (bytes32[][] memory levels) {
        uint256 d = Merkle.depth(digests.length);
        levels = new bytes32[][](d + 1);
        levels[0] = new bytes32[](2 ** d);
        for (uint256 i; i < digests.length; ++i) {
            levels[0][i] = digests[i];
        }
        for (uint256 h = 1; h <= d; ++h) {
            levels[h] = new bytes32[](2 ** (d - h));
            for (uint256 i; i < levels[h].length; ++i) {
                levels[h][i] =
                    sha256(abi.encodePacked(bytes1(0x01), levels[h - 1][2 * i], levels[h - 1][2 * i + 1]));
            }
        }
    }

    function rangeProof(bytes32[][] memory levels, uint256 a, uint256 b)
        private
        pure
        returns (bytes32[] memory proof)
    {
        bytes32[] memory all = new bytes32[](2 * levels.length);
        uint256 n;
        for (uint256 h; h + 1 < levels.length; ++h) {
            if (a & 1 == 1) all[n++] = levels[h][a - 1];
            if (b & 1 == 1) all[n++] = levels[h][b];
            a = a / 2;
            b = (b + 1) / 2;
        }
        proof = new bytes32[](n);
        for (uint256 i; i < n; ++i) {
            proof[i] = all[i];
        }
    }

    function memberProof(bytes32[][] memory levels, uint256 i) private pure returns (bytes32[] memory proof) {
        proof = new bytes32[](levels.length - 1);
        for (uint256 h; h < proof.length; ++h) {
            proof[h] = levels[h][(i >> h) ^ 1];
        }
    }

    function test_leavesAndNodesAreDomainSeparated() external view {
        assertEq(Merkle.leaf("abc"), sha256(hex"00616263"));
        assertEq(
            Merkle.keyed(bytes32(uint256(7)), "abc"), sha256(abi.encodePacked(hex"02", uint256(7), "abc"))
        );
        assertEq(Merkle.leafUnder(0, "abc"), Merkle.leaf("abc"));
        assertEq(Merkle.leafUnder(bytes32(uint256(7)), "abc"), Merkle.keyed(bytes32(uint256(7)), "abc"));
        assertEq(Merkle.zero(0), bytes32(0));
        assertEq(Merkle.zero(2), Merkle.node(Merkle.node(0, 0), Merkle.node(0, 0)));
    }

    function test_depthIsTheCeilingOfTheLogarithm() external pure {
        assertEq(Merkle.depth(1), 0);
        assertEq(Merkle.depth(2), 1);
        assertEq(Merkle.depth(3), 2);
        assertEq(Merkle.depth(4), 2);
        assertEq(Merkle.depth(65_536), 16);
        assertEq(Merkle.depth(65_537), 17);
    }

    function testFuzz_everyRangeProofGivesTheRoot(uint256 n, uint256 a, uint256 b, uint256 salt)
        external
        view
    {
        n = bound(n, 1, 40);
        a = bound(a, 0, n - 1);
        b = bound(b, a + 1, n);
        bytes32[] memory digests = digestsOf(n, salt);
        bytes32[][] memory levels = levelsOf(digests);
        bytes32 expected = levels[levels.length - 1][0];
        bytes32[] memory run = new bytes32[](b - a);
        for (uint256 i = a; i < b; ++i) {
            run[i - a] = digests[i];
        }
        assertEq(harness.rangeRoot(run, a, n, rangeProof(levels, a, b)), expected, "range");
        assertEq(harness.root(digests), expected, "root");
        assertTrue(harness.verify(expected, digests[a], a, n, memberProof(levels, a)), "member");
    }

    function testFuzz_aWrongRangeNeverGivesTheRoot(
        uint256 n,
        uint256 a,
        uint256 b,
        uint256 place,
        uint256 salt
    ) external {
        n = bound(n, 2, 40);
        a = bound(a, 0, n - 1);
        b = bound(b, a + 1, n);
        bytes32[] memory digests = digestsOf(n, salt);
        bytes32[][] memory levels = levelsOf(digests);
        bytes32[] memory run = new bytes32[](b - a);
        for (uint256 i = a; i < b; ++i) {
            run[i - a] = digests[i];
        }
        bytes32[] memory siblings = rangeProof(levels, a, b);
        run[place % run.length] ^= bytes32(uint256(1));
        assertNotEq(harness.rangeRoot(run, a, n, siblings), levels[levels.length - 1][0]);
        run[place % run.length] ^= bytes32(uint256(1));
        bytes32[] memory longer = new bytes32[](siblings.length + 1);
        vm.expectRevert(
            abi.encodeWithSelector(Merkle.WrongProofLength.selector, siblings.length, siblings.length + 1)
        );
        harness.rangeRoot(run, a, n, longer);
        if (siblings.length > 0) {
            vm.expectPartialRevert(Merkle.WrongProofLength.selector);
            harness.rangeRoot(run, a, n, new bytes32[](siblings.length - 1));
        }
    }

    function test_Attack38_aProofOfAnotherShapeIsNoProof() external view {
        bytes32[] memory digests = digestsOf(5, 1);
        bytes32[][] memory levels = levelsOf(digests);
        bytes32 root = levels[3][0];
        bytes32[] memory proof = memberProof(levels, 2);
        assertTrue(harness.verify(root, digests[2], 2, 5, proof));
        assertFalse(harness.verify(root, digests[2], 3, 5, proof), "wrong index");
        assertFalse(harness.verify(root, digests[2], 2 + 8, 5, proof), "index overflow");
        assertFalse(harness.verify(root, digests[2], 2, 9, proof), "too short");
        assertFalse(harness.verify(root, digests[2], 2, 3, proof), "too long");
        assertFalse(harness.verify(root, bytes32(0), 5, 5, memberProof(levels, 5)), "padding is no leaf");
        bytes32[] memory shorter = new bytes32[](2);
        (shorter[0], shorter[1]) = (levels[1][0], levels[2][1]);
        assertFalse(harness.verify(root, levels[1][1], 1, 5, shorter), "a node is no leaf");
    }

    function test_rangesOutsideTheTreeRevert() external {
        vm.expectRevert(Merkle.EmptyRange.selector);
        harness.rangeRoot(new bytes32[](0), 0, 4, new bytes32[](0));
        vm.expectRevert(abi.encodeWithSelector(Merkle.OutOfRange.selector, 6, 5));
        harness.rangeRoot(new bytes32[](2), 4, 5, new bytes32[](0));
        vm.expectRevert(Merkle.EmptyRange.selector);
        harness.root(new bytes32[](0));
    }

    function test_foldTakesPowersOfTwoOnly() external {
        bytes32[] memory digests = digestsOf(4, 2);
        assertEq(harness.fold(digests), levelsOf(digests)[2][0]);
        assertEq(harness.fold(digestsOf(1, 2)), digestsOf(1, 2)[0]);
        vm.expectRevert(Merkle.EmptyRange.selector);
        harness.fold(digestsOf(3, 2));
        vm.expectRevert(Merkle.EmptyRange.selector);
        harness.fold(new bytes32[](0));
    }
}
