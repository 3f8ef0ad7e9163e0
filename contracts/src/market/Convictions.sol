// SPDX-License-Identifier: MIT
pragma solidity ^0.8.28;

import {ITasks, IVault} from "../interfaces/IMarket.sol";
import {Accused, Claim, Kind, Phase, Role, Terms} from "../interfaces/Types.sol";
import {Shards} from "./Shards.sol";

/// @title Games on claims and votes, convictions, and what a rewind leaves behind (docs/protocol.md, section 5)
abstract contract Convictions is Shards {
    address internal immutable CHALLENGES;

    constructor(address challenges) {
        CHALLENGES = challenges;
    }

    modifier onlyChallenges() {
        if (msg.sender != CHALLENGES) revert ITasks.NotModule(msg.sender);
        _;
    }

    function gameOpened(Claim calldata claim) external onlyChallenges returns (bytes32 claimId) {
        Status memory st;
        (claimId, st) = _challengeable(claim, false);
        statuses[claimId].openGames = st.openGames + 1;
    }

    function voteGameOpened(Claim calldata claim, address verifier)
        external
        onlyChallenges
        returns (bytes32 claimId, uint64 ballot, bytes32 tracesRoot, bytes32 seed)
    {
        Status memory st;
        (claimId, st) = _challengeable(claim, false);
        ballot = _ballotKey(claimId, st, verifier);
        Ballot storage entry = ballots[claimId][ballot];
        if (entry.state != BallotState.VALID) revert ITasks.NoSuchVote(verifier);
        ++entry.games;
        statuses[claimId].openGames = st.openGames + 1;
        return (claimId, ballot, entry.word, seeds[claimId]);
    }

    function gameClosed(bytes32 claimId, Accused calldata accused, address challenger, bool won)
        external
        onlyChallenges
        returns (bool stood)
    {
        Status memory st = statuses[claimId];
        statuses[claimId].openGames = --st.openGames;
        stood = _stands(st.phase, accused.jobId, accused.kind, accused.round, st.epoch);
        if (stood && won) _convict(claimId, st, accused, challenger);
    }

    function voteGameClosed(
        bytes32 claimId,
        Accused calldata accused,
        uint64 ballot,
        address challenger,
        bool won
    ) external onlyChallenges returns (bool stood) {
        Status memory st = statuses[claimId];
        statuses[claimId].openGames = --st.openGames;
        Ballot storage entry = ballots[claimId][ballot];
        uint32 games = --entry.games;
        BallotState state = entry.state;
        if (state != BallotState.VALID && state != BallotState.HELD) return false;
        Terms memory t = _terms(accused.jobId);
        stood = _stands(st.phase, accused.jobId, accused.kind, accused.round, st.epoch);
        if (stood && won) {
            entry.state = BallotState.DONE;
            if (state == BallotState.VALID) statuses[claimId].valid = st.valid - 1;
            _penaliseVote(claimId, entry.verifier, challenger, t);
        } else if (state == BallotState.HELD && games == 0) {
            entry.state = BallotState.DONE;
            STAKES.unlock(entry.verifier, Role.VERIFIER, t.verifierStake);
        }
    }

    function convict(Claim calldata claim, address challenger) external onlyChallenges {
        (bytes32 claimId, Status memory st) = _challengeable(claim, true);
        _convict(claimId, st, _accused(claim), challenger);
    }

    function void(Claim calldata claim) external {
        (bytes32 claimId, Status memory st) = _known(claim);
        if (!_live(st.phase)) revert ITasks.WrongPhase(st.phase);
        if (_stands(st.phase, claim.jobId, claim.kind, claim.round, st.epoch)) revert ITasks.NotStale();
        (bool found, uint256 paid) = JOBS.compensate(claimId, _accused(claim));
        if (!found) return;
        Terms memory t = _terms(claim.jobId);
        statuses[claimId].phase = Phase.VOID;
        STAKES.unlock(claim.claimant, Role.SOLVER, t.solverStake);
        (address[] memory voters,) = _voters(claimId, st);
        STAKES.unlockEach(voters, Role.VERIFIER, t.verifierStake);
        emit ITasks.Voided(claimId, claim.claimant, paid);
    }

    /// @dev Exists, stands, and is not past its challenge window; a `proof` is in time while any game on it is open, since
    /// what it takes may only come out in that game.
    function _challengeable(Claim calldata claim, bool proof)
        private
        view
        returns (bytes32 claimId, Status memory st)
    {
        (claimId, st) = _known(claim);
        if (!_live(st.phase)) revert ITasks.WrongPhase(st.phase);
        if (!_stands(st.phase, claim.jobId, claim.kind, claim.round, st.epoch)) revert ITasks.NotStanding();
        if (st.phase == Phase.ACCEPTED && !(proof && st.openGames > 0)) {
            uint256 end = uint256(st.since) + _terms(claim.jobId).challengeWindow;
            if (block.timestamp > end) revert ITasks.WindowClosed(_time(end));
        }
    }

    function _convict(bytes32 claimId, Status memory st, Accused memory accused, address challenger) private {
        Terms memory t = _terms(accused.jobId);
        statuses[claimId].phase = Phase.CONVICTED;
        uint256 taken = _slashAll(claimId, st, accused.claimant, t);
        uint256 pool = taken / 2;
        VAULT.burn(IVault.Bucket.FREE, _key(address(this)), taken - pool);
        if (accused.kind == Kind.TASK && shardsOf[accused.jobId][accused.shard].solver == accused.claimant) {
            _open(accused.jobId, accused.shard, "convicted");
        }
        uint256 reward = pool - JOBS.rewind(accused, st.phase == Phase.ACCEPTED, t.shards, pool);
        VAULT.move(IVault.Bucket.FREE, _key(address(this)), IVault.Bucket.FREE, _key(challenger), reward);
        emit ITasks.Convicted(claimId, accused.claimant, challenger, taken, taken - pool, reward);
    }

    /// @dev Frees every lock that the claim and its votes hold, then takes from the claimant and the valid voters.
    function _slashAll(bytes32 claimId, Status memory st, address claimant, Terms memory t)
        private
        returns (uint256 taken)
    {
        STAKES.unlock(claimant, Role.SOLVER, t.solverStake);
        (address[] memory voters, address[] memory guilty) = _voters(claimId, st);
        STAKES.unlockEach(voters, Role.VERIFIER, t.verifierStake);
        taken = STAKES.slash(claimant, Role.SOLVER, t.solverStake);
        for (uint256 i; i < guilty.length; ++i) {
            taken += STAKES.slash(guilty[i], Role.VERIFIER, t.verifierStake);
        }
    }

    function _penaliseVote(bytes32 claimId, address verifier, address challenger, Terms memory t) private {
        STAKES.unlock(verifier, Role.VERIFIER, t.verifierStake);
        uint256 taken = STAKES.slash(verifier, Role.VERIFIER, t.verifierStake);
        uint256 reward = taken / 2;
        bytes32 from = _key(address(this));
        VAULT.burn(IVault.Bucket.FREE, from, taken - reward);
        VAULT.move(IVault.Bucket.FREE, from, IVault.Bucket.FREE, _key(challenger), reward);
        emit ITasks.VoteConvicted(claimId, verifier, challenger, taken, taken - reward);
    }

    function _accused(Claim calldata claim) private pure returns (Accused memory) {
        return
            Accused(
                claim.jobId, claim.claimant, claim.kind, claim.round, claim.shard, claim.price, claim.epoch
            );
    }
}
