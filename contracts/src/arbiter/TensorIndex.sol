// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

/// @title Row-major index arithmetic
library TensorIndex {
    /// @notice Flat index, in a tensor of shape `from`, of the element that broadcasting to `to` puts at `element`.
    function broadcast(uint256 element, uint256[] memory from, uint256[] memory to)
        internal
        pure
        returns (uint256 flat)
    {
        uint256 stride = 1;
        uint256 skip = to.length - from.length;
        for (uint256 d = to.length; d > skip; --d) {
            uint256 size = from[d - 1 - skip];
            if (size != 1) flat += (element % to[d - 1]) * stride;
            element /= to[d - 1];
            stride *= size;
        }
    }

    /// @notice Position of `element` along dimension `along`.
    function coordinate(uint256 element, uint256[] memory dims, uint256 along)
        internal
        pure
        returns (uint256)
    {
        return (element / span(dims, along + 1)) % dims[along];
    }

    /// @notice Elements in one step of the dimension before `from`: the product of the dimensions from `from` on.
    function span(uint256[] memory dims, uint256 from) internal pure returns (uint256 size) {
        size = 1;
        for (uint256 d = from; d < dims.length; ++d) {
            size *= dims[d];
        }
    }

    /// @notice offset + Σ coordinate_d · stride_d, with attrs = (offset, strides).
    function strided(uint256 element, uint256[] memory dims, int256[] memory attrs)
        internal
        pure
        returns (uint256)
    {
        int256 flat = attrs[0];
        for (uint256 d = dims.length; d > 0; --d) {
            flat += int256(element % dims[d - 1]) * attrs[d];
            element /= dims[d - 1];
        }
        return uint256(flat);
    }

    function clamp(int256 index, uint256 count) internal pure returns (uint256) {
        if (index < 0) return 0;
        return uint256(index) < count ? uint256(index) : count - 1;
    }
}
