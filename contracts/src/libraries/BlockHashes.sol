// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

/// @title Hashes of earlier blocks, 8,191 of them where the chain keeps a history (EIP-2935), else 256
/// @dev Not OpenZeppelin's Blockhash: that takes what a history contract which fails has said for a hash. Hardhat's node has
/// one that reverts with a reason, whose first bytes everybody knows in advance.
library BlockHashes {
    address private constant HISTORY = 0x0000F90827F1C53a10cb7A02335B175320002935;

    /// @notice The hash, or 0 where the chain does not know it any more. `blockNumber` < block.number
    function hashOf(uint256 blockNumber) internal view returns (bytes32 found) {
        if (block.number - blockNumber < 257) return blockhash(blockNumber);
        assembly ("memory-safe") {
            mstore(0, blockNumber)
            let answered := staticcall(gas(), HISTORY, 0, 0x20, 0, 0x20)
            if and(answered, eq(returndatasize(), 0x20)) { found := mload(0) }
        }
    }
}
