// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {IStakes} from "../interfaces/IStakes.sol";
import {ITasks} from "../interfaces/ITasks.sol";
import {IVault} from "../interfaces/IVault.sol";
import {Kind, Role, Terms} from "../interfaces/Types.sol";
import {accountKey} from "../libraries/AccountKey.sol";
import {TermsStore} from "../libraries/TermsStore.sol";
import {Claims} from "./Claims.sol";

/// @title Who holds which shard, at what price, and until when (docs/protocol.md 4.2, 4.3)
abstract contract Shards is Claims {
    function takeShard(bytes32 jobId, uint32 shard, uint128 leastPrice) external {
        Terms memory t = TermsStore.load(address(JOBS), jobId);
        if (shard >= t.shards) revert ITasks.NoSuchShard(shard);
        Shard storage entry = shardsOf[jobId][shard];
        if (entry.solver != address(0)) revert ITasks.ShardTaken(entry.solver);
        uint256 unlocked = STAKES.room(msg.sender, Role.SOLVER, t.client);
        uint256 needed = uint256(t.solverStake) + t.missPenalty;
        if (unlocked < needed) {
            revert IStakes.InsufficientStake(msg.sender, Role.SOLVER, needed, unlocked);
        }
        uint128 asked = _openPrice(jobId, entry, t);
        if (asked < leastPrice) revert ITasks.PriceBelow(asked);
        entry.solver = msg.sender;
        entry.since = uint64(block.timestamp);
        entry.price = asked;
        emit ITasks.ShardAssigned(jobId, shard, msg.sender, asked);
        JOBS.shardTaken(jobId);
        STAKES.lock(msg.sender, Role.SOLVER, t.missPenalty, t.client);
    }

    function release(bytes32 jobId, uint32 shard) external {
        Terms memory t = TermsStore.load(address(JOBS), jobId);
        address solver = shardsOf[jobId][shard].solver;
        // Its owner too, since a key that is lost or stolen never would: nobody expires a shard of a job that is over.
        if (solver != msg.sender && STAKES.ownerOf(solver) != msg.sender) revert ITasks.NotHolder(solver);
        (bool owed,) = _owed(jobId, shard, t);
        _open(jobId, shard, "released", t);
        if (owed) _penalise(solver, t);
    }

    function expire(bytes32 jobId, uint32 shard) external {
        Terms memory t = TermsStore.load(address(JOBS), jobId);
        address solver = shardsOf[jobId][shard].solver;
        if (solver == address(0)) revert ITasks.NotHolder(solver);
        (bool owed, uint64 deadline) = _owed(jobId, shard, t);
        if (!owed || !_passed(deadline)) revert ITasks.NotDue(deadline + 1);
        _open(jobId, shard, "deadline missed", t);
        _penalise(solver, t);
    }

    function holder(bytes32 jobId, uint32 shard)
        external
        view
        returns (address solver, uint128 price_, uint64 since)
    {
        Shard storage entry = shardsOf[jobId][shard];
        if (entry.solver == address(0)) return (address(0), 0, _openedAt(jobId, entry));
        return (entry.solver, entry.price, entry.since);
    }

    function price(bytes32 jobId, uint32 shard) external view returns (uint128) {
        Shard storage entry = shardsOf[jobId][shard];
        return entry.solver == address(0)
            ? _openPrice(jobId, entry, TermsStore.load(address(JOBS), jobId))
            : entry.price;
    }

    /// @dev Frees what its holder has locked for it, of which a penalty is then taken.
    function _open(bytes32 jobId, uint32 shard, string memory reason, Terms memory t) internal {
        Shard storage entry = shardsOf[jobId][shard];
        emit ITasks.ShardReleased(jobId, shard, entry.solver, reason);
        STAKES.unlock(entry.solver, Role.SOLVER, t.missPenalty, t.client);
        entry.solver = address(0);
        entry.openedAt = uint64(block.timestamp);
    }

    /// @dev Whether the shard owes the present round a task, and by when.
    function _owed(bytes32 jobId, uint32 shard, Terms memory t)
        private
        view
        returns (bool owed, uint64 deadline)
    {
        (bool running, uint32 round, uint64 dueSince, bool disputed) = JOBS.running(jobId);
        deadline = _deadline(dueSince, shardsOf[jobId][shard].since, t.taskTime);
        owed = running && !disputed && _current(jobId, Kind.TASK, round, shard) == 0;
    }

    function _penalise(address solver, Terms memory t) private {
        uint256 taken = STAKES.slash(solver, Role.SOLVER, t.missPenalty, t.client);
        VAULT.burn(IVault.Bucket.FREE, accountKey(address(this)), taken);
    }

    function _openedAt(bytes32 jobId, Shard storage entry) private view returns (uint64) {
        return entry.openedAt == 0 ? JOBS.postedAt(jobId) : entry.openedAt;
    }

    /// @dev Rises from floor to cap over pricePeriod, rounding down.
    function _openPrice(bytes32 jobId, Shard storage entry, Terms memory t) private view returns (uint128) {
        uint256 elapsed = block.timestamp - _openedAt(jobId, entry);
        if (elapsed >= t.pricePeriod) return t.priceCap;
        // Between floor and cap.
        // forge-lint: disable-next-line(unsafe-typecast)
        return uint128(t.priceFloor + uint256(t.priceCap - t.priceFloor) * elapsed / t.pricePeriod);
    }
}
