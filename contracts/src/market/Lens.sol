// SPDX-License-Identifier: MIT
pragma solidity ^0.8.28;

import {IJobs, IStakes, ITasks, IVault} from "../interfaces/IMarket.sol";
import {ClaimStatus, Kind, Role, Vote} from "../interfaces/Types.sol";

/// @title Views that a client would otherwise gather in many calls
/// @notice Nothing relies on this contract.
contract Lens {
    struct ShardView {
        address solver;
        uint128 price; // agreed, or asked at present if nobody holds the shard
        uint64 since;
        bytes32 claimId; // the standing task claim of the present round
        ClaimStatus status;
    }

    struct AccountView {
        uint256 free;
        uint256[2] active; // by role
        uint256[2] locked;
        uint256[2] unbonding;
        string endpoint;
    }

    IVault public immutable VAULT;
    IStakes public immutable STAKES;
    IJobs public immutable JOBS;
    ITasks public immutable TASKS;

    constructor(IVault vault, IStakes stakes, IJobs jobs, ITasks tasks) {
        VAULT = vault;
        STAKES = stakes;
        JOBS = jobs;
        TASKS = tasks;
    }

    /// @notice `count` shards of a job from shard `first` on, at round `round`.
    function shards(bytes32 jobId, uint32 round, uint32 first, uint32 count)
        external
        view
        returns (ShardView[] memory views)
    {
        views = new ShardView[](count);
        for (uint32 i; i < count; ++i) {
            ShardView memory v = views[i];
            (v.solver,, v.since) = TASKS.holder(jobId, first + i);
            v.price = TASKS.price(jobId, first + i);
            v.claimId = TASKS.current(jobId, Kind.TASK, round, first + i);
            v.status = TASKS.status(v.claimId);
        }
    }

    function statuses(bytes32[] calldata claimIds) external view returns (ClaimStatus[] memory list) {
        list = new ClaimStatus[](claimIds.length);
        for (uint256 i; i < claimIds.length; ++i) {
            list[i] = TASKS.status(claimIds[i]);
        }
    }

    function votes(bytes32[] calldata claimIds) external view returns (Vote[][] memory list) {
        list = new Vote[][](claimIds.length);
        for (uint256 i; i < claimIds.length; ++i) {
            list[i] = TASKS.votes(claimIds[i]);
        }
    }

    function accounts(address[] calldata who) external view returns (AccountView[] memory list) {
        list = new AccountView[](who.length);
        for (uint256 i; i < who.length; ++i) {
            list[i].free = VAULT.free(who[i]);
            list[i].endpoint = STAKES.endpoint(who[i]);
            for (uint256 role; role < 2; ++role) {
                list[i].active[role] = STAKES.active(who[i], Role(role));
                list[i].locked[role] = STAKES.locked(who[i], Role(role));
                list[i].unbonding[role] = STAKES.unbonding(who[i], Role(role));
            }
        }
    }
}
