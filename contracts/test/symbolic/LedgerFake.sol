// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {IVault} from "../../src/interfaces/IVault.sol";

/// @dev The Vault's entries without its callers and events; the Vault itself is proven in Vault.t.sol.
contract LedgerFake {
    mapping(IVault.Bucket bucket => mapping(bytes32 key => uint256)) public balance;
    uint256 public burnt;

    function put(IVault.Bucket bucket, bytes32 key, uint256 amount) external {
        balance[bucket][key] += amount;
    }

    function move(IVault.Bucket from, bytes32 fromKey, IVault.Bucket to, bytes32 toKey, uint256 amount)
        external
    {
        balance[from][fromKey] -= amount;
        balance[to][toKey] += amount;
    }

    function payEach(IVault.Bucket from, bytes32 fromKey, address[] calldata to, uint256 first, uint256 rest)
        external
    {
        balance[from][fromKey] -= first + rest * (to.length - 1);
        for (uint256 i; i < to.length; ++i) {
            balance[IVault.Bucket.FREE][bytes32(uint256(uint160(to[i])))] += i == 0 ? first : rest;
        }
    }

    function burn(IVault.Bucket from, bytes32 fromKey, uint256 amount) external {
        balance[from][fromKey] -= amount;
        burnt += amount;
    }
}
