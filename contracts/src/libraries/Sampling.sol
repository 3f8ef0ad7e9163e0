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
        pure
        returns (uint256)
    {
        uint256 before;
        uint256 l;
        for (uint256 samples; (samples = loops[l].samples) <= ordinal; ++l) {
            ordinal -= samples;
            before += Loops.segmentsOf(loops[l]);
        }
        uint256 segments = Loops.segmentsOf(loops[l]);
        uint256[] memory drawn = new uint256[](ordinal + 1);
        uint256 n;
        for (uint256 j; n <= ordinal; ++j) {
            uint256 one = _draw(seed, verifier, l, j) % segments;
            uint256 i;
            while (i < n && drawn[i] != one) ++i;
            if (i == n) drawn[n++] = one;
        }
        return before + drawn[ordinal];
    }

    function _draw(bytes32 seed, address verifier, uint256 loop, uint256 j) private pure returns (uint64) {
        // Both are counters below 2^32.
        // forge-lint: disable-next-line(unsafe-typecast)
        bytes memory preimage = abi.encodePacked("assay/sample/1", seed, verifier, uint32(loop), uint32(j));
        return uint64(bytes8(sha256(preimage)));
    }
}
