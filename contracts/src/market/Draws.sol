// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {IStakes} from "../interfaces/IStakes.sol";
import {Arrays} from "../libraries/Arrays.sol";
import {SumTree} from "../libraries/SumTree.sol";

/// @title Who is drawn: accounts of a class, each with the weight of its stake (docs/protocol.md 4.5)
/// @notice A change of a verifier's stake counts in draws two epochs later, so what is moved once a seed block is known
/// cannot steer a draw whose seed is recorded within WEIGHT_EPOCH blocks.
/// @dev Whoever inherits this says when stake comes and goes.
abstract contract Draws is IStakes {
    using Arrays for address[];
    using SumTree for SumTree.Tree;

    /// @dev A draw under way, in memory: the runs of those drawn so far, in order of their start, and the weight that is left.
    struct Line {
        uint256 epoch;
        uint256 rest;
        uint256 n;
        uint256[] starts;
        uint256[] lengths;
    }

    /// @notice Blocks in an epoch of the draw's weights.
    uint64 public immutable WEIGHT_EPOCH;

    mapping(address account => bytes32) public classOf;
    /// @dev One tree a class, in which an account that has once subscribed to it keeps its place.
    mapping(bytes32 class => SumTree.Tree) private weights;
    mapping(bytes32 class => mapping(uint256 place => address)) private accountAt;
    mapping(bytes32 class => mapping(address account => uint256)) private placeOf;

    constructor(uint64 weightEpoch) {
        WEIGHT_EPOCH = weightEpoch;
    }

    function drawWeight(bytes32 class, address account) external view returns (uint256) {
        uint256 place = placeOf[class][account];
        return place == 0 ? 0 : weights[class].weightOf(place, _epoch());
    }

    function classWeight(bytes32 class) external view returns (uint256) {
        return weights[class].total(_epoch());
    }

    function draw(bytes32 class, bytes32 seed, uint256 count) external view returns (address[] memory drawn) {
        Line memory line = _line(class, count);
        drawn = new address[](count);
        uint256 n;
        for (; n < count && line.rest > 0; ++n) {
            drawn[n] = _next(line, class, seed);
        }
        drawn.truncate(n);
    }

    function _line(bytes32 class, uint256 most) internal view returns (Line memory line) {
        line.epoch = _epoch();
        line.rest = weights[class].total(line.epoch);
        (line.starts, line.lengths) = (new uint256[](most), new uint256[](most));
    }

    /// @dev The next in a draw's line: a point of what is not yet drawn, past the runs of those already drawn, which are
    /// kept in order of their start. Exact weights, no retries.
    function _next(Line memory line, bytes32 class, bytes32 seed) internal view returns (address) {
        uint256 n = line.n++;
        uint256 target = uint256(keccak256(abi.encode(seed, n))) % line.rest;
        uint256 position;
        for (; position < n && target >= line.starts[position]; ++position) {
            target += line.lengths[position];
        }
        (uint256 place, uint256 start, uint256 weight) = weights[class].find(target, line.epoch);
        line.rest -= weight;
        for (uint256 i = n; i > position; --i) {
            (line.starts[i], line.lengths[i]) = (line.starts[i - 1], line.lengths[i - 1]);
        }
        (line.starts[position], line.lengths[position]) = (start, weight);
        return accountAt[class][place];
    }

    function _enter(bytes32 class, address account, uint256 amount) internal {
        if (class == 0 || amount == 0) return;
        SumTree.Tree storage tree = weights[class];
        uint256 place = placeOf[class][account];
        if (place == 0) {
            place = tree.push();
            (placeOf[class][account], accountAt[class][place]) = (place, account);
        }
        tree.add(place, amount, _epoch());
    }

    function _leave(bytes32 class, address account, uint256 amount) internal {
        if (class == 0 || amount == 0) return;
        weights[class].sub(placeOf[class][account], amount, _epoch());
    }

    function _epoch() private view returns (uint256) {
        return block.number / WEIGHT_EPOCH;
    }
}
