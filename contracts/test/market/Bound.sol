// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {Keys} from "../../src/market/Keys.sol";
import {Test} from "../Vm.sol";

/// @dev What an operator signs to be owned (EIP-712).
function consentDigest(
    address keys,
    uint256 chain,
    address owner,
    address operator,
    uint256 nonce,
    uint256 until
) pure returns (bytes32) {
    bytes32 domain = keccak256(
        abi.encode(
            keccak256("EIP712Domain(string name,string version,uint256 chainId,address verifyingContract)"),
            keccak256("Assay Keys"),
            keccak256("1"),
            chain,
            keys
        )
    );
    bytes32 kind = keccak256("Consent(address owner,address operator,uint256 nonce,uint256 expiry)");
    bytes32 content = keccak256(abi.encode(kind, owner, operator, nonce, until));
    return keccak256(abi.encodePacked(hex"1901", domain, content));
}

/// @notice Operators that have consented to an owner.
abstract contract Bound is Test {
    /// @dev A new operator account of the owner's.
    function bindTo(Keys keys_, address owner) internal returns (address operator) {
        return bindTo(keys_, owner, "bound operator");
    }

    /// @dev The operator of this name, as `makeAddr` makes it, which nobody else owns.
    function bindTo(Keys keys_, address owner, string memory name) internal returns (address operator) {
        uint256 secret;
        (operator, secret) = makeAddrAndKey(name);
        uint256 until = vm.getBlockTimestamp() + 1 days;
        bytes32 digest =
            consentDigest(address(keys_), block.chainid, owner, operator, keys_.nonces(operator), until);
        (uint8 v, bytes32 r, bytes32 t) = vm.sign(secret, digest);
        vm.prank(owner);
        keys_.bind(operator, until, abi.encodePacked(r, t, v));
    }
}
