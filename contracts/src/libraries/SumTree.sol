// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {SafeCast} from "@openzeppelin/contracts/utils/math/SafeCast.sol";

/// @title Weights with O(log n) change and O(log n) search by running sum, in which a change counts two epochs later
/// @notice A binary indexed tree over places 1..n that grows by doubling. nodes[i] = sum of the weights of the
/// (i & -i) places that end at i, so nodes[size] is the total (size is a power of two). Changes are given with the epoch in
/// which they are made, questions with the epoch in which they are asked; neither may be earlier than the last change. A
/// question in epoch e sees what stood at the end of epoch e - 2.
library SumTree {
    using SafeCast for uint256;

    /// @dev `latest` stands since `epoch`; `before` stood at the end of epoch - 1, and at that of epoch - 2 too unless
    /// `twice`: then it was `earlier`. So the second slot is touched only by changes in two epochs running.
    struct Node {
        uint96 latest;
        uint96 before;
        uint56 epoch;
        bool twice;
        uint256 earlier;
    }

    struct Tree {
        uint256 size;
        uint256 count;
        mapping(uint256 index => Node) nodes;
    }

    /// @notice Append a place of weight 0.
    function push(Tree storage tree) internal returns (uint256 place) {
        place = tree.count + 1;
        uint256 size = tree.size;
        if (size == 0) {
            tree.size = 1;
        } else if (place > size) {
            tree.nodes[size * 2] = tree.nodes[size];
            tree.size = size * 2;
        }
        tree.count = place;
    }

    function add(Tree storage tree, uint256 place, uint256 amount, uint256 epoch) internal {
        uint256 size = tree.size;
        for (; place <= size; place += place & (~place + 1)) {
            Node storage node = tree.nodes[place];
            _change(node, epoch, uint256(node.latest) + amount);
        }
    }

    function sub(Tree storage tree, uint256 place, uint256 amount, uint256 epoch) internal {
        uint256 size = tree.size;
        for (; place <= size; place += place & (~place + 1)) {
            Node storage node = tree.nodes[place];
            _change(node, epoch, uint256(node.latest) - amount);
        }
    }

    function total(Tree storage tree, uint256 epoch) internal view returns (uint256) {
        return _at(tree.nodes[tree.size], epoch);
    }

    /// @notice The place whose run [start, start + weight) of the running sum holds `target` < total.
    function find(Tree storage tree, uint256 target, uint256 epoch)
        internal
        view
        returns (uint256 place, uint256 start, uint256 weight)
    {
        uint256 rest = target;
        weight = total(tree, epoch);
        for (uint256 step = tree.size >> 1; step > 0; step >>= 1) {
            uint256 left = _at(tree.nodes[place + step], epoch);
            if (left <= rest) {
                rest -= left;
                weight -= left;
                place += step;
            } else {
                weight = left;
            }
        }
        return (place + 1, target - rest, weight);
    }

    /// @notice The weight of one place.
    function weightOf(Tree storage tree, uint256 place, uint256 epoch)
        internal
        view
        returns (uint256 weight)
    {
        weight = _at(tree.nodes[place], epoch);
        uint256 from = place & (place - 1);
        for (uint256 below = place - 1; below > from; below &= below - 1) {
            weight -= _at(tree.nodes[below], epoch);
        }
    }

    function _change(Node storage node, uint256 epoch, uint256 to) private {
        (uint96 latest, uint96 before, uint256 last) = (node.latest, node.before, node.epoch);
        if (epoch != last) {
            bool twice = epoch == last + 1 && before != latest;
            if (twice) node.earlier = before;
            (node.twice, before) = (twice, latest);
        }
        (node.latest, node.before, node.epoch) = (to.toUint96(), before, epoch.toUint56());
    }

    function _at(Node storage node, uint256 epoch) private view returns (uint256) {
        uint256 last = node.epoch;
        if (epoch > last + 1) return node.latest;
        if (epoch > last) return node.before;
        return node.twice ? node.earlier : node.before;
    }
}
