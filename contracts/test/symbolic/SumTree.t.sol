// SPDX-License-Identifier: Apache-2.0
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

    /// @notice The total is the sum, whatever grew in between, and shows two epochs later.
    function check_totalIsTheSumTwoEpochsLater(uint88[PLACES] memory weights) external {
        uint256 sum = _grow(weights);
        assert(tree.total(EPOCH) == 0 && tree.total(EPOCH + 1) == 0);
        assert(tree.total(EPOCH + 2) == sum);
        assert(tree.total(EPOCH + 3) == sum);
    }

    /// @notice What is taken from any place an epoch after it came shows an epoch after that: in the total, in the place's
    /// weight, and in no other's.
    function check_whatIsTakenShowsTwoEpochsLater(uint88[PLACES] memory weights, uint8 which, uint88 taken)
        external
    {
        uint256 sum = _grow(weights);
        for (uint256 place = 1; place <= PLACES; ++place) {
            if (which == place) _take(weights, sum, place, taken);
        }
    }

    function _take(uint88[PLACES] memory weights, uint256 sum, uint256 place, uint256 taken) private {
        vm.assume(taken <= weights[place - 1]);
        tree.sub(place, taken, EPOCH + 1);
        assert(tree.total(EPOCH + 1) == 0);
        assert(tree.total(EPOCH + 2) == sum);
        assert(tree.total(EPOCH + 3) == sum - taken);
        for (uint256 i = 1; i <= PLACES; ++i) {
            assert(tree.weightOf(i, EPOCH + 2) == weights[i - 1]);
            assert(tree.weightOf(i, EPOCH + 3) == weights[i - 1] - (i == place ? taken : 0));
        }
    }

    /// @notice Three changes of a place at any three times: a question sees what stood at the end of the epoch before last.
    function check_aQuestionSeesTheEpochBeforeLast(
        uint88[3] memory amounts,
        uint32[3] memory epochs,
        uint32 asked
    ) external {
        vm.assume(2 < epochs[0] && epochs[0] <= epochs[1] && epochs[1] <= epochs[2] && epochs[2] <= asked);
        tree.push();
        uint256 seen;
        uint256 sum;
        for (uint256 i; i < 3; ++i) {
            tree.add(1, amounts[i], epochs[i]);
            sum += amounts[i];
            if (epochs[i] <= asked - 2) seen = sum;
        }
        assert(tree.total(asked) == seen);
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
