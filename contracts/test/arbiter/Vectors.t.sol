// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {ArbiterContraction} from "../../src/arbiter/ArbiterContraction.sol";
import {ArbiterElementwise} from "../../src/arbiter/ArbiterElementwise.sol";
import {ArbiterIndex} from "../../src/arbiter/ArbiterIndex.sol";
import {ArbiterTranscendental} from "../../src/arbiter/ArbiterTranscendental.sol";
import {IArbiter} from "../../src/interfaces/ICourt.sol";
import {Test} from "../Vm.sol";

interface VmFiles {
    function readFileBinary(string calldata path) external view returns (bytes memory);
    function envOr(string calldata name, string calldata fallback_) external view returns (string memory);
    function envOr(string calldata name, uint256 fallback_) external view returns (uint256);
}

/// @notice Attack 44: every instruction against the integer-only model, bit for bit, on the shared vectors. The format is
/// described in scripts/generate/vectors.py. `ASSAY_VECTORS` names another folder, `ASSAY_VECTOR_COUNT` the fewest cases in a file.
contract VectorsTest is Test {
    IArbiter private elementwise = ArbiterElementwise(deployed("ArbiterElementwise", ""));
    IArbiter private transcendental = ArbiterTranscendental(deployed("ArbiterTranscendental", ""));
    IArbiter private contraction = ArbiterContraction(deployed("ArbiterContraction", ""));
    IArbiter private index = ArbiterIndex(deployed("ArbiterIndex", ""));

    VmFiles private constant files = VmFiles(address(vm));

    function test_const() external {
        _run(elementwise, "const");
    }

    function test_iota() external {
        _run(elementwise, "iota");
    }

    function test_neg() external {
        _run(elementwise, "neg");
    }

    function test_abs() external {
        _run(elementwise, "abs");
    }

    function test_sqrt() external {
        _run(elementwise, "sqrt");
    }

    function test_floor() external {
        _run(elementwise, "floor");
    }

    function test_add() external {
        _run(elementwise, "add");
    }

    function test_sub() external {
        _run(elementwise, "sub");
    }

    function test_mul() external {
        _run(elementwise, "mul");
    }

    function test_div() external {
        _run(elementwise, "div");
    }

    function test_max() external {
        _run(elementwise, "max");
    }

    function test_min() external {
        _run(elementwise, "min");
    }

    function test_eq() external {
        _run(elementwise, "eq");
    }

    function test_lt() external {
        _run(elementwise, "lt");
    }

    function test_le() external {
        _run(elementwise, "le");
    }

    function test_and() external {
        _run(elementwise, "and");
    }

    function test_or() external {
        _run(elementwise, "or");
    }

    function test_not() external {
        _run(elementwise, "not");
    }

    function test_select() external {
        _run(elementwise, "select");
    }

    function test_iadd() external {
        _run(elementwise, "iadd");
    }

    function test_isub() external {
        _run(elementwise, "isub");
    }

    function test_imul() external {
        _run(elementwise, "imul");
    }

    function test_convert() external {
        _run(elementwise, "convert");
    }

    function test_bits() external {
        _run(elementwise, "bits");
    }

    function test_exp() external {
        _run(transcendental, "exp");
    }

    function test_log() external {
        _run(transcendental, "log");
    }

    function test_tanh() external {
        _run(transcendental, "tanh");
    }

    function test_erf() external {
        _run(transcendental, "erf");
    }

    function test_sin() external {
        _run(transcendental, "sin");
    }

    function test_cos() external {
        _run(transcendental, "cos");
    }

    function test_pow() external {
        _run(transcendental, "pow");
    }

    function test_sum() external {
        _run(contraction, "sum");
    }

    function test_amax() external {
        _run(contraction, "amax");
    }

    function test_exponent() external {
        _run(contraction, "exponent");
    }

    function test_quantise() external {
        _run(contraction, "quantise");
    }

    function test_product() external {
        _run(contraction, "product");
    }

    function test_scatterSum() external {
        _run(contraction, "scatter_sum");
    }

    function test_argmax() external {
        _run(contraction, "argmax");
    }

    function test_strided() external {
        _run(index, "strided");
    }

    function test_reshape() external {
        _run(index, "reshape");
    }

    function test_concat() external {
        _run(index, "concat");
    }

    function test_take() external {
        _run(index, "take");
    }

    function test_pick() external {
        _run(index, "pick");
    }

    function _run(IArbiter arbiter, string memory name) private {
        string memory folder = files.envOr("ASSAY_VECTORS", "../tests/vectors");
        bytes memory data = files.readFileBinary(string.concat(folder, "/", name, ".bin"));
        uint256 cursor;
        uint256 done;
        while (cursor < data.length) {
            bytes memory node;
            (node, cursor) = _blob(data, cursor, 2);
            uint256 cases = _number(data, cursor, 4);
            cursor += 4;
            for (uint256 i; i < cases; ++i) {
                cursor = _case(arbiter, data, cursor, node, done + i);
            }
            done += cases;
        }
        assertGe(done, files.envOr("ASSAY_VECTOR_COUNT", uint256(100)), "too few cases");
    }

    /// @dev Runs the case at `cursor`; memory is given back, as a large file would otherwise fill it.
    function _case(IArbiter arbiter, bytes memory data, uint256 cursor, bytes memory node, uint256 ordinal)
        private
        view
        returns (uint256)
    {
        uint256 free;
        assembly ("memory-safe") {
            free := mload(0x40)
        }
        uint256 element = _number(data, cursor, 4);
        IArbiter.Span[] memory spans = new IArbiter.Span[](_number(data, cursor + 4, 1));
        cursor += 5;
        for (uint256 i; i < spans.length; ++i) {
            spans[i].input = uint32(_number(data, cursor, 1));
            spans[i].offset = uint64(_number(data, cursor + 1, 4));
            (spans[i].data, cursor) = _blob(data, cursor + 5, 2);
        }
        uint256 expected = _number(data, cursor, 4);
        uint256 given = arbiter.evaluate(node, uint64(element), spans);
        if (given != expected) assertEq(given, expected, string.concat("case ", vm.toString(ordinal)));
        assembly ("memory-safe") {
            mstore(0x40, free)
        }
        return cursor + 4;
    }

    function _number(bytes memory data, uint256 cursor, uint256 width) private pure returns (uint256 value) {
        assembly ("memory-safe") {
            value := shr(sub(256, shl(3, width)), mload(add(add(data, 32), cursor)))
        }
    }

    /// @dev A length of `width` bytes, then as many bytes.
    function _blob(bytes memory data, uint256 cursor, uint256 width)
        private
        pure
        returns (bytes memory blob, uint256 end)
    {
        uint256 size = _number(data, cursor, width);
        blob = new bytes(size);
        cursor += width;
        assembly ("memory-safe") {
            mcopy(add(blob, 32), add(add(data, 32), cursor), size)
        }
        end = cursor + size;
    }
}
