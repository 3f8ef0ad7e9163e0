// SPDX-License-Identifier: MIT
pragma solidity ^0.8.30;

import {SumTree} from "../../src/libraries/SumTree.sol";
import {Test} from "../Vm.sol";

/// @notice Proofs, for all weights at once (`make symbolic`): the draw's tree over five places, which grows three times.
contract SumTreeSymbolic is Test {
    using SumTree for SumTree.Tree;

    uint256 private constant PLACES = 5;
    uint256 private constant EPOCH = 10;

    SumTree.Tree private tree;

    function _grow(uint88[PLACES] memory weights) private returns (uint256 sum) {
        for (uint256 i; i < PLACES; ++i) {
            assert(tree.push() == i + 1);
            tree.add(i + 1, weights[i], EPOCH);
            sum += weights[i];
        }
    }

    /// @notice The total is the sum, whatever grew in between, and what is taken away later shows two epochs later.
    function check_totalIsTheSumTwoEpochsLater(uint88[PLACES] memory weights, uint88 less) external {
        uint256 sum = _grow(weights);
        assert(tree.total(EPOCH) == 0 && tree.total(EPOCH + 1) == 0);
        uint256 after_ = sum;
        for (uint256 i; i < PLACES; ++i) {
            uint256 taken = less < weights[i] ? less : weights[i];
            tree.sub(i + 1, taken, EPOCH + 1);
            after_ -= taken;
        }
        assert(tree.total(EPOCH + 2) == sum);
        assert(tree.total(EPOCH + 3) == after_);
    }

    /// @notice Every point below the total belongs to the one place whose run holds it: the draw is exactly by weight.
    function check_everyPointHasItsPlace(uint88[PLACES] memory weights, uint256 target) external {
        uint256 sum = _grow(weights);
        vm.assume(target < sum);
        (uint256 place, uint256 start, uint256 weight) = tree.find(target, EPOCH + 2);
        assert(place >= 1 && place <= PLACES);
        uint256 before;
        for (uint256 i; i + 1 < place; ++i) {
            before += weights[i];
        }
        assert(start == before && weight == weights[place - 1]);
        assert(start <= target && target < start + weight);
        assert(tree.weightOf(place, EPOCH + 2) == weight);
    }
}
