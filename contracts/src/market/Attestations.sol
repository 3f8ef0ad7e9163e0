// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.28;

import {ITasks, IVault} from "../interfaces/IMarket.sol";
import {Claim, Phase, Role, Terms} from "../interfaces/Types.sol";
import {Headers} from "../libraries/Headers.sol";
import {Merkle} from "../libraries/Merkle.sol";
import {Claims} from "./Claims.sol";
import {Blockhash} from "@openzeppelin/contracts/utils/Blockhash.sol";

/// @title Seeds, draws and votes (docs/protocol.md 4.5 to 4.7)
abstract contract Attestations is Claims {
    /// @dev Blocks for which a seed has to come with its block's header: half of what the BLOCKHASH opcode reaches, so that
    /// a seed without one can be recorded on a chain that keeps no longer history.
    uint64 private constant SEED_PATIENCE = 128;

    function recordSeed(Claim calldata claim, bytes calldata header) external {
        (bytes32 claimId, Status memory st, Terms memory t) = _inPhase()(claim, Phase.COMMITTED);
        if (block.number <= st.seedBlock) revert ITasks.SeedUnavailable(st.seedBlock);
        ++st.draws;
        bytes32 blockHash = Blockhash.blockHash(st.seedBlock);
        if (blockHash == 0) {
            st.seedBlock = _newSeedBlock(t);
            _setStatus(claimId, st);
            emit ITasks.Redrawn(claimId, st.seedBlock);
            return;
        }
        bytes32 seed = sha256(abi.encodePacked(_randomness(st.seedBlock, blockHash, header), claimId));
        address[] memory drawn = _drawOthers(seed, t.verifiers, claim.claimant);
        seeds[claimId] = seed;
        // At most t.verifiers, which is at most 16.
        // forge-lint: disable-next-line(unsafe-typecast)
        (st.phase, st.since, st.drawn) = (Phase.SEEDED, _now(), uint8(drawn.length));
        _setStatus(claimId, st);
        for (uint256 i; i < drawn.length; ++i) {
            ballots[claimId][_ballot(st.draws, i)].verifier = drawn[i];
        }
        emit ITasks.SeedRecorded(claimId, seed, drawn);
    }

    /// @dev RANDAO's value, of which a proposer can only leave its own part out. Whoever builds a block can try contents for
    /// its hash, so that serves only where nobody has been able to bring a header for SEED_PATIENCE blocks.
    function _randomness(uint64 seedBlock, bytes32 blockHash, bytes calldata header)
        private
        view
        returns (bytes32 value)
    {
        if (header.length == 0) {
            if (block.number <= seedBlock + SEED_PATIENCE) {
                revert ITasks.HeaderAwaited(seedBlock + SEED_PATIENCE);
            }
            return blockHash;
        }
        if (keccak256(header) != blockHash) revert ITasks.WrongHeader(seedBlock);
        value = Headers.randao(header);
        if (value == 0) revert ITasks.NoRandao(seedBlock);
    }

    function commitVote(Claim calldata claim, bytes32 commitment) external {
        (bytes32 claimId, Status memory st, Terms memory t) = _inPhase()(claim, Phase.SEEDED);
        uint256 deadline = uint256(st.since) + t.voteTime;
        if (block.timestamp > deadline) revert ITasks.TooLate(_time(deadline));
        if (commitment == 0) revert ITasks.WrongReveal();
        (uint256 i, Ballot storage ballot) = _ordinal(claimId, st, msg.sender);
        if (_cast(st, i)) revert ITasks.AlreadyVoted(msg.sender);
        ballot.word = commitment;
        st.first |= _bit(i);
        _setStatus(claimId, st);
        STAKES.lock(msg.sender, Role.VERIFIER, t.verifierStake);
    }

    function revealVote(Claim calldata claim, bool valid, bytes32[] calldata traces, bytes32 salt) external {
        (bytes32 claimId, Status memory st, Terms memory t) = _inPhase()(claim, Phase.SEEDED);
        uint256 voting = uint256(st.since) + t.voteTime;
        if (block.timestamp <= voting && _castCount(st) < st.drawn) revert ITasks.NotDue(_time(voting + 1));
        if (block.timestamp > voting + t.revealTime) revert ITasks.TooLate(_time(voting + t.revealTime));
        (uint256 i, Ballot storage ballot) = _ordinal(claimId, st, msg.sender);
        if (!_cast(st, i)) revert ITasks.WrongReveal();
        if (_revealed(st, i)) revert ITasks.AlreadyVoted(msg.sender);
        if (valid && traces.length != t.samples) revert ITasks.WrongReveal();
        bytes32 tracesRoot = traces.length == 0 ? bytes32(0) : Merkle.root(traces);
        if (ballot.word != keccak256(abi.encode(claimId, msg.sender, valid, tracesRoot, salt))) {
            revert ITasks.WrongReveal();
        }
        ballot.word = tracesRoot;
        st.second |= _bit(i);
        if (!valid) st.first &= ~_bit(i);
        _setStatus(claimId, st);
        emit ITasks.VoteRevealed(claimId, msg.sender, valid, traces);
    }

    function tally(Claim calldata claim) external {
        (bytes32 claimId, Status memory st, Terms memory t) = _inPhase()(claim, Phase.SEEDED);
        if (_validCount(st) >= t.quorum) {
            (st.phase, st.since) = (Phase.ACCEPTED, _now());
            _setStatus(claimId, st);
            JOBS.taskAccepted(claim.jobId, claim.round, claim.rewinds, claim.price);
            emit ITasks.Accepted(claimId, uint64(block.timestamp + t.challengeWindow));
            return;
        }
        uint256 deadline = uint256(st.since) + t.voteTime + t.revealTime;
        if (_revealedCount(st) < st.drawn && block.timestamp <= deadline) {
            revert ITasks.NotDue(_time(deadline + 1));
        }
        if (!_stands(st.phase, claim.jobId, claim.kind, claim.round, st.rewinds)) {
            revert ITasks.NotStanding();
        }
        _dismiss(claimId, st, t);
        (st.phase, st.since, st.seedBlock) = (Phase.COMMITTED, _now(), _newSeedBlock(t));
        (st.drawn, st.first, st.second) = (0, 0, 0);
        _setStatus(claimId, st);
        emit ITasks.Redrawn(claimId, st.seedBlock);
    }

    /// @dev End of a draw that did not accept: whoever was drawn and did not reveal pays, and so does whoever called the claim
    /// invalid while no game on it is open; the others are free again.
    function _dismiss(bytes32 claimId, Status memory st, Terms memory t) private {
        uint256 penalties;
        for (uint256 i; i < st.drawn; ++i) {
            Ballot storage ballot = ballots[claimId][_ballot(st.draws, i)];
            (address verifier, BallotState state) = (ballot.verifier, ballot.state);
            if (state == BallotState.DONE) continue;
            if (ballot.games > 0) {
                ballot.state = BallotState.HELD;
                continue;
            }
            if (_cast(st, i)) STAKES.unlock(verifier, Role.VERIFIER, t.verifierStake);
            if (_revealed(st, i) && (_valid(st, i) || st.openGames > 0)) continue;
            uint256 taken = STAKES.slash(verifier, Role.VERIFIER, t.missPenalty);
            penalties += taken;
            emit ITasks.VoteFined(claimId, verifier, taken);
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
