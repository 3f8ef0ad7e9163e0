// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {IJobs} from "../interfaces/IJobs.sol";
import {ITasks} from "../interfaces/ITasks.sol";
import {IVault} from "../interfaces/IVault.sol";
import {Accused, Claim, Kind, Loop, Phase, Role, Terms} from "../interfaces/Types.sol";
import {accountKey} from "../libraries/AccountKey.sol";
import {Sampling} from "../libraries/Sampling.sol";
import {TermsStore} from "../libraries/TermsStore.sol";
import {Shards} from "./Shards.sol";
import {SafeCast} from "@openzeppelin/contracts/utils/math/SafeCast.sol";

/// @title Games on claims and votes, convictions, and what ends without being settled (docs/protocol.md, section 5)
/// @notice A game takes the stake of its defender alone: of the claimant, or of the voter whose vote it is about.
abstract contract Convictions is Shards {
    using SafeCast for uint256;

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
        (claimId, st) = _known(claim);
        if (!_live(st.phase)) revert ITasks.WrongPhase(st.phase);
        if (JOBS.disputeOpened(claim.kind, claim.jobId, claim.round, st.rewinds)) {
            revert ITasks.NotStanding();
        }
        _requireWindow(claim, st);
        ++st.openGames;
        if (shown) ++st.findings;
        _setStatus(claimId, st);
    }

    function gameClosed(bytes32 claimId, Accused calldata accused, address challenger, bool shown, bool won)
        external
        onlyAccuser
        returns (bool stood, bool kept)
    {
        Status memory st = _statusOf(claimId);
        --st.openGames;
        if (shown) --st.findings;
        stood = _live(st.phase);
        if (stood && won) return (true, _convict(claimId, st, accused, challenger, 0, true));
        JOBS.disputeClosed(accused.jobId);
        _setStatus(claimId, st);
        kept = st.phase == Phase.CONVICTED && rewards[claimId].winner != address(0);
    }

    function convict(Claim calldata claim, address challenger, bool certain)
        external
        onlyChallenges
        returns (bool kept)
    {
        (bytes32 claimId, Status memory st) = _known(claim);
        if (!_live(st.phase)) revert ITasks.WrongPhase(st.phase);
        // What the proof takes may have come out in a game alone: while one is open, it is in time.
        bool inGame = st.openGames > 0;
        if (!(inGame && certain) && _overtaken(claim.jobId, claim.kind, claim.round, st.rewinds, false)) {
            revert ITasks.NotStanding();
        }
        if (!inGame) _requireWindow(claim, st);
        return _convict(claimId, st, _accused(claim), challenger, _validSeats(st), false);
    }

    function voteGameOpened(Claim calldata claim, address verifier, uint32 sample)
        external
        onlyChallenges
        returns (bytes32 claimId, uint64 ballot, bytes32 tracesRoot, bytes32 seed, uint32 segment)
    {
        Status memory st;
        (claimId, st, ballot) = _requireVote(claim, verifier);
        ++st.openGames;
        _setStatus(claimId, st);
        tracesRoot = tracesRoots[claimId][ballot - 1];
        seed = _seed(claimId);
        segment = _segmentOf(claim.jobId, seed, verifier, sample);
    }

    function voteGameClosed(
        bytes32 claimId,
        Accused calldata accused,
        uint64 ballot,
        address challenger,
        bool won
    ) external onlyChallenges returns (bool stood) {
        Status memory st = _statusOf(claimId);
        --st.openGames;
        stood = !_has(st.gone, ballot - 1);
        if (stood && won) _convictVote(claimId, st, ballot, challenger, accused.jobId);
        _setStatus(claimId, st);
    }

    function convictVote(Claim calldata claim, address verifier, uint32 sample, address challenger)
        external
        onlyChallenges
        returns (bytes32 tracesRoot, bytes32 seed, uint32 segment)
    {
        (bytes32 claimId, Status memory st, uint64 ballot) = _requireVote(claim, verifier);
        _convictVote(claimId, st, ballot, challenger, claim.jobId);
        _setStatus(claimId, st);
        tracesRoot = tracesRoots[claimId][ballot - 1];
        seed = _seed(claimId);
        segment = _segmentOf(claim.jobId, seed, verifier, sample);
    }

    function payReward(bytes32 claimId, address[] calldata finders, bool withWinner) external onlyChallenges {
        _payReward(claimId, finders, withWinner);
    }

    function payUnsettled(Claim calldata claim, address[] calldata finders) external onlyChallenges {
        bytes32 claimId = keccak256(abi.encode(claim));
        if (!rewards[claimId].gone) {
            bytes32 there = _current(claim.jobId, claim.kind, claim.round, claim.shard);
            bool settled = there != 0 && statuses[there].phase == Phase.SETTLED;
            IJobs.Progress memory p = JOBS.progress(claim.jobId);
            // Nothing is settled any more at a place of a round that is settled.
            if (settled || !(p.closed || p.settledRounds > claim.round)) revert ITasks.MayBeSettled();
        }
        _payReward(claimId, finders, true);
    }

    function _payReward(bytes32 claimId, address[] memory payees, bool withWinner) private {
        (uint256 amount, address winner) = reward(claimId);
        if (winner == address(0)) revert ITasks.NoReward(claimId);
        uint16 findings = statuses[claimId].findings;
        if (findings > 0) revert ITasks.GamesOpen(findings);
        delete rewards[claimId];
        if (withWinner) payees = _with(payees, winner);
        uint256 each = amount / payees.length;
        emit ITasks.RewardShared(claimId, payees, amount);
        uint256 first = amount - each * (payees.length - 1);
        VAULT.payEach(IVault.Bucket.FREE, accountKey(address(this)), payees, first, each);
    }

    /// @dev These, and this one once at least.
    function _with(address[] memory accounts, address account) private pure returns (address[] memory more) {
        uint256 n = accounts.length;
        more = new address[](n + 1);
        for (uint256 i; i < n; ++i) {
            if (accounts[i] == account) return accounts;
            more[i] = accounts[i];
        }
        more[n] = account;
    }

    function reward(bytes32 claimId) public view returns (uint256 amount, address winner) {
        Reward storage kept = rewards[claimId];
        return (kept.amount, kept.winner);
    }

    function void(Claim calldata claim) external {
        (bytes32 claimId, Status memory st) = _known(claim);
        if (!_live(st.phase)) revert ITasks.WrongPhase(st.phase);
        if (st.openGames > 0) revert ITasks.GamesOpen(st.openGames);
        Terms memory t = TermsStore.load(address(JOBS), claim.jobId);
        uint256 paid;
        if (_overtaken(claim.jobId, claim.kind, claim.round, st.rewinds, false)) {
            bool found;
            (found, paid) = _compensate(claimId, st, _accused(claim), t);
            if (!found) return;
        } else {
            uint256 worth = _worth(claim.kind, claim.price, t);
            bool left =
                st.phase < Phase.ACCEPTED && JOBS.leaveOut(claim.jobId, claim.round, claim.rewinds, worth);
            if (!left) revert ITasks.NotStale();
            _requirePast(uint256(st.since) + t.challengeWindow);
        }
        STAKES.unlock(claim.claimant, Role.SOLVER, t.solverStake, t.client);
        STAKES.unlockEach(_accounts(claimId, st, _held(st)), Role.VERIFIER, t.verifierStake, t.client);
        st.phase = Phase.VOID;
        _setStatus(claimId, st);
        emit ITasks.Voided(claimId, claim.claimant, paid);
    }

    function freeSeats(Claim calldata claim) external {
        (bytes32 claimId, Status memory st, Terms memory t) = _inPhase(claim, Phase.CONVICTED);
        if (st.openGames > 0) revert ITasks.GamesOpen(st.openGames);
        _requirePast(uint256(st.since) + t.challengeWindow);
        uint256 seats = _voted(st);
        if (seats == 0 && st.overtaken == Overtaken.NOT) revert ITasks.NoSeats(claimId);
        if (st.overtaken != Overtaken.NOT) {
            // What was set aside for the claim is burnt.
            bool pending = st.overtaken == Overtaken.PENDING;
            uint256 worth = _worth(claim.kind, claim.price, t);
            (bool found,) = JOBS.compensate(claimId, _accused(claim), pending, new address[](0), 0, worth);
            if (!found) return;
        }
        address[] memory each = _accounts(claimId, st, seats);
        _end(st, seats);
        st.overtaken = Overtaken.NOT;
        _setStatus(claimId, st);
        emit ITasks.SeatsFreed(claimId, each, t.verifierFee);
        STAKES.unlockEach(each, Role.VERIFIER, t.verifierStake, t.client);
        VAULT.payEach(IVault.Bucket.FREE, accountKey(address(this)), each, t.verifierFee, t.verifierFee);
    }

    function _requirePast(uint256 end) private view {
        if (block.timestamp <= end) revert ITasks.NotDue((end + 1).toUint64());
    }

    /// @dev A claim that waits for votes may be challenged as long as it does; one that its round goes on without, and the votes on
    /// a fallen one, for challengeWindow.
    function _requireWindow(Claim calldata claim, Status memory st) private view {
        if (_stands(st.phase, claim.jobId, claim.kind, claim.round, st.rewinds) && st.phase < Phase.ACCEPTED)
        {
            return;
        }
        Terms memory t = TermsStore.load(address(JOBS), claim.jobId);
        uint256 end = st.phase == Phase.ACCEPTED
            ? _windowEnd(claim.kind, st.since, _ones(_validSeats(st)), t)
            : uint256(st.since) + t.challengeWindow;
        if (block.timestamp > end) revert ITasks.WindowClosed(end.toUint64());
    }

    /// @dev A valid vote that stands, on a claim that stands and may be challenged, or that has fallen not long ago.
    function _requireVote(Claim calldata claim, address verifier)
        private
        view
        returns (bytes32 claimId, Status memory st, uint64 ballot)
    {
        (claimId, st) = _known(claim);
        if (st.phase != Phase.CONVICTED) {
            if (!_live(st.phase)) revert ITasks.WrongPhase(st.phase);
            if (_overtaken(claim.jobId, claim.kind, claim.round, st.rewinds, false)) {
                revert ITasks.NotStanding();
            }
        }
        _requireWindow(claim, st);
        uint256 i = _ordinal(claimId, st, verifier);
        if (!_has(_validSeats(st), i)) revert ITasks.NoSuchVote(verifier);
        ballot = (i + 1).toUint64();
    }

    /// @dev The segment that the verifier's sample replays.
    function _segmentOf(bytes32 jobId, bytes32 seed, address verifier, uint32 sample)
        private
        view
        returns (uint32)
    {
        Loop[] memory loops = TermsStore.loops(address(JOBS), jobId, Kind.TASK);
        return Sampling.segment(seed, verifier, sample, loops).toUint32();
    }

    /// @dev Rules 5.1, 5.2 and 5.4. `guilty`: seats whose votes the proof has shown to be false with the claim. Returns whether
    /// the reward is kept, since other findings on the claim are in dispute.
    function _convict(
        bytes32 claimId,
        Status memory st,
        Accused memory accused,
        address challenger,
        uint256 guilty,
        bool inGame
    ) private returns (bool kept) {
        Terms memory t = TermsStore.load(address(JOBS), accused.jobId);
        bool accepted = st.phase == Phase.ACCEPTED;
        bool overtaken = _overtaken(accused.jobId, accused.kind, accused.round, st.rewinds, false);
        if (overtaken) st.overtaken = accepted ? Overtaken.ACCEPTED : Overtaken.PENDING;
        (uint256 taken, uint256 won) = _seize(claimId, st, accused, guilty, t);
        (st.phase, st.since) = (Phase.CONVICTED, _now());
        _setStatus(claimId, st);
        if (accused.kind == Kind.TASK && shardsOf[accused.jobId][accused.shard].solver == accused.claimant) {
            _open(accused.jobId, accused.shard, "convicted", t);
        }
        bool gone = overtaken
            || (!accepted && _overtaken(accused.jobId, accused.kind, accused.round, st.rewinds, true));
        if (!overtaken) {
            won -= JOBS.rewind(accused, _worth(accused.kind, accused.price, t), accepted, inGame);
        } else if (inGame) {
            JOBS.disputeClosed(accused.jobId);
        }
        kept = st.findings > 0;
        emit ITasks.Convicted(claimId, accused.claimant, challenger, taken, taken - taken / 2, won);
        if (kept) {
            // Only the claim that is settled at its place tells who was right: none is, of one that its job goes on without.
            rewards[claimId] = Reward(won, challenger, gone);
            emit ITasks.RewardKept(claimId, challenger, won, gone);
        }
        _fromStakes(kept ? address(this) : challenger, won);
    }

    /// @dev Takes the claimant's stake and the guilty voters', frees the silent seats, and keeps a fee for each vote that is
    /// left. `won` is what remains, in the Vault's entry of stakes, once half of what was taken is burnt.
    function _seize(bytes32 claimId, Status memory st, Accused memory accused, uint256 guilty, Terms memory t)
        private
        returns (uint256 taken, uint256 won)
    {
        uint256 ending = guilty | _silent(st);
        taken = STAKES.seize(
            accused.claimant,
            t.solverStake,
            _accounts(claimId, st, ending),
            _accounts(claimId, st, guilty),
            t.verifierStake,
            t.client
        );
        _end(st, ending);
        VAULT.burn(IVault.Bucket.STAKE, 0, taken - taken / 2);
        uint256 fees = _ones(_voted(st)) * t.verifierFee;
        _fromStakes(address(this), fees);
        won = taken / 2 - fees;
    }

    /// @dev Of a fallen claim's vote also the fee, which was kept for it.
    function _convictVote(bytes32 claimId, Status memory st, uint64 ballot, address challenger, bytes32 jobId)
        private
    {
        Terms memory t = TermsStore.load(address(JOBS), jobId);
        address verifier = _accountAt(claimId, ballot - 1);
        _end(st, _bit(ballot - 1));
        STAKES.unlock(verifier, Role.VERIFIER, t.verifierStake, t.client);
        uint256 taken = STAKES.slash(verifier, Role.VERIFIER, t.verifierStake, t.client);
        uint256 won = taken / 2;
        uint256 fee = st.phase == Phase.CONVICTED ? t.verifierFee : 0;
        bytes32 own = accountKey(address(this));
        VAULT.burn(IVault.Bucket.FREE, own, taken - won + fee);
        VAULT.move(IVault.Bucket.FREE, own, IVault.Bucket.FREE, accountKey(challenger), won);
        emit ITasks.VoteConvicted(claimId, verifier, challenger, taken, taken - won);
    }

    /// @dev Pays the claimant, and behind it whose votes are valid.
    function _compensate(bytes32 claimId, Status memory st, Accused memory accused, Terms memory t)
        private
        returns (bool, uint256)
    {
        address[] memory payees = _payees(claimId, st, accused.claimant, _validSeats(st));
        bool pending = st.phase < Phase.ACCEPTED;
        uint256 worth = _worth(accused.kind, accused.price, t);
        return JOBS.compensate(claimId, accused, pending, payees, t.verifierFee, worth);
    }

    /// @dev Out of what was just taken from stakes.
    function _fromStakes(address account, uint256 amount) private {
        VAULT.move(IVault.Bucket.STAKE, 0, IVault.Bucket.FREE, accountKey(account), amount);
    }

    function _accused(Claim calldata claim) private pure returns (Accused memory) {
        return Accused(
            claim.jobId, claim.claimant, claim.kind, claim.round, claim.shard, claim.price, claim.rewinds
        );
    }
}
