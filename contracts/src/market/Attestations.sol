// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {ITasks} from "../interfaces/ITasks.sol";
import {IVault} from "../interfaces/IVault.sol";
import {Claim, Phase, Role, Terms} from "../interfaces/Types.sol";
import {accountKey} from "../libraries/AccountKey.sol";
import {BlockHashes} from "../libraries/BlockHashes.sol";
import {Headers} from "../libraries/Headers.sol";
import {Merkle} from "../libraries/Merkle.sol";
import {Claims} from "./Claims.sol";

/// @title Seeds, draws and votes (docs/protocol.md 4.5 to 4.7)
abstract contract Attestations is Claims {
    /// @dev Blocks for which a seed has to come with its block's header: half of what the BLOCKHASH opcode reaches, so that
    /// a seed without one can be recorded on a chain that keeps no longer history.
    uint64 private constant SEED_PATIENCE = 128;
    /// @dev Where in transient storage the RANDAO values begin of blocks whose headers were brought in this transaction, each
    /// at its block's number: eight claims of one block need one header.
    uint256 private constant SHOWN = uint256(keccak256("assay/shown/1"));
    /// @dev No vote's commitment: nodes write it for `abstain`.
    bytes32 private constant ABSTAIN = bytes32(uint256(1));
    /// @dev How often others are called to empty seats, and all seats that a claim can have.
    uint256 private constant MAX_CALLS = 3;
    uint256 private constant MAX_SEATS = 8;

    function recordSeed(Claim calldata claim, bytes calldata header) external {
        (bytes32 claimId, Status memory st, Terms memory t) = _inPhase()(claim, Phase.COMMITTED);
        if (block.number <= st.seedBlock) revert ITasks.SeedUnavailable(st.seedBlock);
        ++st.draws;
        bytes32 blockHash = BlockHashes.hashOf(st.seedBlock);
        if (blockHash == 0) {
            st.seedBlock = _newSeedBlock(t);
            _setStatus(claimId, st);
            emit ITasks.Redrawn(claimId, st.seedBlock);
            return;
        }
        // Half of the hash: the other half of its slot is the seats'.
        bytes32 seed =
            bytes16(sha256(abi.encodePacked(_randomness(st.seedBlock, blockHash, header), claimId)));
        draws[claimId] = uint256(seed);
        (st.phase, st.since) = (Phase.SEEDED, _now());
        // Below 2^20, and at most 8 (Classes).
        // forge-lint: disable-next-item(unsafe-typecast)
        (st.voteTime, st.revealTime, st.samples) =
        (uint24(t.voteTime), uint24(t.revealTime), uint8(t.samples));
        emit ITasks.SeedRecorded(claimId, seed, _seat(claimId, st, t, claim.claimant, seed, t.verifiers));
        _setStatus(claimId, st);
    }

    /// @dev RANDAO's value, of which a proposer can only leave its own part out. Whoever builds a block can try contents for
    /// its hash, so that serves only where nobody has been able to bring a header for SEED_PATIENCE blocks.
    function _randomness(uint64 seedBlock, bytes32 blockHash, bytes calldata header)
        private
        returns (bytes32 value)
    {
        if (header.length == 0) {
            value = _shownBefore(seedBlock);
            if (value != 0) return value;
            if (block.number <= seedBlock + SEED_PATIENCE) {
                revert ITasks.HeaderAwaited(seedBlock + SEED_PATIENCE);
            }
            return blockHash;
        }
        if (keccak256(header) != blockHash) revert ITasks.WrongHeader(seedBlock);
        value = Headers.randao(header);
        if (value == 0) revert ITasks.NoRandao(seedBlock);
        uint256 place = SHOWN + seedBlock;
        assembly ("memory-safe") {
            tstore(place, value)
        }
    }

    /// @dev The RANDAO value of a block whose header an earlier call of this transaction has brought; 0 if none has.
    function _shownBefore(uint64 seedBlock) private view returns (bytes32 value) {
        uint256 place = SHOWN + seedBlock;
        assembly ("memory-safe") {
            value := tload(place)
        }
    }

    function commitVote(bytes32 claimId, bytes32 commitment) external {
        Status memory st = _seeded(claimId);
        _requireVoting(st);
        if (commitment == 0 || commitment == ABSTAIN) revert ITasks.WrongReveal();
        uint256 i = _emptySeat(claimId, st);
        ballots[claimId][i] = commitment;
        st.first |= _bit(i);
        _setStatus(claimId, st);
    }

    function abstain(Claim calldata claim) external {
        (bytes32 claimId, Status memory st, Terms memory t) = _inPhase()(claim, Phase.SEEDED);
        _requireVoting(st);
        st.gone |= _bit(_emptySeat(claimId, st));
        _setStatus(claimId, st);
        emit ITasks.VoteAbstained(claimId, msg.sender);
        STAKES.unlock(msg.sender, Role.VERIFIER, t.verifierStake, t.client);
    }

    function _seeded(bytes32 claimId) private view returns (Status memory st) {
        st = _status()(claimId);
        if (st.phase == Phase.NONE) revert ITasks.WrongClaim(claimId);
        if (st.phase != Phase.SEEDED) revert ITasks.WrongPhase(st.phase);
    }

    function _requireVoting(Status memory st) private view {
        uint256 deadline = uint256(st.since) + st.voteTime;
        if (block.timestamp > deadline) revert ITasks.TooLate(_time(deadline));
    }

    /// @dev The caller's, with which it has done nothing yet.
    function _emptySeat(bytes32 claimId, Status memory st) private view returns (uint256 i) {
        i = _ordinal(claimId, st, msg.sender);
        if (_cast(st, i) || _gone(st, i)) revert ITasks.AlreadyVoted(msg.sender);
    }

    function revealVote(bytes32 claimId, bool valid, bytes32[] calldata traces, bytes32 salt) external {
        Status memory st = _seeded(claimId);
        uint256 voting = uint256(st.since) + st.voteTime;
        bool early = _awaited(st) & ~uint256(st.first) != 0; // somebody may still commit
        if (block.timestamp <= voting && early) revert ITasks.NotDue(_time(voting + 1));
        if (block.timestamp > voting + st.revealTime) revert ITasks.TooLate(_time(voting + st.revealTime));
        uint256 i = _ordinal(claimId, st, msg.sender);
        if (!_cast(st, i)) revert ITasks.WrongReveal();
        if (_revealed(st, i) || _gone(st, i)) revert ITasks.AlreadyVoted(msg.sender);
        if (valid && traces.length != st.samples) revert ITasks.WrongReveal();
        bytes32 tracesRoot = traces.length == 0 ? bytes32(0) : Merkle.root(traces);
        if (ballots[claimId][i] != keccak256(abi.encode(claimId, msg.sender, valid, tracesRoot, salt))) {
            revert ITasks.WrongReveal();
        }
        ballots[claimId][i] = tracesRoot;
        st.second |= _bit(i);
        if (!valid) st.first &= ~_bit(i);
        _setStatus(claimId, st);
        emit ITasks.VoteRevealed(claimId, msg.sender, valid, traces);
    }

    function tally(Claim calldata claim) external {
        (bytes32 claimId, Status memory st, Terms memory t) = _inPhase()(claim, Phase.SEEDED);
        uint256 silent = _awaited(st);
        uint256 deadline = uint256(st.since) + t.voteTime + t.revealTime;
        if (silent != 0 && block.timestamp <= deadline) revert ITasks.NotDue(_time(deadline + 1));
        if (!_stands(st.phase, claim.jobId, claim.kind, claim.round, st.rewinds)) {
            revert ITasks.NotStanding();
        }
        _fine(claimId, st, t, silent);
        if (_call(claimId, st, t, claim.claimant)) return;
        // Whoever called the claim invalid and has no game on it, nor anybody else.
        if (st.openGames == 0) _fine(claimId, st, t, st.second & ~st.first & ~st.gone);
        (st.phase, st.since) = (Phase.ACCEPTED, _now());
        _setStatus(claimId, st);
        JOBS.taskAccepted(claim.jobId, claim.round, claim.rewinds, _worth(claim.kind, claim.price, t));
        emit ITasks.Accepted(claimId, _time(_windowEnd(claim.kind, st.since, _validCount(st), t)));
    }

    /// @dev Others for the seats that have shown no vote, from the same seed, and a new clock for them. Votes that were
    /// shown stand. False if every seat has voted, nobody may be called any more, or nobody is there to be called.
    function _call(bytes32 claimId, Status memory st, Terms memory t, address claimant)
        private
        returns (bool)
    {
        uint256 shown = _revealedCount(st);
        if (shown >= t.verifiers || st.calls == MAX_CALLS) return false;
        uint256 seats = t.verifiers - shown;
        if (seats > MAX_SEATS - st.drawn) seats = MAX_SEATS - st.drawn;
        // One seed a claim; the calls' own points in it.
        uint8 calls = st.calls + 1;
        bytes32 seed = keccak256(abi.encode(_seed(claimId), calls));
        address[] memory drawn = _seat(claimId, st, t, claimant, seed, seats);
        if (drawn.length == 0) return false;
        (st.calls, st.since) = (calls, _now());
        _setStatus(claimId, st);
        emit ITasks.Called(claimId, drawn);
        return true;
    }

    /// @dev Takes missPenalty of the stake of each of these seats, and frees the rest.
    function _fine(bytes32 claimId, Status memory st, Terms memory t, uint256 seats) private {
        if (seats == 0) return;
        address[] memory seated = _seated(claimId, st.drawn);
        address[] memory each = new address[](_ones(seats));
        uint256 n;
        for (uint256 i; i < st.drawn; ++i) {
            if (seats >> i & 1 == 0) continue;
            each[n++] = seated[i];
            emit ITasks.VoteFined(claimId, seated[i], t.missPenalty);
        }
        // casting to 'uint8' is safe because a claim has at most 8 seats, a bit each
        // forge-lint: disable-next-line(unsafe-typecast)
        st.gone |= uint8(seats);
        uint256 taken = STAKES.fine(each, Role.VERIFIER, t.verifierStake, t.missPenalty, t.client);
        VAULT.burn(IVault.Bucket.FREE, accountKey(address(this)), taken);
    }

    /// @dev Draws for so many seats; the claimant and who was drawn before are passed over.
    function _seat(
        bytes32 claimId,
        Status memory st,
        Terms memory t,
        address claimant,
        bytes32 seed,
        uint256 seats
    ) private returns (address[] memory drawn) {
        uint256 before = st.drawn;
        address[] memory others = new address[](before + 1);
        address[] memory seated = _seated(claimId, before);
        others[before] = claimant;
        for (uint256 i; i < before; ++i) {
            others[i] = seated[i];
        }
        drawn = seats == 0
            ? new address[](0)
            : STAKES.seat(t.classId, seed, seats, t.verifierStake, others, t.client);
        _take(claimId, before, drawn);
        // At most MAX_SEATS.
        // forge-lint: disable-next-line(unsafe-typecast)
        st.drawn = uint8(before + drawn.length);
    }

    /// @dev Writes the numbers of those drawn into the seats from `first` on, and gives one to who has none.
    function _take(bytes32 claimId, uint256 first, address[] memory drawn) private {
        uint256 beside;
        uint256 called;
        for (uint256 i; i < drawn.length; ++i) {
            uint256 number = numberOf[drawn[i]];
            if (number == 0) {
                number = ++accountCount;
                (numberOf[drawn[i]], accountOf[number]) = (number, drawn[i]);
            }
            uint256 seat = first + i;
            if (seat < SEATS_BESIDE) beside |= number << 32 * seat;
            else called |= number << 32 * (seat - SEATS_BESIDE);
        }
        if (beside != 0) draws[claimId] |= beside;
        if (called != 0) calledSeats[claimId] |= called;
    }
}
