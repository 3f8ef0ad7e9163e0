// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {IForcedErrors} from "../interfaces/IForcedErrors.sol";
import {ITasks} from "../interfaces/ITasks.sol";
import {IVault} from "../interfaces/IVault.sol";
import {Accused, Claim, Finding, INPUT, Kind, Phase, Role, Terms, WITHHELD} from "../interfaces/Types.sol";
import {accountKey} from "../libraries/AccountKey.sol";
import {Sampling} from "../libraries/Sampling.sol";
import {TermsStore} from "../libraries/TermsStore.sol";
import {Shards} from "./Shards.sol";

/// @title Games on claims and votes, convictions, and what a rewind leaves behind (docs/protocol.md, section 5)
abstract contract Convictions is Shards {
    address public immutable CHALLENGES;
    /// @notice A second module that may accuse claims; 0: none.
    address public immutable AVAILABILITY;
    /// @notice 0: no forcedErrors.
    IForcedErrors public immutable FORCED_ERRORS;

    constructor(address challenges, address availability, IForcedErrors forcedErrors) {
        CHALLENGES = challenges;
        AVAILABILITY = availability;
        FORCED_ERRORS = forcedErrors;
    }

    modifier onlyChallenges() {
        if (msg.sender != CHALLENGES) revert ITasks.NotModule(msg.sender);
        _;
    }

    modifier onlyAccuser() {
        if (msg.sender != CHALLENGES && msg.sender != AVAILABILITY) revert ITasks.NotModule(msg.sender);
        _;
    }

    function gameOpened(Claim calldata claim, uint256 announced)
        external
        onlyAccuser
        returns (bytes32 claimId, bool early)
    {
        Status memory st;
        (claimId, st) = _challengeable(claim, false);
        ++st.openGames;
        // forge-lint: disable-next-line(unsafe-typecast)
        if (st.opened == 0) st.opened = uint40(block.number); // a block number fits
        early = announced < st.opened;
        if (early) ++st.early;
        _setStatus(claimId, st);
    }

    function voteGameOpened(Claim calldata claim, address verifier)
        external
        onlyChallenges
        returns (bytes32 claimId, uint64 ballot, bytes32 tracesRoot, bytes32 seed)
    {
        Status memory st;
        (claimId, st) = _challengeable(claim, false);
        (uint256 i, Ballot storage entry) = _ordinal(claimId, st, verifier);
        if (!_valid(st, i)) revert ITasks.NoSuchVote(verifier);
        ++st.openGames;
        _setStatus(claimId, st);
        // At most 8.
        // forge-lint: disable-next-line(unsafe-typecast)
        return (claimId, uint64(i + 1), entry.word, seeds[claimId]);
    }

    function gameClosed(bytes32 claimId, Accused calldata accused, Finding calldata finding, bool won)
        external
        onlyAccuser
        returns (bool stood)
    {
        Status memory st = _status(claimId);
        --st.openGames;
        if (finding.early) --st.early;
        stood = _liable(st.phase, accused.jobId, accused.kind, accused.round, st.rewinds);
        if (stood && won) return _convict(claimId, st, accused, finding);
        _setStatus(claimId, st);
        if (finding.early && st.phase == Phase.CONVICTED) _payShare(claimId, finding.challenger);
    }

    function voteGameClosed(
        bytes32 claimId,
        Accused calldata accused,
        uint64 ballot,
        address challenger,
        bool won
    ) external onlyChallenges returns (bool stood) {
        Status memory st = _status(claimId);
        --st.openGames;
        uint256 i = ballot - 1;
        if (!_gone(st, i)) {
            stood = _liable(st.phase, accused.jobId, accused.kind, accused.round, st.rewinds);
            if (stood && won) {
                st.gone |= _bit(i);
                address verifier = ballots[claimId][i].verifier;
                _penaliseVote(claimId, verifier, challenger, TermsStore.load(address(JOBS), accused.jobId));
            }
        }
        _setStatus(claimId, st);
    }

    function convict(Claim calldata claim, Finding calldata finding) external onlyAccuser {
        (bytes32 claimId, Status memory st) = _challengeable(claim, true);
        _convict(claimId, st, _accused(claim), finding);
    }

    function void(Claim calldata claim) external {
        (bytes32 claimId, Status memory st) = _known(claim);
        if (!_live(st.phase)) revert ITasks.WrongPhase(st.phase);
        if (_stands(st.phase, claim.jobId, claim.kind, claim.round, st.rewinds)) revert ITasks.NotStale();
        bool liable = _liable(st.phase, claim.jobId, claim.kind, claim.round, st.rewinds);
        if (liable && st.openGames > 0) revert ITasks.GamesOpen(st.openGames);
        (bool found, uint256 paid) = JOBS.compensate(claimId, _accused(claim), st.phase < Phase.ACCEPTED);
        if (!found) return;
        Terms memory t = TermsStore.load(address(JOBS), claim.jobId);
        st.phase = Phase.VOID;
        _setStatus(claimId, st);
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
        bool late = proof && st.openGames > 0;
        bool pending = st.phase < Phase.ACCEPTED && !late;
        if (_overtaken(claim.jobId, claim.kind, claim.round, st.rewinds, pending)) {
            revert ITasks.NotStanding();
        }
        if (st.phase == Phase.ACCEPTED && !late) {
            uint256 end = _windowEnd(
                claim.kind, st.since, _validCount(st), TermsStore.load(address(JOBS), claim.jobId)
            );
            if (block.timestamp > end) revert ITasks.WindowClosed(_time(end));
        }
    }

    /// @dev Rules 5.1 and 5.2. Returns true: the claim stood until now.
    function _convict(bytes32 claimId, Status memory st, Accused memory accused, Finding memory finding)
        private
        returns (bool)
    {
        Terms memory t = TermsStore.load(address(JOBS), accused.jobId);
        bool accepted = st.phase == Phase.ACCEPTED;
        st.phase = Phase.CONVICTED;
        _setStatus(claimId, st);
        (uint256 taken, uint256 pool) = _seize(claimId, st, accused, finding.segment, t);
        if (accused.kind == Kind.TASK && shardsOf[accused.jobId][accused.shard].solver == accused.claimant) {
            _open(accused.jobId, accused.shard, "convicted", t.missPenalty);
        }
        uint256 reward = pool - JOBS.rewind(accused, accepted, pool);
        if (st.early > 0) {
            uint256 share = reward / (uint256(st.early) + 1);
            shares[claimId] = share;
            reward -= share * st.early;
        }
        _pay(finding.challenger, reward);
        emit ITasks.Convicted(claimId, accused.claimant, finding.challenger, taken, taken - pool, reward);
        return true;
    }

    /// @dev Frees every lock that the claim and its votes hold, then takes from the claimant and from the guilty voters.
    /// `pool` is what is left of it, in this contract's free balance, once the half is burnt or the forcer indemnified.
    function _seize(bytes32 claimId, Status memory st, Accused memory accused, uint32 segment, Terms memory t)
        private
        returns (uint256 taken, uint256 pool)
    {
        address forcer = address(FORCED_ERRORS) == address(0) ? address(0) : FORCED_ERRORS.forcer(claimId);
        (address[] memory voters, address[] memory guilty) = _voters(claimId, st);
        _keepGuilty(guilty, claimId, segment, t);
        // A forcer risks what the whistleblower earns, and nothing is burnt of it.
        uint256 asked = forcer == address(0) ? t.solverStake : t.solverStake / 2;
        uint256 own;
        (own, taken) = STAKES.seize(accused.claimant, t.solverStake, asked, voters, guilty, t.verifierStake);
        if (forcer == address(0)) {
            pool = taken / 2;
        } else {
            pool = own;
            _pay(forcer, (taken - own) / 2);
            taken -= (taken - own) / 2;
        }
        VAULT.burn(IVault.Bucket.FREE, accountKey(address(this)), taken - pool);
    }

    /// @dev Guilty is a valid vote one of whose samples is the segment; every one where the input is at fault.
    function _keepGuilty(address[] memory valid, bytes32 claimId, uint32 segment, Terms memory t)
        private
        view
    {
        if (valid.length == 0 || segment == INPUT) return;
        uint256 n;
        if (segment != WITHHELD) {
            bytes32 seed = seeds[claimId];
            uint256 segments = t.stepsPerRound / t.segmentSteps;
            for (uint256 i; i < valid.length; ++i) {
                if (Sampling.holds(seed, valid[i], t.samples, segments, segment)) valid[n++] = valid[i];
            }
        }
        assembly ("memory-safe") {
            mstore(valid, n)
        }
    }

    function _payShare(bytes32 claimId, address challenger) private {
        uint256 share = shares[claimId];
        _pay(challenger, share);
        emit ITasks.RewardShared(claimId, challenger, share);
    }

    function _pay(address account, uint256 amount) private {
        VAULT.move(
            IVault.Bucket.FREE, accountKey(address(this)), IVault.Bucket.FREE, accountKey(account), amount
        );
    }

    function _penaliseVote(bytes32 claimId, address verifier, address challenger, Terms memory t) private {
        STAKES.unlock(verifier, Role.VERIFIER, t.verifierStake);
        uint256 taken = STAKES.slash(verifier, Role.VERIFIER, t.verifierStake);
        uint256 reward = taken / 2;
        VAULT.burn(IVault.Bucket.FREE, accountKey(address(this)), taken - reward);
        _pay(challenger, reward);
        emit ITasks.VoteConvicted(claimId, verifier, challenger, taken, taken - reward);
    }

    function _accused(Claim calldata claim) private pure returns (Accused memory) {
        return Accused(
            claim.jobId, claim.claimant, claim.kind, claim.round, claim.shard, claim.price, claim.rewinds
        );
    }
}
