// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {IForcedErrors} from "../interfaces/IForcedErrors.sol";
import {ITasks} from "../interfaces/ITasks.sol";
import {IVault} from "../interfaces/IVault.sol";
import {Claim, Kind, Phase, Terms} from "../interfaces/Types.sol";
import {accountKey} from "../libraries/AccountKey.sol";
import {TermsStore} from "../libraries/TermsStore.sol";
import {SafeCast} from "@openzeppelin/contracts/utils/math/SafeCast.sol";

/// @notice See IForcedErrors. A conviction asks `forcer`; nothing else depends on this contract.
contract ForcedErrors is IForcedErrors {
    using SafeCast for uint256;

    /// @dev Two slots and a half.
    struct ForcedError {
        address client;
        uint64 forcedAt; // seconds
        uint128 deposit;
        bytes32 claimId; // 0 until revealed
    }

    IVault public immutable VAULT;
    address public immutable JOBS;
    ITasks public immutable TASKS;
    /// @notice Seconds from its commitment to expiry: longer than a task, its votes, its window and a game take.
    uint64 public immutable FORCED_ERROR_TIME;

    /// @dev By client and commitment, so that nobody spoils another's by forcing it first.
    mapping(bytes32 id => ForcedError) private forcedErrors;
    mapping(bytes32 claimId => address) public forcer;

    constructor(IVault vault, address jobs, ITasks tasks, uint64 forcedErrorTime) {
        VAULT = vault;
        JOBS = jobs;
        TASKS = tasks;
        FORCED_ERROR_TIME = forcedErrorTime;
    }

    function commitError(bytes32 commitment, uint256 deposit) external {
        bytes32 id = _id(msg.sender, commitment);
        if (forcedErrors[id].client != address(0)) revert AlreadyForced(commitment);
        uint64 now_ = uint64(block.timestamp);
        forcedErrors[id] = ForcedError(msg.sender, now_, deposit.toUint128(), 0);
        emit ErrorForced(commitment, msg.sender, deposit, now_ + FORCED_ERROR_TIME);
        VAULT.move(IVault.Bucket.FREE, accountKey(msg.sender), IVault.Bucket.BOND, id, deposit);
    }

    function reveal(Claim calldata claim, bytes32 salt) external {
        bytes32 commitment =
            keccak256(abi.encode(msg.sender, claim.claimant, claim.jobId, claim.round, claim.shard, salt));
        bytes32 id = _id(msg.sender, commitment);
        ForcedError memory p = forcedErrors[id];
        if (p.client == address(0)) revert NotForced(commitment);
        if (claim.kind != Kind.TASK) revert NotATask();
        Terms memory t = TermsStore.load(JOBS, claim.jobId);
        if (t.client != msg.sender) revert NotClient(t.client);
        if (p.claimId != 0) revert AlreadyRevealed(p.claimId);
        if (block.timestamp > p.forcedAt + FORCED_ERROR_TIME) {
            revert ForcedErrorExpired(p.forcedAt + FORCED_ERROR_TIME);
        }
        if (p.forcedAt >= claim.committedAt) revert ForcedTooLate(p.forcedAt, claim.committedAt);
        if (p.deposit < t.solverStake) revert DepositTooSmall(t.solverStake, p.deposit);
        bytes32 claimId = keccak256(abi.encode(claim));
        Phase phase = TASKS.status(claimId).phase;
        if (phase == Phase.NONE) revert ITasks.WrongClaim(claimId);
        if (phase == Phase.CONVICTED || phase == Phase.SETTLED) revert ITasks.WrongPhase(phase);
        if (forcer[claimId] != address(0)) revert AlreadyRevealed(claimId);
        forcedErrors[id].claimId = claimId;
        forcer[claimId] = msg.sender;
        emit ForcedErrorRevealed(commitment, claimId, msg.sender);
    }

    function finish(address client, bytes32 commitment) external {
        bytes32 id = _id(client, commitment);
        ForcedError memory p = forcedErrors[id];
        if (p.client == address(0)) revert NotForced(commitment);
        Phase phase = p.claimId == 0 ? Phase.NONE : TASKS.status(p.claimId).phase;
        bool kept = phase == Phase.CONVICTED || phase == Phase.VOID;
        uint64 expiry = p.forcedAt + FORCED_ERROR_TIME;
        if (!kept && block.timestamp <= expiry) revert NotDue(expiry + 1);
        delete forcedErrors[id];
        emit ForcedErrorFinished(commitment, client, kept ? p.deposit : 0, kept ? 0 : p.deposit);
        if (kept) VAULT.move(IVault.Bucket.BOND, id, IVault.Bucket.FREE, accountKey(client), p.deposit);
        else VAULT.burn(IVault.Bucket.BOND, id, p.deposit);
    }

    function _id(address client, bytes32 commitment) private pure returns (bytes32) {
        return keccak256(abi.encode(client, commitment));
    }
}
