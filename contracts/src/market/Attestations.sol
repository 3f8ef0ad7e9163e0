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
import {SafeCast} from "@openzeppelin/contracts/utils/math/SafeCast.sol";

/// @title Seeds, draws and votes (docs/protocol.md 4.5 to 4.7)
abstract contract Attestations is Claims {
    using SafeCast for uint256;

    /// @dev Blocks for which a seed has to come with its block's header: half of what the BLOCKHASH opcode reaches, so that
    /// a seed without one can be recorded on a chain that keeps no longer history.
    uint64 private constant SEED_PATIENCE = 128;
    /// @dev Where in transient storage the RANDAO values begin of blocks whose headers were brought in this transaction, each
    /// at its block's number: eight claims of one block need one header.
    uint256 private constant BROUGHT = uint256(keccak256("assay/shown/1"));
    /// @dev How often others are called to empty seats, and all seats that a claim can have.
    uint256 private constant MAX_CALLS = 3;
    uint256 private constant MAX_SEATS = 8;

    function recordSeed(Claim calldata claim, bytes calldata header) external {
        (bytes32 claimId, Status memory st, Terms memory t) = _inPhase(claim, Phase.COMMITTED);
        if (block.number <= st.seedBlock) revert ITasks.SeedUnavailable(st.seedBlock);
        _requireStanding(claim, st);
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
        (st.phase, st.samples) = (Phase.SEEDED, uint256(t.samples).toUint8());
        _startVoting(st, t);
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
            value = _broughtBefore(seedBlock);
            if (value != 0) return value;
            if (block.number <= seedBlock + SEED_PATIENCE) {
                revert ITasks.HeaderAwaited(seedBlock + SEED_PATIENCE);
            }
            return blockHash;
        }
        if (keccak256(header) != blockHash) revert ITasks.WrongHeader(seedBlock);
        value = Headers.randao(header);
        if (value == 0) revert ITasks.NoRandao(seedBlock);
        uint256 place = BROUGHT + seedBlock;
        assembly ("memory-safe") {
            tstore(place, value)
        }
    }

    /// @dev The RANDAO value of a block whose header an earlier call of this transaction has brought; 0 if none has.
    function _broughtBefore(uint64 seedBlock) private view returns (bytes32 value) {
        uint256 place = BROUGHT + seedBlock;
        assembly ("memory-safe") {
            value := tload(place)
        }
    }

    function vote(bytes32 claimId, bytes32 seed, bool valid, bytes32[] calldata traces) external {
        Status memory st = _statusOf(claimId);
        if (st.phase == Phase.NONE) revert ITasks.WrongClaim(claimId);
        if (st.phase != Phase.SEEDED) revert ITasks.WrongPhase(st.phase);
        if (_passed(st.voteEnd)) revert ITasks.TooLate(st.voteEnd);
        if (seed != _seed(claimId)) revert ITasks.WrongSeed(_seed(claimId));
        uint256 i = _emptySeat(claimId, st);
        if (traces.length != (valid ? st.samples : 0)) revert ITasks.WrongTraces(st.samples);
        st.shown |= _bit(i);
        if (valid) {
            st.valid |= _bit(i);
            tracesRoots[claimId][i] = Merkle.root(traces);
        }
        _setStatus(claimId, st);
        emit ITasks.VoteShown(claimId, msg.sender, valid, traces);
    }

    function abstain(Claim calldata claim) external {
        (bytes32 claimId, Status memory st, Terms memory t) = _inPhase(claim, Phase.SEEDED);
        // A seat of a claim that can come to nothing waits for nobody.
        if (_passed(st.voteEnd) && _standing(claim, st)) revert ITasks.TooLate(st.voteEnd);
        st.gone |= _bit(_emptySeat(claimId, st));
        _setStatus(claimId, st);
        emit ITasks.VoteAbstained(claimId, msg.sender);
        STAKES.unlock(msg.sender, Role.VERIFIER, t.verifierStake, t.client);
    }

    function _standing(Claim calldata claim, Status memory st) private view returns (bool) {
        return _stands(st.phase, claim.jobId, claim.kind, claim.round, st.rewinds);
    }

    function _requireStanding(Claim calldata claim, Status memory st) private view {
        if (!_standing(claim, st)) revert ITasks.NotStanding();
    }

    /// @dev The caller's, with which it has done nothing yet.
    function _emptySeat(bytes32 claimId, Status memory st) private view returns (uint256 i) {
        i = _ordinal(claimId, st, msg.sender);
        if (!_has(_silent(st), i)) revert ITasks.AlreadyVoted(msg.sender);
    }

    function tally(Claim calldata claim) external {
        (bytes32 claimId, Status memory st, Terms memory t) = _inPhase(claim, Phase.SEEDED);
        uint256 silent = _silent(st);
        if (silent != 0 && !_passed(st.voteEnd)) revert ITasks.NotDue(uint64(st.voteEnd) + 1);
        _requireStanding(claim, st);
        if (silent != 0) {
            _end(st, silent);
            _fine(claimId, _accounts(claimId, st, silent), t);
        }
        if (_call(claimId, st, t, claim.claimant)) return;
        (st.phase, st.since) = (Phase.ACCEPTED, _now());
        _setStatus(claimId, st);
        JOBS.taskAccepted(claim.jobId, claim.round, claim.rewinds, _worth(claim.kind, claim.price, t));
        uint256 end = _windowEnd(claim.kind, st.since, _ones(_validSeats(st)), t);
        emit ITasks.Accepted(claimId, end.toUint64());
    }

    function _startVoting(Status memory st, Terms memory t) private view {
        (st.since, st.voteEnd) = (_now(), (block.timestamp + t.voteTime).toUint40());
    }

    /// @dev Others for the seats that have shown no vote, from the same seed, and a new clock for them. Votes that were
    /// shown stand. False if every seat has voted, nobody may be called any more, or nobody is there to be called.
    function _call(bytes32 claimId, Status memory st, Terms memory t, address claimant)
        private
        returns (bool)
    {
        uint256 shown = _ones(_voted(st));
        if (shown >= t.verifiers || st.calls == MAX_CALLS) return false;
        uint256 seats = t.verifiers - shown;
        if (seats > MAX_SEATS - st.drawn) seats = MAX_SEATS - st.drawn;
        // One seed a claim; the calls' own points in it.
        uint8 calls = st.calls + 1;
        bytes32 seed = keccak256(abi.encode(_seed(claimId), calls));
        address[] memory drawn = _seat(claimId, st, t, claimant, seed, seats);
        if (drawn.length == 0) return false;
        st.calls = calls;
        _startVoting(st, t);
        _setStatus(claimId, st);
        emit ITasks.Called(claimId, drawn);
        return true;
    }

    /// @dev Takes missPenalty of the stake of each of these seats, and frees the rest.
    function _fine(bytes32 claimId, address[] memory each, Terms memory t) internal {
        for (uint256 i; i < each.length; ++i) {
            emit ITasks.VoteFined(claimId, each[i], t.missPenalty);
        }
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
        st.drawn = (before + drawn.length).toUint8();
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
