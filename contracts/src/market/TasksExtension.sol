// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {IClock} from "../interfaces/IClock.sol";
import {IJobs} from "../interfaces/IJobs.sol";
import {IStakes} from "../interfaces/IStakes.sol";
import {IVault} from "../interfaces/IVault.sol";
import {ClaimStatus, Kind, Vote} from "../interfaces/Types.sol";
import {Claims} from "./Claims.sol";
import {Convictions} from "./Convictions.sol";
import {SafeCast} from "@openzeppelin/contracts/utils/math/SafeCast.sol";

/// @title What Tasks is seldom asked for: shards, games and convictions, voids, views
/// @notice Tasks calls this code on its own storage (decision 0008). Its own storage stays empty, and called directly it
/// can do nothing, since no module takes it for Tasks.
contract TasksExtension is Convictions {
    using SafeCast for uint256;

    constructor(
        IVault vault,
        IStakes stakes,
        IJobs jobs,
        address challenges,
        address availability,
        IClock clock
    ) Claims(vault, stakes, jobs, clock) Convictions(challenges, availability) {}

    function status(bytes32 claimId) external view returns (ClaimStatus memory) {
        Status memory st = _statusOf(claimId);
        uint32 shown = _ones(_voted(st)).toUint32();
        uint32 valid = _ones(_validSeats(st)).toUint32();
        return
            ClaimStatus(
                st.phase, st.seedBlock, st.since, st.calls, st.openGames, shown, valid, _seed(claimId)
            );
    }

    function current(bytes32 jobId, Kind kind, uint32 round, uint32 shard) external view returns (bytes32) {
        return _current(jobId, kind, round, shard);
    }

    function votes(bytes32 claimId) external view returns (Vote[] memory cast) {
        Status memory st = _statusOf(claimId);
        cast = new Vote[](st.drawn);
        address[] memory seated = _seated(claimId, st.drawn);
        for (uint256 i; i < st.drawn; ++i) {
            bool gone = _has(st.gone, i);
            bool valid = _has(st.valid, i) && !gone;
            cast[i] = Vote(seated[i], _has(st.shown, i), valid, gone, tracesRoots[claimId][i]);
        }
    }
}
