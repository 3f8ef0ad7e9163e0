// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {IClock} from "../interfaces/IClock.sol";
import {IJobs} from "../interfaces/IJobs.sol";
import {IStakes} from "../interfaces/IStakes.sol";
import {ITasks} from "../interfaces/ITasks.sol";
import {IVault} from "../interfaces/IVault.sol";
import {Claim, Kind, Phase, Terms} from "../interfaces/Types.sol";
import {TermsStore} from "../libraries/TermsStore.sol";
import {Deadlines} from "./Deadlines.sol";
import {SafeCast} from "@openzeppelin/contracts/utils/math/SafeCast.sol";
import {LibBit} from "solady/utils/LibBit.sol";

/// @title What the parts of Tasks share: all their storage, claims by hash, and where these stand in the job
/// @notice A claim itself is never stored. Whoever acts on one brings it along, and it counts only if its hash is known.
/// @dev Tasks and TasksExtension work on the same storage, so every variable of either is declared here.
abstract contract Claims is Deadlines {
    using SafeCast for uint256;

    /// @dev One slot. `drawn` counts the seats. Bit i of `shown` says that the i-th has voted, of `valid` that it voted valid, of
    /// `gone` that it is over and holds no stake. `voteEnd` and `samples` are kept here from the draw on, so that a vote reads
    /// nothing else. `findings`: of the open games on the claim, those whose challengers have shown a root of their own.
    /// `overtaken`: what it was when a rewind had overtaken it, if it was convicted after that.
    struct Status {
        Phase phase;
        uint40 seedBlock;
        uint40 since; // seconds
        uint40 voteEnd; // seconds
        uint16 openGames; // on the claim or on a vote
        uint16 findings;
        uint8 shown;
        uint8 valid;
        uint8 gone;
        uint8 calls;
        uint8 samples;
        uint8 drawn;
        uint16 attempt;
        uint24 rewinds;
        Overtaken overtaken;
    }

    enum Overtaken {
        NOT,
        PENDING,
        ACCEPTED
    }

    struct Shard {
        address solver;
        uint64 since; // held since; seconds
        uint128 price;
        uint64 openedAt; // 0 until it has been held once
    }

    /// @dev What waits until it is known whose finding is the truth; it lies in this module's free balance.
    struct Reward {
        uint256 amount;
        address winner;
        bool gone; // the job goes on without the claim: no settled one will tell
    }

    /// @dev Seats whose numbers lie beside the seed; a draw has no more to begin with (docs/protocol.md 3.4).
    uint256 internal constant SEATS_BESIDE = 4;

    IVault internal immutable VAULT;
    IStakes internal immutable STAKES;
    IJobs internal immutable JOBS;

    mapping(bytes32 claimId => Status) internal statuses;
    /// @dev The seed, in the upper half, and in the lower the numbers of the first SEATS_BESIDE seats' accounts, 32 bits each.
    mapping(bytes32 claimId => uint256) internal draws;
    /// @dev The numbers of the other seats' accounts, which only calls fill.
    mapping(bytes32 claimId => uint256) internal calledSeats;
    /// @dev The last claim of each place of each job; whether it stands, its status says.
    mapping(bytes32 place => bytes32 claimId) internal places;
    /// @dev Of valid votes.
    mapping(bytes32 claimId => mapping(uint256 seat => bytes32)) internal tracesRoots;
    mapping(bytes32 jobId => mapping(uint32 shard => Shard)) internal shardsOf;
    /// @dev Of convicted claims on which other findings were in dispute then.
    mapping(bytes32 claimId => Reward) internal rewards;
    /// @dev Every account that has been drawn, numbered from 1 in the order of its first draw.
    mapping(address account => uint256) internal numberOf;
    mapping(uint256 number => address) internal accountOf;
    uint256 internal accountCount;

    constructor(IVault vault, IStakes stakes, IJobs jobs, IClock clock) Deadlines(clock) {
        VAULT = vault;
        STAKES = stakes;
        JOBS = jobs;
    }

    function _current(bytes32 jobId, Kind kind, uint32 round, uint32 shard) internal view returns (bytes32) {
        bytes32 claimId = places[_place(jobId, kind, round, shard)];
        if (claimId == 0) return 0;
        Status storage st = statuses[claimId];
        (Phase phase, uint32 rewinds) = (st.phase, st.rewinds);
        if (phase == Phase.CONVICTED || phase == Phase.VOID) return 0;
        return _overtaken(jobId, kind, round, rewinds, phase < Phase.ACCEPTED) ? bytes32(0) : claimId;
    }

    function _place(bytes32 jobId, Kind kind, uint32 round, uint32 shard) internal pure returns (bytes32) {
        return keccak256(abi.encode(jobId, kind, round, shard));
    }

    function _statusOf(bytes32 claimId) internal view returns (Status memory) {
        return statuses[claimId];
    }

    function _setStatus(bytes32 claimId, Status memory st) internal {
        statuses[claimId] = st;
    }

    function _known(Claim calldata claim) internal view returns (bytes32 claimId, Status memory st) {
        claimId = keccak256(abi.encode(claim));
        st = _statusOf(claimId);
        if (st.phase == Phase.NONE) revert ITasks.WrongClaim(claimId);
    }

    /// @dev A claim in the given phase: its id, status and job's terms.
    function _inPhase(Claim calldata claim, Phase phase)
        internal
        view
        returns (bytes32 claimId, Status memory st, Terms memory t)
    {
        (claimId, st) = _known(claim);
        if (st.phase != phase) revert ITasks.WrongPhase(st.phase);
        t = TermsStore.load(address(JOBS), claim.jobId);
    }

    function _live(Phase phase) internal pure returns (bool) {
        return phase == Phase.COMMITTED || phase == Phase.SEEDED || phase == Phase.ACCEPTED;
    }

    function _overtaken(bytes32 jobId, Kind kind, uint32 round, uint32 rewinds, bool pending)
        internal
        view
        returns (bool)
    {
        return JOBS.overtaken(jobId, kind, round, rewinds, pending);
    }

    /// @dev Neither ended, nor overtaken by a rewind, nor left out when its round was closed.
    function _stands(Phase phase, bytes32 jobId, Kind kind, uint32 round, uint32 rewinds)
        internal
        view
        returns (bool)
    {
        return _live(phase) && !_overtaken(jobId, kind, round, rewinds, phase < Phase.ACCEPTED);
    }

    /// @dev The accounts of those seats, in order.
    function _accounts(bytes32 claimId, Status memory st, uint256 seats)
        internal
        view
        returns (address[] memory each)
    {
        each = new address[](_ones(seats));
        _fill(each, 0, claimId, st.drawn, seats);
    }

    function _fill(address[] memory each, uint256 from, bytes32 claimId, uint256 drawn, uint256 seats)
        private
        view
    {
        uint256 numbers = draws[claimId];
        for (uint256 i; i < drawn; ++i) {
            if (i == SEATS_BESIDE) numbers = calledSeats[claimId];
            if (_has(seats, i)) each[from++] = accountOf[_first(numbers)];
            numbers >>= 32;
        }
    }

    /// @dev The claimant, then the valid voters.
    function _payees(bytes32 claimId, Status memory st, address claimant, uint256 valid)
        internal
        view
        returns (address[] memory payees)
    {
        payees = new address[](1 + _ones(valid));
        payees[0] = claimant;
        _fill(payees, 1, claimId, st.drawn, valid);
    }

    /// @dev Of a claim that has one; its lower half is zero.
    function _seed(bytes32 claimId) internal view returns (bytes32) {
        return bytes32(draws[claimId] >> 128 << 128);
    }

    /// @dev The accounts of a claim's seats, in order.
    function _seated(bytes32 claimId, uint256 drawn) internal view returns (address[] memory seated) {
        seated = new address[](drawn);
        _fill(seated, 0, claimId, drawn, type(uint256).max);
    }

    /// @dev The lowest of the numbers in a word, 32 bits each.
    function _first(uint256 numbers) internal pure returns (uint256) {
        return numbers & type(uint32).max;
    }

    /// @dev The account of one seat.
    function _accountAt(bytes32 claimId, uint256 i) internal view returns (address) {
        uint256 numbers = i < SEATS_BESIDE ? draws[claimId] : calledSeats[claimId];
        return accountOf[_first(numbers >> 32 * (i % SEATS_BESIDE))];
    }

    /// @dev The account's seat.
    function _ordinal(bytes32 claimId, Status memory st, address verifier) internal view returns (uint256 i) {
        uint256 sought = numberOf[verifier];
        uint256 drawn = sought == 0 ? 0 : st.drawn;
        uint256 numbers = draws[claimId];
        for (; i < drawn; ++i) {
            if (i == SEATS_BESIDE) numbers = calledSeats[claimId];
            if (_first(numbers) == sought) return i;
            numbers >>= 32;
        }
        revert ITasks.NotDrawn(verifier);
    }

    function _has(uint256 seats, uint256 i) internal pure returns (bool) {
        return seats >> i & 1 == 1;
    }

    function _bit(uint256 i) internal pure returns (uint8) {
        return (uint256(1) << i).toUint8();
    }

    /// @dev Seats whose stake is locked.
    function _held(Status memory st) internal pure returns (uint256) {
        // One bit for each seat, of which there are at most 8.
        // forge-lint: disable-next-line(incorrect-shift)
        return ((1 << uint256(st.drawn)) - 1) & ~uint256(st.gone);
    }

    /// @dev Seats that have neither voted nor ended.
    function _silent(Status memory st) internal pure returns (uint256) {
        return _held(st) & ~uint256(st.shown);
    }

    /// @dev Seats whose votes stand.
    function _voted(Status memory st) internal pure returns (uint256) {
        return st.shown & ~st.gone;
    }

    /// @dev Seats whose valid votes stand.
    function _validSeats(Status memory st) internal pure returns (uint256) {
        return st.valid & ~st.gone;
    }

    /// @dev The seats end. There are at most 8, a bit each.
    function _end(Status memory st, uint256 seats) internal pure {
        st.gone |= seats.toUint8();
    }

    function _ones(uint256 bits) internal pure returns (uint256) {
        return LibBit.popCount(bits);
    }

    /// @dev Until when an accepted claim may be challenged: twice as long where not every seat's vote stands valid.
    function _windowEnd(Kind kind, uint256 since, uint256 valid, Terms memory t)
        internal
        pure
        returns (uint256)
    {
        bool attested = kind == Kind.OUTER || valid == t.verifiers;
        return attested ? since + t.challengeWindow : since + 2 * uint256(t.challengeWindow);
    }

    /// @dev What the claim costs the client at most: its price, and a fee for each seat of its draw.
    function _worth(Kind kind, uint256 price, Terms memory t) internal pure returns (uint256) {
        return kind == Kind.TASK ? price + uint256(t.verifiers) * t.verifierFee : price;
    }

    function _newSeedBlock(Terms memory t) internal view returns (uint40) {
        return (block.number + t.seedDelay).toUint40();
    }

    function _deadline(uint64 dueSince, uint64 since, uint64 taskTime) internal pure returns (uint64) {
        return (dueSince > since ? dueSince : since) + taskTime;
    }

    function _now() internal view returns (uint40) {
        return block.timestamp.toUint40();
    }
}
