// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

/// @title Keys: who owns an operator account (docs/protocol.md, section 7.1)
/// @notice An operator account works and is what stakes and draws know; its owner alone stakes for it, unbonds, and withdraws
/// its free balance. An account that nobody has bound owns itself.
interface IKeys {
    error NotOwner(address owner);
    error OwnKey();
    error ConsentExpired(uint256 expiry);
    error WrongConsent(address operator);
    error AlreadyUnbinding(uint64 due);

    event OperatorBound(address indexed operator, address indexed owner, uint256 nonce);
    event UnbindStarted(address indexed operator, address indexed owner, uint64 due);
    event ConsentsRevoked(address indexed operator, uint256 nonce);

    /// @notice Own `operator`, by its EIP-712 consent `Consent(address owner,address operator,uint256 nonce,uint256 expiry)` to
    /// the caller, with `nonces(operator)`, valid until `expiry` (seconds). An owner may bind again: that calls off an `unbind`.
    function bind(address operator, uint256 expiry, bytes calldata consent) external;
    /// @notice Owner: the operator owns itself once the delay has passed; until then nothing changes.
    function unbind(address operator) external;
    /// @notice Operator: no consent signed so far counts any more.
    function revokeConsents() external;
    /// @notice Who may stake, unbond and withdraw for the account: itself if nobody has bound it.
    function ownerOf(address operator) external view returns (address);
    /// @notice When an `unbind` takes effect, in seconds; 0 if none was asked for.
    function unbindsAt(address operator) external view returns (uint64);
    function nonces(address operator) external view returns (uint256);
}
