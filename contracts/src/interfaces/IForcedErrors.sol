// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {Claim} from "./Types.sol";

/// @title ForcedErrors: faults that a client forces in its own job, to see who passes them (docs/protocol.md, section 7.4)
/// @notice The client commits beforehand, with a deposit, to which solver's task will be at fault. A claim that is convicted as
/// any other, and was revealed as a forced error before, costs its claimant no more than its whistleblower and the wasted work are paid;
/// the deposit comes back. A forced error that was not convicted by its expiry loses its deposit.
interface IForcedErrors {
    error AlreadyForced(bytes32 commitment);
    error NotForced(bytes32 commitment);
    error NotClient(address client);
    error NotATask();
    error ForcedTooLate(uint64 forcedAt, uint64 committedAt);
    error DepositTooSmall(uint256 needed, uint256 given);
    error AlreadyRevealed(bytes32 claimId);
    error ForcedErrorExpired(uint64 expiry);
    error NotDue(uint64 due);

    event ErrorForced(bytes32 indexed commitment, address indexed client, uint256 deposit, uint64 expiry);
    event ForcedErrorRevealed(bytes32 indexed commitment, bytes32 indexed claimId, address indexed client);
    event ForcedErrorFinished(
        bytes32 indexed commitment, address indexed client, uint256 returned, uint256 burnt
    );

    /// @notice `commitment`: keccak256(abi.encode(client, solver, jobId, round, shard, salt)). The deposit comes from the caller's
    /// free balance and must be at least the job's solverStake to be of use.
    function commitError(bytes32 commitment, uint256 deposit) external;
    /// @notice Client: this task claim, committed after the forced error, is the forced error. Before its conviction.
    function reveal(Claim calldata claim, bytes32 salt) external;
    /// @notice Anyone: give the deposit back once the claim is convicted (or a rewind has ended it), or burn it after the expiry.
    function finish(address client, bytes32 commitment) external;
    /// @notice The client that has revealed, with a deposit, that it forced this claim's error; 0 if nobody has.
    function forcer(bytes32 claimId) external view returns (address);
}
