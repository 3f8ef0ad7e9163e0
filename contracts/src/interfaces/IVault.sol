// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

/// @title Token ledger
/// @notice The only contract that holds tokens. Modules move ledger entries; tokens leave only through `withdraw` and
/// `withdrawFor`.
interface IVault {
    /// @dev Where an account's (or job's, or game's) tokens stand.
    enum Bucket {
        FREE, // withdrawable; key = account
        STAKE, // active stake of all accounts, one entry (key 0): Stakes knows whose
        UNBONDING, // the same of what is on its way out
        ESCROW, // a job's budget; key = job id
        BOND, // a challenge's bond or a demand's; key = game id, or demand id with the top bit set
        COMPENSATION // slash proceeds held for those whose work a rewind wasted; key = job id and rewind
    }

    error NotModule(address caller);
    error InsufficientBalance(Bucket bucket, bytes32 key, uint256 asked, uint256 there);
    error NotOwner(address owner);
    error BeyondAllowance(address operator, uint256 asked, uint256 left);

    event Deposited(address indexed payer, address indexed account, uint256 amount);
    event Withdrawn(address indexed account, address indexed to, uint256 amount);
    event Transfer(Bucket from, bytes32 indexed fromKey, Bucket to, bytes32 indexed toKey, uint256 amount);
    /// @dev `first` from one entry to the free balance of `to[0]`, `rest` to that of each other.
    event Paid(Bucket from, bytes32 indexed fromKey, address[] to, uint256 first, uint256 rest);
    /// @dev The deposit goes on: the allowance decides.
    event PermitFailed(address indexed owner, bytes reason);
    event Burnt(Bucket from, bytes32 indexed fromKey, uint256 amount);
    event Allowed(address indexed operator, uint256 amount);
    event Destroyed(uint256 amount);

    /// @notice Pull `amount` from the caller and credit `account`'s free balance.
    function deposit(address account, uint256 amount) external;
    /// @notice The same with an EIP-2612 permit; goes on if somebody else has already used the permit.
    function depositWithPermit(
        address account,
        uint256 amount,
        uint256 deadline,
        uint8 v,
        bytes32 r,
        bytes32 s
    ) external;
    /// @notice Pay out the caller's free balance; if the caller is an operator, its owner alone may (`withdrawFor`).
    function withdraw(address to, uint256 amount) external;
    /// @notice Pay out an operator's free balance; by its owner.
    function withdrawFor(address account, address to, uint256 amount) external;
    /// @notice Let an operator put so much of its free balance into jobs, and no more; by its owner. A bound operator may put
    /// nothing until then; an account that owns itself needs no leave.
    function allow(address operator, uint256 amount) external;
    /// @notice What a bound operator may still put into jobs.
    function allowance(address operator) external view returns (uint256);
    /// @notice Take burnt tokens, which no ledger entry can reach any more, out of the token's supply.
    function destroy() external;
    function move(Bucket from, bytes32 fromKey, Bucket to, bytes32 toKey, uint256 amount) external; // modules
    /// @notice Move `first` from one entry to the free balance of `to[0]`, and `rest` to that of each other.
    function payEach(Bucket from, bytes32 fromKey, address[] calldata to, uint256 first, uint256 rest)
        external; // modules
    /// @notice Take `amount` off the ledger for good. No token is called, so that nothing can stop it; see `destroy`.
    function burn(Bucket from, bytes32 fromKey, uint256 amount) external; // modules
    function balance(Bucket bucket, bytes32 key) external view returns (uint256);
    /// @notice Everything burnt so far, and the part of it that `destroy` has yet to take out of the supply.
    function burnt() external view returns (uint128);
    function undestroyed() external view returns (uint128);
    function free(address account) external view returns (uint256);
}
