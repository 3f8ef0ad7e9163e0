// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {ITasks} from "../interfaces/ITasks.sol";
import {IVault} from "../interfaces/IVault.sol";
import {
    Accused,
    Claim,
    Finding,
    INPUT,
    Kind,
    Loop,
    Phase,
    Role,
    Terms,
    WITHHELD
} from "../interfaces/Types.sol";
import {accountKey} from "../libraries/AccountKey.sol";
import {Loops} from "../libraries/Loops.sol";
import {Sampling} from "../libraries/Sampling.sol";
import {TermsStore} from "../libraries/TermsStore.sol";
import {Shards} from "./Shards.sol";

/// @title Games on claims and votes, convictions, and what a rewind leaves behind (docs/protocol.md, section 5)
abstract contract Convictions is Shards {
    enum Accusation {
        GAME, // or a demand
        VOTE,
        PROOF
    }

    address public immutable CHALLENGES;
    /// @notice A second module that may accuse claims; 0: none.
    address public immutable AVAILABILITY;

    constructor(address challenges, address availability) {
        CHALLENGES = challenges;
        AVAILABILITY = availability;
    }

    modifier onlyChallenges() {
        if (msg.sender != CHALLENGES) revert ITasks.NotModule(msg.sender);
        _;
    }

    modifier onlyAccuser() {
        if (msg.sender != CHALLENGES && msg.sender != AVAILABILITY) revert ITasks.NotModule(msg.sender);
        _;
    }

    function gameOpened(Claim calldata claim, bool shown) external onlyAccuser returns (bytes32 claimId) {
        Status memory st;
        (claimId, st) = _challengeable(claim, Accusation.GAME);
        ++st.openGames;
        if (shown) ++st.findings;
        _setStatus(claimId, st);
    }

    function voteGameOpened(Claim calldata claim, address verifier)
        external
        onlyChallenges
        returns (bytes32 claimId, uint64 ballot, bytes32 tracesRoot, bytes32 seed)
    {
        Status memory st;
        (claimId, st) = _challengeable(claim, Accusation.VOTE);
        uint256 i = _ordinal(claimId, st, verifier);
        if (!_valid(st, i)) revert ITasks.NoSuchVote(verifier);
        ++st.openGames;
        _setStatus(claimId, st);
        // At most 8.
        // forge-lint: disable-next-line(unsafe-typecast)
        return (claimId, uint64(i + 1), ballots[claimId][i], _seed(claimId));
    }

    function gameClosed(bytes32 claimId, Accused calldata accused, Finding calldata finding, bool won)
        external
        onlyAccuser
        returns (bool stood, bool kept)
    {
        Status memory st = _status()(claimId);
        --st.openGames;
        if (finding.shown) --st.findings;
        stood = _liable(st.phase, accused.jobId, accused.kind, accused.round, st.rewinds);
        if (stood && won) return (true, _convict(claimId, st, accused, finding, true));
        JOBS.disputeClosed(accused.jobId);
        _setStatus(claimId, st);
        kept = st.phase == Phase.CONVICTED && rewards[claimId].winner != address(0);
    }

    function voteGameClosed(
        bytes32 claimId,
        Accused calldata accused,
        uint64 ballot,
        address challenger,
        bool won
    ) external onlyChallenges returns (bool stood) {
        Status memory st = _status()(claimId);
        --st.openGames;
        uint256 i = ballot - 1;
        if (!_gone(st, i)) {
            stood = _liable(st.phase, accused.jobId, accused.kind, accused.round, st.rewinds);
            if (stood && won) {
                st.gone |= _bit(i);
                address verifier = _accountAt(claimId, i);
                _penaliseVote(claimId, verifier, challenger, TermsStore.load(address(JOBS), accused.jobId));
            }
        }
        _setStatus(claimId, st);
    }

    function convict(Claim calldata claim, Finding calldata finding)
        external
        onlyAccuser
        returns (bool kept)
    {
        (bytes32 claimId, Status memory st) = _challengeable(claim, Accusation.PROOF);
        return _convict(claimId, st, _accused(claim), finding, false);
    }

    function payReward(bytes32 claimId, address[] calldata finders) external onlyChallenges {
        (uint256 amount, address winner) = reward(claimId);
        if (winner == address(0)) revert ITasks.NoReward(claimId);
        uint256 findings = _status()(claimId).findings;
        // forge-lint: disable-next-line(unsafe-typecast)
        if (findings > 0) revert ITasks.GamesOpen(uint32(findings)); // 16 bits
        delete rewards[claimId];
        address[] memory payees = finders;
        if (payees.length == 0) {
            payees = new address[](1);
            payees[0] = winner;
        }
        uint256 each = amount / payees.length;
        emit ITasks.RewardShared(claimId, payees, amount);
        uint256 first = amount - each * (payees.length - 1);
        VAULT.payEach(IVault.Bucket.FREE, accountKey(address(this)), payees, first, each);
    }

    function reward(bytes32 claimId) public view returns (uint256 amount, address winner) {
        Reward storage kept = rewards[claimId];
        return (kept.amount, kept.winner);
    }

    function void(Claim calldata claim) external {
        (bytes32 claimId, Status memory st) = _known(claim);
        if (!_live(st.phase)) revert ITasks.WrongPhase(st.phase);
        if (_stands(st.phase, claim.jobId, claim.kind, claim.round, st.rewinds)) revert ITasks.NotStale();
        bool liable = _liable(st.phase, claim.jobId, claim.kind, claim.round, st.rewinds);
        if (liable && st.openGames > 0) revert ITasks.GamesOpen(st.openGames);
        Terms memory t = TermsStore.load(address(JOBS), claim.jobId);
        (address[] memory voters, address[] memory valid) = _voters(claimId, st);
        (bool found, uint256 paid) =
            _compensate(claimId, _accused(claim), st.phase < Phase.ACCEPTED, valid, t);
        if (!found) return;
        st.phase = Phase.VOID;
        _setStatus(claimId, st);
        STAKES.unlock(claim.claimant, Role.SOLVER, t.solverStake, t.client);
        STAKES.unlockEach(voters, Role.VERIFIER, t.verifierStake, t.client);
        emit ITasks.Voided(claimId, claim.claimant, paid);
    }

    /// @dev Exists, stands, and is not past its challenge window; a proof is in time while any game on it is open, since what
    /// it takes may only come out in that game. A game on the claim is counted as one of its job's.
    function _challengeable(Claim calldata claim, Accusation how)
        private
        returns (bytes32 claimId, Status memory st)
    {
        (claimId, st) = _known(claim);
        if (!_live(st.phase)) revert ITasks.WrongPhase(st.phase);
        bool late = how == Accusation.PROOF && st.openGames > 0;
        bool pending = st.phase < Phase.ACCEPTED && !late;
        bool gone = how == Accusation.GAME
            ? JOBS.disputeOpened(claim.jobId, claim.kind, claim.round, st.rewinds, pending)
            : _overtaken(claim.jobId, claim.kind, claim.round, st.rewinds, pending);
        if (gone) revert ITasks.NotStanding();
        if (st.phase == Phase.ACCEPTED && !late) {
            uint256 end = _windowEnd(
                claim.kind, st.since, _validCount(st), TermsStore.load(address(JOBS), claim.jobId)
            );
            if (block.timestamp > end) revert ITasks.WindowClosed(_time(end));
        }
    }

    /// @dev Rules 5.1, 5.2 and 5.4. Returns whether the reward is kept, since other findings on the claim are in dispute.
    function _convict(
        bytes32 claimId,
        Status memory st,
        Accused memory accused,
        Finding memory finding,
        bool inGame
    ) private returns (bool kept) {
        Terms memory t = TermsStore.load(address(JOBS), accused.jobId);
        bool accepted = st.phase == Phase.ACCEPTED;
        st.phase = Phase.CONVICTED;
        _setStatus(claimId, st);
        (uint256 taken, uint256 pool) = _seize(claimId, st, accused, finding.segment, t);
        if (accused.kind == Kind.TASK && shardsOf[accused.jobId][accused.shard].solver == accused.claimant) {
            _open(accused.jobId, accused.shard, "convicted", t);
        }
        uint256 won = pool - JOBS.rewind(accused, _worth(accused.kind, accused.price, t), accepted, inGame);
        kept = st.findings > 0;
        emit ITasks.Convicted(claimId, accused.claimant, finding.challenger, taken, taken - pool, won);
        if (kept) {
            rewards[claimId] = Reward(won, finding.challenger);
            emit ITasks.RewardKept(claimId, finding.challenger, won);
        }
        _reward(kept ? address(this) : finding.challenger, won);
    }

    /// @dev Frees every lock that the claim and its votes hold, then takes from the claimant and from the guilty voters.
    /// `pool` is what is left of it, in the Vault's entry of stakes, once half is burnt.
    function _seize(bytes32 claimId, Status memory st, Accused memory accused, uint32 segment, Terms memory t)
        private
        returns (uint256 taken, uint256 pool)
    {
        (address[] memory voters, address[] memory guilty) = _voters(claimId, st);
        _keepGuilty(guilty, claimId, segment, accused.jobId);
        taken = STAKES.seize(accused.claimant, t.solverStake, voters, guilty, t.verifierStake, t.client);
        pool = taken / 2;
        VAULT.burn(IVault.Bucket.STAKE, 0, taken - pool);
    }

    /// @dev Guilty is a valid vote one of whose samples is the segment; every one where the input is at fault.
    function _keepGuilty(address[] memory valid, bytes32 claimId, uint32 segment, bytes32 jobId)
        private
        view
    {
        if (valid.length == 0 || segment == INPUT) return;
        uint256 n;
        if (segment != WITHHELD) {
            bytes32 seed = _seed(claimId);
            (Loop memory loop, uint256 number, uint256 within) =
                TermsStore.located(address(JOBS), jobId, Kind.TASK, segment);
            uint256 segments = Loops.segmentsOf(loop);
            for (uint256 i; i < valid.length; ++i) {
                bool asked = Sampling.holds(seed, valid[i], number, loop.samples, segments, within);
                if (asked) valid[n++] = valid[i];
            }
        }
        assembly ("memory-safe") {
            mstore(valid, n)
        }
    }

    /// @dev Pays the claimant, and behind it whose votes are valid.
    function _compensate(
        bytes32 claimId,
        Accused memory claim,
        bool pending,
        address[] memory valid,
        Terms memory t
    ) private returns (bool, uint256) {
        address[] memory payees = new address[](valid.length + 1);
        payees[0] = claim.claimant;
        for (uint256 i; i < valid.length; ++i) {
            payees[i + 1] = valid[i];
        }
        return
            JOBS.compensate(
                claimId, claim, pending, payees, t.verifierFee, _worth(claim.kind, claim.price, t)
            );
    }

    /// @dev Out of what was just taken from stakes.
    function _reward(address account, uint256 amount) private {
        VAULT.move(IVault.Bucket.STAKE, 0, IVault.Bucket.FREE, accountKey(account), amount);
    }

    function _pay(address account, uint256 amount) private {
        VAULT.move(
            IVault.Bucket.FREE, accountKey(address(this)), IVault.Bucket.FREE, accountKey(account), amount
        );
    }

    function _penaliseVote(bytes32 claimId, address verifier, address challenger, Terms memory t) private {
        STAKES.unlock(verifier, Role.VERIFIER, t.verifierStake, t.client);
        uint256 taken = STAKES.slash(verifier, Role.VERIFIER, t.verifierStake, t.client);
        uint256 won = taken / 2;
        VAULT.burn(IVault.Bucket.FREE, accountKey(address(this)), taken - won);
        _pay(challenger, won);
        emit ITasks.VoteConvicted(claimId, verifier, challenger, taken, taken - won);
    }

    function _accused(Claim calldata claim) private pure returns (Accused memory) {
        return Accused(
            claim.jobId, claim.claimant, claim.kind, claim.round, claim.shard, claim.price, claim.rewinds
        );
    }
}
