// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

/// @title What the seed of a claim asks of each drawn verifier (docs/protocol.md 4.6)
library Sampling {
    /// @notice The prefix of every leaf of the verifier's last-step traces.
    function key(address verifier, bytes32 seed) internal pure returns (bytes32) {
        return sha256(abi.encodePacked("assay/key/1", verifier, seed));
    }

    /// @notice The `ordinal`-th distinct segment that the verifier has to replay, of `segments`. `ordinal` < `segments`.
    function segment(bytes32 seed, address verifier, uint256 ordinal, uint256 segments)
        internal
        pure
        returns (uint256 drawn)
    {
        uint256[] memory before = new uint256[](ordinal);
        uint256 found;
        for (uint32 j;; ++j) {
            drawn = _draw(seed, verifier, j, segments);
            uint256 i;
            while (i < found && before[i] != drawn) ++i;
            if (i < found) continue;
            if (found == ordinal) return drawn;
            before[found++] = drawn;
        }
    }

    /// @notice Whether one of the verifier's `samples` segments is `sought`. `samples` <= `segments`.
    function holds(bytes32 seed, address verifier, uint256 samples, uint256 segments, uint256 sought)
        internal
        pure
        returns (bool)
    {
        uint256[] memory found = new uint256[](samples);
        uint256 n;
        for (uint32 j; n < samples; ++j) {
            uint256 drawn = _draw(seed, verifier, j, segments);
            if (drawn == sought) return true;
            uint256 i;
            while (i < n && found[i] != drawn) ++i;
            if (i == n) found[n++] = drawn;
        }
        return false;
    }

    function _draw(bytes32 seed, address verifier, uint32 j, uint256 segments)
        private
        pure
        returns (uint256)
    {
        // The first 8 bytes, by definition.
        // forge-lint: disable-next-line(unsafe-typecast)
        return uint64(bytes8(sha256(abi.encodePacked("assay/sample/1", seed, verifier, j)))) % segments;
    }
}
