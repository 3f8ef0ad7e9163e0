// SPDX-License-Identifier: MIT
pragma solidity ^0.8.28;

import {IJobs, IStakes, ITasks, IVault} from "../interfaces/IMarket.sol";
import {Accused, Claim, ClaimStatus, Kind, Phase, Terms} from "../interfaces/Types.sol";
import {TermsStore} from "../libraries/TermsStore.sol";

/// @title What the parts of Tasks share: claims by hash, their status, and where they stand in the job
/// @notice A claim itself is never stored. Whoever acts on one brings it along, and it counts only if its hash is known.
abstract contract Claims is ITasks {
    /// @dev One slot. `drawn` .. `valid` count the present draw; `draws` names it.
    struct Status {
        Phase phase;
        uint48 seedBlock;
        uint40 since;
        uint32 draws;
        uint32 openGames;
        uint8 drawn;
        uint8 committed;
        uint8 revealed;
        uint8 valid;
        uint32 attempt;
        uint32 epoch;
    }

    IVault internal immutable VAULT;
    IStakes internal immutable STAKES;
    IJobs internal immutable JOBS;
    address internal immutable CHALLENGES;

    mapping(bytes32 claimId => Status) internal statuses;
    mapping(bytes32 claimId => bytes32) internal seeds;
    /// @dev The last claim of each place of each job; whether it stands, its status says.
    mapping(bytes32 place => bytes32 claimId) internal places;

    constructor(IVault vault, IStakes stakes, IJobs jobs, address challenges) {
        VAULT = vault;
        STAKES = stakes;
        JOBS = jobs;
        CHALLENGES = challenges;
    }

    function status(bytes32 claimId) external view returns (ClaimStatus memory) {
        Status memory st = statuses[claimId];
        return ClaimStatus(
            st.phase, st.seedBlock, st.since, st.draws, st.openGames, st.revealed, st.valid, seeds[claimId]
        );
    }

    function current(bytes32 jobId, Kind kind, uint32 round, uint32 shard) public view returns (bytes32) {
        bytes32 claimId = places[_place(jobId, kind, round, shard)];
        if (claimId == 0) return 0;
        Status memory st = statuses[claimId];
        if (st.phase == Phase.CONVICTED || st.phase == Phase.VOID) return 0;
        return JOBS.overtaken(jobId, kind, round, st.epoch) ? bytes32(0) : claimId;
    }

    function _place(bytes32 jobId, Kind kind, uint32 round, uint32 shard) internal pure returns (bytes32) {
        return keccak256(abi.encode(jobId, kind, round, shard));
    }

    function _terms(bytes32 jobId) internal view returns (Terms memory t) {
        uint256 found = TermsStore.read(address(JOBS), jobId);
        if (found == 0) revert NoSuchJob(jobId);
        assembly ("memory-safe") {
            t := found
        }
    }

    function _known(Claim calldata claim) internal view returns (bytes32 claimId, Status memory st) {
        claimId = _id(claim);
        st = statuses[claimId];
        if (st.phase == Phase.NONE) revert WrongClaim(claimId);
    }

    /// @dev keccak256(abi.encode(claim)): a claim is 13 words in both. Words that are not canonical for their type give a
    /// hash that no commit has stored.
    function _id(Claim calldata claim) private pure returns (bytes32 claimId) {
        assembly ("memory-safe") {
            let p := mload(0x40)
            calldatacopy(p, claim, 0x1a0)
            claimId := keccak256(p, 0x1a0)
        }
    }

    /// @dev A claim in the given phase, with its job's terms.
    function _inPhase(Claim calldata claim, Phase phase)
        internal
        view
        returns (bytes32 claimId, Status memory st, Terms memory t)
    {
        (claimId, st) = _known(claim);
        if (st.phase != phase) revert WrongPhase(st.phase);
        t = _terms(claim.jobId);
    }

    function _accused(Claim calldata claim) internal pure returns (Accused memory) {
        return
            Accused(
                claim.jobId, claim.claimant, claim.kind, claim.round, claim.shard, claim.price, claim.epoch
            );
    }

    function _live(Phase phase) internal pure returns (bool) {
        return phase == Phase.COMMITTED || phase == Phase.SEEDED || phase == Phase.ACCEPTED;
    }

    /// @dev Neither ended nor overtaken by a rewind.
    function _stands(Phase phase, bytes32 jobId, Kind kind, uint32 round, uint32 epoch)
        internal
        view
        returns (bool)
    {
        return _live(phase) && !JOBS.overtaken(jobId, kind, round, epoch);
    }

    function _newSeedBlock(Terms memory t) internal view returns (uint48) {
        // forge-lint: disable-next-line(unsafe-typecast)
        return uint48(block.number + t.seedDelay); // a block number fits
    }

    /// @dev A time made of 64-bit terms that Jobs has bounded.
    function _time(uint256 seconds_) internal pure returns (uint64) {
        // forge-lint: disable-next-line(unsafe-typecast)
        return uint64(seconds_);
    }

    function _now() internal view returns (uint40) {
        // forge-lint: disable-next-line(unsafe-typecast)
        return uint40(block.timestamp); // seconds fit for 30,000 years
    }

    function _key(address account) internal pure returns (bytes32) {
        return bytes32(uint256(uint160(account)));
    }
}
