// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

/// @title The RANDAO value in the RLP of a block's header (EIP-4399)
/// @dev A header starts with seven fields of fixed length; difficulty, number, gasLimit, gasUsed, timestamp and extraData
/// follow, short strings all, and then the value. So it is walked to: 2,000 gas, where OpenZeppelin's BlockHeader, which
/// decodes every field, takes 44,000.
library Headers {
    uint256 private constant BLOOM = 189; // where logsBloom starts
    uint256 private constant DIFFICULTY = 448;

    /// @notice The value, or 0 for anything that is not laid out as Ethereum's headers are. A difficulty that is not zero is
    /// another consensus's: there the field is whatever its block's maker puts into it.
    function randao(bytes calldata header) internal pure returns (bytes32) {
        if (header.length <= DIFFICULTY || bytes3(header[BLOOM:]) != 0xb90100 || header[DIFFICULTY] != 0x80) {
            return 0;
        }
        uint256 offset = DIFFICULTY + 1;
        for (uint256 i; i < 5; ++i) {
            if (offset >= header.length) return 0;
            uint256 first = uint8(header[offset]);
            if (first > 0xb7) return 0; // a list, or a string of more than 55 bytes
            offset += first < 0x80 ? 1 : first - 0x7f;
        }
        if (offset + 33 > header.length || header[offset] != 0xa0) return 0;
        return bytes32(header[offset + 1:]);
    }
}
