// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {Loop} from "../interfaces/Types.sol";
import {Loops} from "./Loops.sol";

/// @title What the seed of a claim asks of each drawn verifier (docs/protocol.md 4.6)
library Sampling {
    /// @notice The prefix of every leaf of the verifier's last-step traces.
    function key(address verifier, bytes32 seed) internal pure returns (bytes32) {
        return sha256(abi.encodePacked("assay/key/1", verifier, seed));
    }

    /// @notice The `ordinal`-th segment that the verifier has to replay, the loops one after the other. `ordinal` < all
    /// loops' samples.
    function segment(bytes32 seed, address verifier, uint256 ordinal, Loop[] memory loops)
        internal
        view
        returns (uint256)
    {
        uint256 before;
        uint256 l;
        for (uint256 samples; (samples = loops[l].samples) <= ordinal; ++l) {
            ordinal -= samples;
            before += Loops.segmentsOf(loops[l]);
        }
        uint256 segments = Loops.segmentsOf(loops[l]);
        return before + _draws(seed, verifier, l, ordinal + 1, segments, type(uint256).max)[ordinal];
    }

    /// @notice Whether one of the verifier's `samples` of loop `ordinal`, of `segments` segments, is the segment `sought`.
    /// `samples` <= `segments`.
    function holds(
        bytes32 seed,
        address verifier,
        uint256 ordinal,
        uint256 samples,
        uint256 segments,
        uint256 sought
    ) internal view returns (bool) {
        return _draws(seed, verifier, ordinal, samples, segments, sought).length < samples;
    }

    /// @dev The first `samples` distinct segments of the loop, in order of drawing; ends before the segment `sought`.
    function _draws(
        bytes32 seed,
        address verifier,
        uint256 ordinal,
        uint256 samples,
        uint256 segments,
        uint256 sought
    ) private view returns (uint256[] memory drawn) {
        drawn = new uint256[](samples);
        uint256 preimage;
        assembly ("memory-safe") {
            preimage := mload(0x40)
            mstore(0x40, add(preimage, 0x80))
            mstore(preimage, "assay/sample/2")
            mstore(add(preimage, 14), seed)
            mstore(add(preimage, 46), shl(96, verifier))
            mstore(add(preimage, 66), shl(224, ordinal))
        }
        uint256 n;
        for (uint256 j; n < samples; ++j) {
            uint256 one;
            assembly ("memory-safe") {
                mstore(add(preimage, 70), shl(224, j))
                // The precompile fails only for want of gas; then this call must not go on.
                if iszero(staticcall(gas(), 2, preimage, 74, 0, 32)) { revert(0, 0) }
                one := mod(shr(192, mload(0)), segments)
            }
            if (one == sought) break;
            uint256 i;
            while (i < n && drawn[i] != one) ++i;
            if (i == n) drawn[n++] = one;
        }
        assembly ("memory-safe") {
            mstore(drawn, n)
        }
    }
}
