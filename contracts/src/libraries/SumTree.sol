// SPDX-License-Identifier: MIT
pragma solidity ^0.8.28;

/// @title Weights with O(log n) change and O(log n) search by running sum
/// @notice A binary indexed tree over places 1..n that grows by doubling. nodes[i] = sum of the weights of the
/// (i & -i) places that end at i, so nodes[size] is the total (size is a power of two).
library SumTree {
    struct Tree {
        uint256 size;
        uint256 count;
        mapping(uint256 index => uint256) nodes;
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

    function add(Tree storage tree, uint256 place, uint256 amount) internal {
        uint256 size = tree.size;
        for (; place <= size; place += place & (~place + 1)) {
            tree.nodes[place] += amount;
        }
    }

    function sub(Tree storage tree, uint256 place, uint256 amount) internal {
        uint256 size = tree.size;
        for (; place <= size; place += place & (~place + 1)) {
            tree.nodes[place] -= amount;
        }
    }

    function total(Tree storage tree) internal view returns (uint256) {
        return tree.nodes[tree.size];
    }

    /// @notice The place whose run [start, start + weight) of the running sum holds `target` < total.
    function find(Tree storage tree, uint256 target) internal view returns (uint256 place, uint256 start) {
        uint256 rest = target;
        for (uint256 step = tree.size >> 1; step > 0; step >>= 1) {
            uint256 left = tree.nodes[place + step];
            if (left <= rest) {
                rest -= left;
                place += step;
            }
        }
        return (place + 1, target - rest);
    }
}
