// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {IJobs} from "../interfaces/IJobs.sol";
import {IStakes} from "../interfaces/IStakes.sol";
import {ITasks} from "../interfaces/ITasks.sol";
import {IVault} from "../interfaces/IVault.sol";
import {Claim, Kind, Phase, Terms} from "../interfaces/Types.sol";
import {TermsStore} from "../libraries/TermsStore.sol";

/// @title What the parts of Tasks share: all their storage, claims by hash, and where these stand in the job
/// @notice A claim itself is never stored. Whoever acts on one brings it along, and it counts only if its hash is known.
/// @dev Tasks and TasksExtension work on the same storage, so every variable of either is declared here.
abstract contract Claims {
    /// @dev One slot. `drawn` counts the seats; of the i-th, bit i of `first` and `second` say: 0 0 nothing yet, 1 0
    /// committed, 1 1 valid, 0 1 invalid; bit i of `gone`, that it is over and holds no stake: abstained, fined, or fallen
    /// to a game. `voteTime`, `revealTime` and `samples` are the terms', from the draw on, so that a vote reads nothing else: 20
    /// bits (Classes), 20 and 4; `calls` has 4. `findings`: of the open games on the claim, those whose challengers have shown a root of their own.
    struct Status {
        Phase phase;
        uint40 seedBlock;
        uint40 since; // seconds
        uint24 voteTime;
        uint24 revealTime;
        uint16 draws;
        uint16 openGames; // on the claim or on a vote
        uint16 findings;
        uint8 first;
        uint8 second;
        uint8 gone;
        uint8 calls;
        uint8 samples;
        uint8 drawn;
        uint16 attempt;
        uint24 rewinds;
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
    }

    /// @dev Seats whose numbers lie beside the seed; a draw has no more to begin with (docs/protocol.md 3.4).
    uint256 internal constant SEATS_BESIDE = 4;

    IVault internal immutable VAULT;
    IStakes internal immutable STAKES;
    IJobs internal immutable JOBS;

    /// @dev Status, packed as in _setStatus.
    mapping(bytes32 claimId => uint256) internal statuses;
    /// @dev The seed, in the upper half, and in the lower the numbers of the first SEATS_BESIDE seats' accounts, 32 bits each.
    mapping(bytes32 claimId => uint256) internal draws;
    /// @dev The numbers of the other seats' accounts, which only calls fill.
    mapping(bytes32 claimId => uint256) internal calledSeats;
    /// @dev The last claim of each place of each job; whether it stands, its status says.
    mapping(bytes32 place => bytes32 claimId) internal places;
    /// @dev Keyed by the seat: the commitment, then, once revealed, tracesRoot.
    mapping(bytes32 claimId => mapping(uint256 seat => bytes32)) internal ballots;
    mapping(bytes32 jobId => mapping(uint32 shard => Shard)) internal shardsOf;
    /// @dev Of convicted claims on which other findings were in dispute then.
    mapping(bytes32 claimId => Reward) internal rewards;
    /// @dev Every account that has been drawn, numbered from 1 in the order of its first draw.
    mapping(address account => uint256) internal numberOf;
    mapping(uint256 number => address) internal accountOf;
    uint256 internal accountCount;

    constructor(IVault vault, IStakes stakes, IJobs jobs) {
        VAULT = vault;
        STAKES = stakes;
        JOBS = jobs;
    }

    function _current(bytes32 jobId, Kind kind, uint32 round, uint32 shard) internal view returns (bytes32) {
        bytes32 claimId = places[_place(jobId, kind, round, shard)];
        if (claimId == 0) return 0;
        Status memory st = _status()(claimId);
        if (st.phase == Phase.CONVICTED || st.phase == Phase.VOID) return 0;
        return _overtaken(jobId, kind, round, st.rewinds, st.phase < Phase.ACCEPTED) ? bytes32(0) : claimId;
    }

    function _place(bytes32 jobId, Kind kind, uint32 round, uint32 shard) internal pure returns (bytes32) {
        return keccak256(abi.encode(jobId, kind, round, shard));
    }

    /// @dev The whole status by one load; the compiler's own copying would load the slot once for each field. Called as
    /// `_status()(claimId)`, for the reason and with the SAFETY of TermsStore.loader.
    function _status() internal pure returns (function(bytes32) internal view returns (Status memory) typed) {
        function(bytes32) internal view returns (uint256) plain = _readStatus;
        assembly ("memory-safe") {
            typed := plain
        }
    }

    function _readStatus(bytes32 claimId) private view returns (uint256 st) {
        uint256 word = statuses[claimId];
        // The fields in order, each by the bits that _setStatus gives it.
        assembly ("memory-safe") {
            st := mload(0x40)
            mstore(0x40, add(st, 0x200))
            mstore(st, and(word, 0xff))
            mstore(add(st, 0x20), and(shr(8, word), 0xffffffffff))
            mstore(add(st, 0x40), and(shr(48, word), 0xffffffffff))
            mstore(add(st, 0x60), and(shr(88, word), 0xfffff))
            mstore(add(st, 0x80), and(shr(108, word), 0xfffff))
            mstore(add(st, 0xa0), and(shr(128, word), 0xffff))
            mstore(add(st, 0xc0), and(shr(144, word), 0xffff))
            mstore(add(st, 0xe0), and(shr(160, word), 0xffff))
            mstore(add(st, 0x100), and(shr(176, word), 0xff))
            mstore(add(st, 0x120), and(shr(184, word), 0xff))
            mstore(add(st, 0x140), and(shr(192, word), 0xff))
            mstore(add(st, 0x160), and(shr(200, word), 0xf))
            mstore(add(st, 0x180), and(shr(204, word), 0xf))
            mstore(add(st, 0x1a0), and(shr(208, word), 0xff))
            mstore(add(st, 0x1c0), and(shr(216, word), 0xffff))
            mstore(add(st, 0x1e0), shr(232, word))
        }
    }

    /// @dev Status of a claim just committed. A claim cannot be tried 2^16 times, nor a job rewound 2^24 times, for less than
    /// as many stakes.
    function _setNew(bytes32 claimId, Phase phase, uint256 seedBlock, uint256 attempt, uint256 rewinds)
        internal
    {
        if (attempt >> 16 | rewinds >> 24 != 0) revert ITasks.WrongClaim(claimId);
        statuses[claimId] =
            uint256(phase) | seedBlock << 8 | block.timestamp << 48 | attempt << 216 | rewinds << 232;
    }

    /// @dev SAFETY: no field has more bits than its place; the compiler keeps to the types, and what sets `voteTime`,
    /// `revealTime`, `calls` and `samples` to theirs.
    function _setStatus(bytes32 claimId, Status memory st) internal {
        uint256 word;
        assembly ("memory-safe") {
            word := mload(st)
            word := or(word, shl(8, mload(add(st, 0x20))))
            word := or(word, shl(48, mload(add(st, 0x40))))
            word := or(word, shl(88, mload(add(st, 0x60))))
            word := or(word, shl(108, mload(add(st, 0x80))))
            word := or(word, shl(128, mload(add(st, 0xa0))))
            word := or(word, shl(144, mload(add(st, 0xc0))))
            word := or(word, shl(160, mload(add(st, 0xe0))))
            word := or(word, shl(176, mload(add(st, 0x100))))
            word := or(word, shl(184, mload(add(st, 0x120))))
            word := or(word, shl(192, mload(add(st, 0x140))))
            word := or(word, shl(200, mload(add(st, 0x160))))
            word := or(word, shl(204, mload(add(st, 0x180))))
            word := or(word, shl(208, mload(add(st, 0x1a0))))
            word := or(word, shl(216, mload(add(st, 0x1c0))))
            word := or(word, shl(232, mload(add(st, 0x1e0))))
        }
        statuses[claimId] = word;
    }

    function _setPhase(bytes32 claimId, Phase phase) internal {
        statuses[claimId] = statuses[claimId] >> 8 << 8 | uint256(phase);
    }

    function _known(Claim calldata claim) internal view returns (bytes32 claimId, Status memory st) {
        claimId = _id(claim);
        st = _status()(claimId);
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

    /// @dev A claim in the given phase: its id, status and job's terms. Called as `_inPhase()(claim, phase)`.
    /// SAFETY: the two functions differ in what they call the last two words: pointers to memory in both. A function that
    /// declares that it returns a struct first makes one of zeros, at each of three levels, which nobody reads.
    function _inPhase()
        internal
        pure
        returns (function(Claim calldata, Phase)
                internal
                view returns (bytes32, Status memory, Terms memory) typed)
    {
        function(Claim calldata, Phase) internal view returns (bytes32, uint256, uint256) plain = _find;
        assembly ("memory-safe") {
            typed := plain
        }
    }

    function _find(Claim calldata claim, Phase phase)
        private
        view
        returns (bytes32 claimId, uint256 status_, uint256 terms_)
    {
        claimId = _id(claim);
        Status memory st = _status()(claimId);
        if (st.phase != phase) {
            if (st.phase == Phase.NONE) revert ITasks.WrongClaim(claimId);
            revert ITasks.WrongPhase(st.phase);
        }
        terms_ = TermsStore.read(address(JOBS), claim.jobId);
        assembly ("memory-safe") {
            status_ := st
        }
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

    /// @dev Stands, or was left out when its round was closed: then it still answers for the games open on it.
    function _liable(Phase phase, bytes32 jobId, Kind kind, uint32 round, uint32 rewinds)
        internal
        view
        returns (bool)
    {
        return _live(phase) && !_overtaken(jobId, kind, round, rewinds, false);
    }

    /// @dev All seats whose stake is locked, and those among them whose vote is valid.
    function _voters(bytes32 claimId, Status memory st)
        internal
        view
        returns (address[] memory voters, address[] memory valid)
    {
        voters = _seated(claimId, st.drawn);
        valid = new address[](st.drawn);
        uint256 n;
        uint256 m;
        for (uint256 i; i < st.drawn; ++i) {
            if (_gone(st, i)) continue;
            address verifier = voters[i];
            voters[n++] = verifier;
            if (_valid(st, i)) valid[m++] = verifier;
        }
        assembly ("memory-safe") {
            mstore(voters, n)
            mstore(valid, m)
        }
    }

    /// @dev Of a claim that has one; its lower half is zero.
    function _seed(bytes32 claimId) internal view returns (bytes32) {
        return bytes32(draws[claimId] >> 128 << 128);
    }

    /// @dev The accounts of a claim's seats, in order.
    function _seated(bytes32 claimId, uint256 drawn) internal view returns (address[] memory seated) {
        seated = new address[](drawn);
        uint256 numbers = draws[claimId];
        for (uint256 i; i < drawn; ++i) {
            if (i == SEATS_BESIDE) numbers = calledSeats[claimId];
            seated[i] = accountOf[_first(numbers)];
            numbers >>= 32;
        }
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

    /// @dev Whether the i-th vote was committed (and perhaps revealed).
    function _cast(Status memory st, uint256 i) internal pure returns (bool) {
        return (st.first | st.second) >> i & 1 == 1;
    }

    function _revealed(Status memory st, uint256 i) internal pure returns (bool) {
        return st.second >> i & 1 == 1;
    }

    function _gone(Status memory st, uint256 i) internal pure returns (bool) {
        return st.gone >> i & 1 == 1;
    }

    /// @dev Valid, and not fallen since.
    function _valid(Status memory st, uint256 i) internal pure returns (bool) {
        return (st.first & st.second & ~st.gone) >> i & 1 == 1;
    }

    function _bit(uint256 i) internal pure returns (uint8) {
        // forge-lint: disable-next-line(unsafe-typecast)
        return uint8(2 ** i); // there are at most 8 seats
    }

    /// @dev Seats that have neither shown a vote nor ended.
    function _awaited(Status memory st) internal pure returns (uint256) {
        return (2 ** uint256(st.drawn) - 1) & ~uint256(st.second | st.gone);
    }

    function _revealedCount(Status memory st) internal pure returns (uint256) {
        return _ones(st.second & ~st.gone);
    }

    function _validCount(Status memory st) internal pure returns (uint256) {
        return _ones(st.first & st.second & ~st.gone);
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

    function _ones(uint256 bits) internal pure returns (uint256 count) {
        for (; bits > 0; bits &= bits - 1) {
            ++count;
        }
    }

    /// @dev What the claim costs the client at most: its price, and a fee for each seat of its draw.
    function _worth(Kind kind, uint256 price, Terms memory t) internal pure returns (uint256) {
        return kind == Kind.TASK ? price + uint256(t.verifiers) * t.verifierFee : price;
    }

    function _newSeedBlock(Terms memory t) internal view returns (uint40) {
        // forge-lint: disable-next-line(unsafe-typecast)
        return uint40(block.number + t.seedDelay); // a block number fits
    }

    function _deadline(uint64 dueSince, uint64 since, uint64 taskTime) internal pure returns (uint64) {
        return (dueSince > since ? dueSince : since) + taskTime;
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
}
