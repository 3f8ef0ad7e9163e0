// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {ERC20} from "@openzeppelin/contracts/token/ERC20/ERC20.sol";
import {ERC20Burnable} from "@openzeppelin/contracts/token/ERC20/extensions/ERC20Burnable.sol";
import {ERC20Permit} from "@openzeppelin/contracts/token/ERC20/extensions/ERC20Permit.sol";

/// @title The token of a development market
/// @notice The whole supply is minted once; afterwards it only shrinks. Any other ERC-20 serves as well.
contract AssayToken is ERC20, ERC20Burnable, ERC20Permit {
    constructor(address holder, uint256 supply) ERC20("Assay", "ASSAY") ERC20Permit("Assay") {
        _mint(holder, supply);
    }
}
