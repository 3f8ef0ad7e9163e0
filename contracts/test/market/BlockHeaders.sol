// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {RLP} from "@openzeppelin/contracts/utils/RLP.sol";

/// @dev Headers of blocks as Prague has them, whatever the block: written by OpenZeppelin's encoder.
library BlockHeaders {
    using RLP for *;

    function header(uint256 number, bytes32 randao, bytes memory extraData)
        internal
        pure
        returns (bytes memory)
    {
        return RLP.encode(fields(number, randao, extraData));
    }

    /// @dev The encoded fields, in order.
    function fields(uint256 number, bytes32 randao, bytes memory extraData)
        internal
        pure
        returns (bytes[] memory encoded)
    {
        encoded = new bytes[](21);
        for (uint256 i; i < encoded.length; ++i) {
            encoded[i] = RLP.encode(keccak256(abi.encode("header", number, i))); // the roots and hashes
        }
        encoded[2] = RLP.encode(address(uint160(number))); // coinbase
        encoded[6] = RLP.encode(new bytes(256)); // logsBloom
        encoded[7] = RLP.encode(uint256(0)); // difficulty
        encoded[8] = RLP.encode(number);
        encoded[9] = RLP.encode(uint256(36_000_000)); // gasLimit
        encoded[10] = RLP.encode(number % 1000 * 21_000); // gasUsed
        encoded[11] = RLP.encode(1_700_000_000 + 12 * number); // timestamp
        encoded[12] = RLP.encode(extraData);
        encoded[13] = RLP.encode(randao);
        encoded[14] = RLP.encode(bytes.concat(bytes8(0))); // nonce
        encoded[15] = RLP.encode(uint256(7)); // baseFeePerGas
        encoded[17] = RLP.encode(uint256(131_072)); // blobGasUsed
        encoded[18] = RLP.encode(uint256(0)); // excessBlobGas
    }
}
