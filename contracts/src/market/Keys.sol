// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {IKeys} from "../interfaces/IKeys.sol";
import {Nonces} from "@openzeppelin/contracts/utils/Nonces.sol";
import {EIP712} from "@openzeppelin/contracts/utils/cryptography/EIP712.sol";
import {SignatureChecker} from "@openzeppelin/contracts/utils/cryptography/SignatureChecker.sol";

/// @notice See IKeys. Does not keep an operator's key from doing harm with what the account may do by itself: spend its free
/// balance on bonds, and on jobs within its allowance (Vault), and be slashed within its caps (Stakes).
contract Keys is IKeys, EIP712, Nonces {
    /// @dev One slot. `due`: when the operator owns itself again, 0 while no `unbind` was asked for.
    struct Binding {
        address owner;
        uint64 due;
    }

    bytes32 private constant CONSENT =
        keccak256("Consent(address owner,address operator,uint256 nonce,uint256 expiry)");

    /// @notice Seconds from `unbind` to its effect: long enough to unbond everything first.
    uint64 public immutable UNBIND_DELAY;

    mapping(address operator => Binding) private bindings;

    constructor(uint64 unbindDelay) EIP712("Assay Keys", "1") {
        UNBIND_DELAY = unbindDelay;
    }

    function bind(address operator, uint256 expiry, bytes calldata consent) external {
        if (operator == msg.sender) revert OwnKey();
        address owner = ownerOf(operator);
        if (owner != operator && owner != msg.sender) revert NotOwner(owner);
        if (block.timestamp > expiry) revert ConsentExpired(expiry);
        uint256 nonce = _useNonce(operator);
        bytes32 digest = _hashTypedDataV4(keccak256(abi.encode(CONSENT, msg.sender, operator, nonce, expiry)));
        if (!SignatureChecker.isValidSignatureNowCalldata(operator, digest, consent)) {
            revert WrongConsent(operator);
        }
        bindings[operator] = Binding(msg.sender, 0);
        emit OperatorBound(operator, msg.sender, nonce);
    }

    function unbind(address operator) external {
        address owner = ownerOf(operator);
        if (owner != msg.sender || owner == operator) revert NotOwner(owner);
        Binding storage binding = bindings[operator];
        if (binding.due != 0) revert AlreadyUnbinding(binding.due);
        binding.due = uint64(block.timestamp) + UNBIND_DELAY;
        emit UnbindStarted(operator, owner, binding.due);
    }

    function revokeConsents() external {
        emit ConsentsRevoked(msg.sender, _useNonce(msg.sender));
    }

    function ownerOf(address operator) public view returns (address) {
        Binding storage binding = bindings[operator];
        (address owner, uint64 due) = (binding.owner, binding.due);
        if (owner == address(0) || (due != 0 && block.timestamp >= due)) return operator;
        return owner;
    }

    function unbindsAt(address operator) external view returns (uint64) {
        return bindings[operator].due;
    }

    function nonces(address operator) public view override(IKeys, Nonces) returns (uint256) {
        return super.nonces(operator);
    }
}
