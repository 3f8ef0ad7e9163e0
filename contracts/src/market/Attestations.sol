// SPDX-License-Identifier: MIT
pragma solidity ^0.8.28;

import {IVault} from "../interfaces/IMarket.sol";
import {Claim, Phase, Role, Terms, Vote} from "../interfaces/Types.sol";
import {Merkle} from "../libraries/Merkle.sol";
import {Claims} from "./Claims.sol";
import {Blockhash} from "@openzeppelin/contracts/utils/Blockhash.sol";

/// @title Seeds, draws and votes (docs/protocol.md 4.5 to 4.7)
abstract contract Attestations is Claims {
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

    /// @dev Keyed by the draw and the ordinal in it, so that a new draw leaves the ballots of the old one as they were.
    mapping(bytes32 claimId => mapping(uint256 ballot => Ballot)) internal ballots;

    function recordSeed(Claim calldata claim) external {
        (bytes32 claimId, Status memory st, Terms memory t) = _inPhase(claim, Phase.COMMITTED);
        if (block.number <= st.seedBlock) revert SeedUnavailable(st.seedBlock);
        Status storage entry = statuses[claimId];
        entry.draws = st.draws + 1;
        bytes32 blockHash = Blockhash.blockHash(st.seedBlock);
        if (blockHash == 0) {
            entry.seedBlock = _newSeedBlock(t);
            emit Redrawn(claimId, entry.seedBlock);
            return;
        }
        bytes32 seed = sha256(abi.encodePacked(blockHash, claimId));
        address[] memory drawn = _drawOthers(seed, t.verifiers, claim.claimant);
        seeds[claimId] = seed;
        entry.phase = Phase.SEEDED;
        entry.since = _now();
        // At most t.verifiers, which is at most 16.
        // forge-lint: disable-next-line(unsafe-typecast)
        entry.drawn = uint8(drawn.length);
        for (uint64 i; i < drawn.length; ++i) {
            ballots[claimId][_ballot(st.draws + 1, i)].verifier = drawn[i];
        }
        emit SeedRecorded(claimId, seed, drawn);
    }

    function commitVote(Claim calldata claim, bytes32 commitment) external {
        (bytes32 claimId, Status memory st, Terms memory t) = _inPhase(claim, Phase.SEEDED);
        uint256 deadline = uint256(st.since) + t.voteTime;
        if (block.timestamp > deadline) revert TooLate(_time(deadline));
        if (commitment == 0) revert WrongReveal();
        Ballot storage ballot = _ballotOf(claimId, st, msg.sender);
        if (ballot.state != BallotState.DRAWN) revert AlreadyVoted(msg.sender);
        ballot.state = BallotState.COMMITTED;
        ballot.word = commitment;
        statuses[claimId].committed = st.committed + 1;
        STAKES.lock(msg.sender, Role.VERIFIER, t.verifierStake);
    }

    function revealVote(Claim calldata claim, bool valid, bytes32[] calldata traces, bytes32 salt) external {
        (bytes32 claimId, Status memory st, Terms memory t) = _inPhase(claim, Phase.SEEDED);
        uint256 voting = uint256(st.since) + t.voteTime;
        if (block.timestamp <= voting && st.committed < st.drawn) revert NotDue(_time(voting + 1));
        if (block.timestamp > voting + t.revealTime) revert TooLate(_time(voting + t.revealTime));
        Ballot storage ballot = _ballotOf(claimId, st, msg.sender);
        if (ballot.state == BallotState.DRAWN) revert WrongReveal();
        if (ballot.state != BallotState.COMMITTED) revert AlreadyVoted(msg.sender);
        if (valid && traces.length != t.samples) revert WrongReveal();
        bytes32 tracesRoot = traces.length == 0 ? bytes32(0) : Merkle.root(traces);
        if (ballot.word != keccak256(abi.encode(claimId, msg.sender, valid, tracesRoot, salt))) {
            revert WrongReveal();
        }
        ballot.state = valid ? BallotState.VALID : BallotState.INVALID;
        ballot.word = tracesRoot;
        Status storage entry = statuses[claimId];
        entry.revealed = st.revealed + 1;
        if (valid) entry.valid = st.valid + 1;
        emit VoteRevealed(claimId, msg.sender, valid, traces);
    }

    function tally(Claim calldata claim) external {
        (bytes32 claimId, Status memory st, Terms memory t) = _inPhase(claim, Phase.SEEDED);
        Status storage entry = statuses[claimId];
        if (st.valid >= t.quorum) {
            entry.phase = Phase.ACCEPTED;
            entry.since = _now();
            JOBS.taskAccepted(claim.jobId, claim.round, claim.epoch);
            emit Accepted(claimId, uint64(block.timestamp + t.challengeWindow));
            return;
        }
        uint256 deadline = uint256(st.since) + t.voteTime + t.revealTime;
        if (st.revealed < st.drawn && block.timestamp <= deadline) revert NotDue(_time(deadline + 1));
        if (!_stands(st.phase, claim.jobId, claim.kind, claim.round, st.epoch)) revert NotStanding();
        entry.phase = Phase.COMMITTED;
        entry.since = _now();
        entry.seedBlock = _newSeedBlock(t);
        (entry.drawn, entry.committed, entry.revealed, entry.valid) = (0, 0, 0, 0);
        emit Redrawn(claimId, entry.seedBlock);
        _dismiss(claimId, st, t);
    }

    function votes(bytes32 claimId) external view returns (Vote[] memory cast) {
        Status memory st = statuses[claimId];
        cast = new Vote[](st.drawn);
        for (uint64 i; i < st.drawn; ++i) {
            Ballot storage b = ballots[claimId][_ballot(st.draws, i)];
            bool sealed_ = b.state == BallotState.COMMITTED;
            bool revealed = b.state > BallotState.COMMITTED;
            bool valid = b.state == BallotState.VALID;
            cast[i] = Vote(b.verifier, b.word, revealed, valid, sealed_ ? bytes32(0) : b.word);
        }
    }

    /// @dev End of a draw that did not accept: whoever committed and did not reveal pays, the others are free again.
    function _dismiss(bytes32 claimId, Status memory st, Terms memory t) private {
        uint256 penalties;
        for (uint64 i; i < st.drawn; ++i) {
            Ballot storage ballot = ballots[claimId][_ballot(st.draws, i)];
            BallotState state = ballot.state;
            if (state == BallotState.DRAWN || state == BallotState.DONE) continue;
            if (ballot.games > 0) {
                ballot.state = BallotState.HELD;
                continue;
            }
            STAKES.unlock(ballot.verifier, Role.VERIFIER, t.verifierStake);
            if (state == BallotState.COMMITTED) {
                uint256 taken = STAKES.slash(ballot.verifier, Role.VERIFIER, t.missPenalty);
                penalties += taken;
                emit VoteMissed(claimId, ballot.verifier, taken);
            }
        }
        VAULT.burn(IVault.Bucket.FREE, _key(address(this)), penalties);
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
        revert NotDrawn(verifier);
    }

    function _ballot(uint32 draw, uint64 i) internal pure returns (uint64) {
        return (uint64(draw) << 8) | i;
    }

    /// @dev A claimant that the seed draws is passed over for the next in line.
    function _drawOthers(bytes32 seed, uint256 count, address claimant)
        private
        view
        returns (address[] memory others)
    {
        address[] memory drawn = STAKES.draw(seed, count + 1);
        others = new address[](count);
        uint256 n;
        for (uint256 i; i < drawn.length && n < count; ++i) {
            if (drawn[i] != claimant) others[n++] = drawn[i];
        }
        assembly ("memory-safe") {
            mstore(others, n)
        }
    }
}
