// SPDX-License-Identifier: MIT
pragma solidity ^0.8.28;

import {ITasks, IVault} from "../interfaces/IMarket.sol";
import {Claim, Phase, Role, Terms} from "../interfaces/Types.sol";
import {Merkle} from "../libraries/Merkle.sol";
import {Claims} from "./Claims.sol";
import {Blockhash} from "@openzeppelin/contracts/utils/Blockhash.sol";

/// @title Seeds, draws and votes (docs/protocol.md 4.5 to 4.7)
abstract contract Attestations is Claims {
    function recordSeed(Claim calldata claim) external {
        (bytes32 claimId, Status memory st, Terms memory t) = _inPhase(claim, Phase.COMMITTED);
        if (block.number <= st.seedBlock) revert ITasks.SeedUnavailable(st.seedBlock);
        Status storage entry = statuses[claimId];
        entry.draws = st.draws + 1;
        bytes32 blockHash = Blockhash.blockHash(st.seedBlock);
        if (blockHash == 0) {
            entry.seedBlock = _newSeedBlock(t);
            emit ITasks.Redrawn(claimId, entry.seedBlock);
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
        emit ITasks.SeedRecorded(claimId, seed, drawn);
    }

    function commitVote(Claim calldata claim, bytes32 commitment) external {
        (bytes32 claimId, Status memory st, Terms memory t) = _inPhase(claim, Phase.SEEDED);
        uint256 deadline = uint256(st.since) + t.voteTime;
        if (block.timestamp > deadline) revert ITasks.TooLate(_time(deadline));
        if (commitment == 0) revert ITasks.WrongReveal();
        Ballot storage ballot = _ballotOf(claimId, st, msg.sender);
        if (ballot.state != BallotState.DRAWN) revert ITasks.AlreadyVoted(msg.sender);
        ballot.state = BallotState.COMMITTED;
        ballot.word = commitment;
        statuses[claimId].committed = st.committed + 1;
        STAKES.lock(msg.sender, Role.VERIFIER, t.verifierStake);
    }

    function revealVote(Claim calldata claim, bool valid, bytes32[] calldata traces, bytes32 salt) external {
        (bytes32 claimId, Status memory st, Terms memory t) = _inPhase(claim, Phase.SEEDED);
        uint256 voting = uint256(st.since) + t.voteTime;
        if (block.timestamp <= voting && st.committed < st.drawn) revert ITasks.NotDue(_time(voting + 1));
        if (block.timestamp > voting + t.revealTime) revert ITasks.TooLate(_time(voting + t.revealTime));
        Ballot storage ballot = _ballotOf(claimId, st, msg.sender);
        if (ballot.state == BallotState.DRAWN) revert ITasks.WrongReveal();
        if (ballot.state != BallotState.COMMITTED) revert ITasks.AlreadyVoted(msg.sender);
        if (valid && traces.length != t.samples) revert ITasks.WrongReveal();
        bytes32 tracesRoot = traces.length == 0 ? bytes32(0) : Merkle.root(traces);
        if (ballot.word != keccak256(abi.encode(claimId, msg.sender, valid, tracesRoot, salt))) {
            revert ITasks.WrongReveal();
        }
        ballot.state = valid ? BallotState.VALID : BallotState.INVALID;
        ballot.word = tracesRoot;
        Status storage entry = statuses[claimId];
        entry.revealed = st.revealed + 1;
        if (valid) entry.valid = st.valid + 1;
        emit ITasks.VoteRevealed(claimId, msg.sender, valid, traces);
    }

    function tally(Claim calldata claim) external {
        (bytes32 claimId, Status memory st, Terms memory t) = _inPhase(claim, Phase.SEEDED);
        Status storage entry = statuses[claimId];
        if (st.valid >= t.quorum) {
            entry.phase = Phase.ACCEPTED;
            entry.since = _now();
            JOBS.taskAccepted(claim.jobId, claim.round, claim.epoch);
            emit ITasks.Accepted(claimId, uint64(block.timestamp + t.challengeWindow));
            return;
        }
        uint256 deadline = uint256(st.since) + t.voteTime + t.revealTime;
        if (st.revealed < st.drawn && block.timestamp <= deadline) revert ITasks.NotDue(_time(deadline + 1));
        if (!_stands(st.phase, claim.jobId, claim.kind, claim.round, st.epoch)) revert ITasks.NotStanding();
        entry.phase = Phase.COMMITTED;
        entry.since = _now();
        entry.seedBlock = _newSeedBlock(t);
        (entry.drawn, entry.committed, entry.revealed, entry.valid) = (0, 0, 0, 0);
        emit ITasks.Redrawn(claimId, entry.seedBlock);
        _dismiss(claimId, st, t);
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
                emit ITasks.VoteMissed(claimId, ballot.verifier, taken);
            }
        }
        VAULT.burn(IVault.Bucket.FREE, _key(address(this)), penalties);
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
