// SPDX-License-Identifier: MIT
pragma solidity ^0.8.28;

import {IJobs, IStakes, ITasks, IVault} from "../interfaces/IMarket.sol";
import {Claim, Kind, Phase, Terms} from "../interfaces/Types.sol";
import {TermsStore} from "../libraries/TermsStore.sol";

/// @title What the parts of Tasks share: all their storage, claims by hash, and where these stand in the job
/// @notice A claim itself is never stored. Whoever acts on one brings it along, and it counts only if its hash is known.
/// @dev Tasks and TasksExtension work on the same storage, so every variable of either is declared here.
abstract contract Claims {
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

    /// @dev HELD: a vote of a draw that failed, still locked because a game on it is open.
    enum BallotState {
        DRAWN,
        COMMITTED,
        VALID,
        INVALID,
        HELD,
        DONE
    }

    /// @dev Two slots. `word`: the commitment, then, once revealed, tracesRoot.
    struct Ballot {
        address verifier;
        BallotState state;
        uint32 games;
        bytes32 word;
    }

    struct Shard {
        address solver;
        uint64 since; // held since; seconds
        uint128 price;
        uint64 openedAt; // 0 until it has been held once
    }

    IVault internal immutable VAULT;
    IStakes internal immutable STAKES;
    IJobs internal immutable JOBS;

    mapping(bytes32 claimId => Status) internal statuses;
    mapping(bytes32 claimId => bytes32) internal seeds;
    /// @dev The last claim of each place of each job; whether it stands, its status says.
    mapping(bytes32 place => bytes32 claimId) internal places;
    /// @dev Keyed by the draw and the ordinal in it, so that a new draw leaves the ballots of the old one as they were.
    mapping(bytes32 claimId => mapping(uint256 ballot => Ballot)) internal ballots;
    mapping(bytes32 jobId => mapping(uint32 shard => Shard)) internal shardsOf;

    constructor(IVault vault, IStakes stakes, IJobs jobs) {
        VAULT = vault;
        STAKES = stakes;
        JOBS = jobs;
    }

    function _current(bytes32 jobId, Kind kind, uint32 round, uint32 shard) internal view returns (bytes32) {
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
        if (found == 0) revert ITasks.NoSuchJob(jobId);
        assembly ("memory-safe") {
            t := found
        }
    }

    function _known(Claim calldata claim) internal view returns (bytes32 claimId, Status memory st) {
        claimId = _id(claim);
        st = statuses[claimId];
        if (st.phase == Phase.NONE) revert ITasks.WrongClaim(claimId);
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
        if (st.phase != phase) revert ITasks.WrongPhase(st.phase);
        t = _terms(claim.jobId);
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

    /// @dev Of the present draw: all whose stake is locked, and those among them whose vote is valid.
    function _voters(bytes32 claimId, Status memory st)
        internal
        view
        returns (address[] memory voters, address[] memory valid)
    {
        voters = new address[](st.drawn);
        valid = new address[](st.drawn);
        uint256 n;
        uint256 m;
        for (uint64 i; i < st.drawn; ++i) {
            Ballot storage ballot = ballots[claimId][_ballot(st.draws, i)];
            (address verifier, BallotState state) = (ballot.verifier, ballot.state);
            if (state == BallotState.DRAWN || state == BallotState.DONE) continue;
            voters[n++] = verifier;
            if (state == BallotState.VALID) valid[m++] = verifier;
        }
        assembly ("memory-safe") {
            mstore(voters, n)
            mstore(valid, m)
        }
    }

    function _ballotOf(bytes32 claimId, Status memory st, address verifier)
        internal
        view
        returns (Ballot storage)
    {
        return ballots[claimId][_ballotKey(claimId, st, verifier)];
    }

    function _ballotKey(bytes32 claimId, Status memory st, address verifier) internal view returns (uint64) {
        for (uint64 i; i < st.drawn; ++i) {
            uint64 key = _ballot(st.draws, i);
            if (ballots[claimId][key].verifier == verifier) return key;
        }
        revert ITasks.NotDrawn(verifier);
    }

    function _ballot(uint32 draw, uint64 i) internal pure returns (uint64) {
        return (uint64(draw) << 8) | i;
    }

    function _newSeedBlock(Terms memory t) internal view returns (uint48) {
        // forge-lint: disable-next-line(unsafe-typecast)
        return uint48(block.number + t.seedDelay); // a block number fits
    }

    function _deadline(uint64 roundStart, uint64 since, uint64 taskTime) internal pure returns (uint64) {
        return (roundStart > since ? roundStart : since) + taskTime;
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
