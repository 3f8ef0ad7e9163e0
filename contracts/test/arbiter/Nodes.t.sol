// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {ArbiterContraction} from "../../src/arbiter/ArbiterContraction.sol";
import {ArbiterElementwise} from "../../src/arbiter/ArbiterElementwise.sol";
import {ArbiterIndex} from "../../src/arbiter/ArbiterIndex.sol";
import {ArbiterTranscendental} from "../../src/arbiter/ArbiterTranscendental.sol";
import {NodeRules} from "../../src/arbiter/NodeRules.sol";
import {Node, Nodes} from "../../src/arbiter/Nodes.sol";
import {IArbiter, ICourt} from "../../src/interfaces/ICourt.sol";
import {Test} from "../Vm.sol";

interface VmFiles {
    function readFileBinary(string calldata path) external view returns (bytes memory);
    function envOr(string calldata name, string calldata fallback_) external view returns (string memory);
}

/// @notice Strictness of node decoding, and of the arbiters about what they are given.
contract NodesTest is Test {
    IArbiter private contraction = ArbiterContraction(deployed("ArbiterContraction", ""));
    IArbiter private elementwise = ArbiterElementwise(deployed("ArbiterElementwise", ""));
    IArbiter private index = ArbiterIndex(deployed("ArbiterIndex", ""));
    IArbiter private transcendental = ArbiterTranscendental(deployed("ArbiterTranscendental", ""));

    /// @notice Attack 45: what the validator refuses, the arbiter refuses, and nothing else (format: spec/vectors/nodes.py).
    function test_Attack45_arbiterAndValidatorAgreeOnEveryNode() external view {
        string memory folder = VmFiles(address(vm)).envOr("ASSAY_VECTORS", "../tests/vectors");
        bytes memory data = VmFiles(address(vm)).readFileBinary(string.concat(folder, "/nodes.bin"));
        uint256[2] memory seen;
        for (uint256 cursor; cursor < data.length;) {
            uint256 free;
            uint256 size;
            assembly ("memory-safe") {
                free := mload(0x40)
                size := shr(240, mload(add(add(data, 32), cursor)))
            }
            bytes memory node = new bytes(size);
            assembly ("memory-safe") {
                mcopy(add(node, 32), add(add(data, 34), cursor), size)
            }
            cursor += 3 + size;
            bool accepted = data[cursor - 1] != 0;
            bool taken;
            bytes4 why;
            try this.check(node) {
                taken = true;
            } catch (bytes memory reason) {
                why = bytes4(reason);
            }
            string memory name = string.concat("node ending before byte ", vm.toString(cursor));
            assertEq(taken ? 1 : 0, accepted ? 1 : 0, name);
            if (!taken && why != ICourt.UnknownOperation.selector) {
                assertEq(uint256(uint32(why)), uint256(uint32(ICourt.MalformedNode.selector)), name);
            }
            ++seen[accepted ? 1 : 0];
            assembly ("memory-safe") {
                mstore(0x40, free)
            }
        }
        assertGe(seen[0], 500);
        assertGe(seen[1], 300);
    }

    /// @dev Records have 2^31 bytes; that a data or record node stays inside them is the court's to check (`_dataElement`).
    function check(bytes calldata encoded) external pure {
        Node memory node = Nodes.decode(encoded);
        if (node.op <= Nodes.RECORD) NodeRules.checkSource(node);
        bool reads = node.op == Nodes.DATA || node.op == Nodes.RECORD;
        if (reads && uint256(node.attrs[0]) + node.dims[1] > 1 << 31) revert ICourt.MalformedNode();
        if (node.op <= Nodes.RECORD) return;
        if (node.op <= Nodes.BITS) NodeRules.checkElementwise(node);
        else if (node.op <= Nodes.ARGMAX) NodeRules.checkContraction(node);
        else NodeRules.checkIndex(node);
    }

    function test_anotherFamilysOperationIsRefused() external {
        _refuses(elementwise, hex"13000000010000000000000000", 0x13); // exp
        _refuses(elementwise, hex"0500000000", 0x05); // step is the court's
        _refuses(transcendental, hex"1000000000", 0x10); // neg
        _refuses(contraction, hex"6000000000", 0x60); // strided
        _refuses(index, hex"5000000000", 0x50); // sum
        _refuses(index, hex"0800000000", 0x08); // nobody's
        _refuses(index, hex"0600000000", 0x06); // shard is the court's
    }

    function _refuses(IArbiter arbiter, bytes memory node, uint8 op) private {
        vm.expectRevert(abi.encodeWithSelector(ICourt.UnknownOperation.selector, op));
        arbiter.evaluate(node, 0, new IArbiter.Span[](0));
    }

    function test_elementBeyondTheTensorIsRefused() external {
        vm.expectRevert(abi.encodeWithSelector(ICourt.IndexOutOfRange.selector, 5, 5));
        elementwise.evaluate(hex"0401010001000000050000000000000000", 5, new IArbiter.Span[](0));
    }

    /// @dev neg f32 [4]
    bytes private constant NEG = hex"100001010000000004000000000001" hex"00000004";

    /// @notice Bytes that the spans do not hold are missing, also when they nearly do.
    function testFuzz_elementOutsideTheSpansIsMissing(uint256 offset, uint256 size, uint256 element)
        external
    {
        offset = bound(offset, 0, 16);
        size = bound(size, 0, 16 - offset);
        element = bound(element, 0, 3);
        IArbiter.Span[] memory spans = new IArbiter.Span[](2);
        spans[0] = IArbiter.Span(1, 0, new bytes(16)); // another input's
        spans[1] = IArbiter.Span(0, uint64(offset), new bytes(size));
        if (offset <= 4 * element && 4 * element + 4 <= offset + size) {
            assertEq(elementwise.evaluate(NEG, uint64(element), spans), 0x80000000);
        } else {
            vm.expectRevert(abi.encodeWithSelector(ICourt.MissingInput.selector, 0, element));
            elementwise.evaluate(NEG, uint64(element), spans);
        }
    }
}
