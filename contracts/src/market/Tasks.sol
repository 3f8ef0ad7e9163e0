// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {IClock} from "../interfaces/IClock.sol";
import {IJobs} from "../interfaces/IJobs.sol";
import {IStakes} from "../interfaces/IStakes.sol";
import {ITasks} from "../interfaces/ITasks.sol";
import {IVault} from "../interfaces/IVault.sol";
import {Claim, Kind, Phase, Role, Terms} from "../interfaces/Types.sol";
import {Merkle} from "../libraries/Merkle.sol";
import {TermsStore} from "../libraries/TermsStore.sol";
import {Attestations} from "./Attestations.sol";
import {Batch} from "./Batch.sol";
import {Claims} from "./Claims.sol";
import {SafeCast} from "@openzeppelin/contracts/utils/math/SafeCast.sol";

/// @notice See ITasks; docs/protocol.md, section 4. The life of a claim that nobody disputes, from commit over votes
/// (Attestations) to settlement. Everything else of ITasks is done by TasksExtension on this contract's storage.
contract Tasks is Attestations, Batch {
    using SafeCast for uint256;

    address public immutable EXTENSION;

    constructor(IVault vault, IStakes stakes, IJobs jobs, address extension, IClock clock)
        Claims(vault, stakes, jobs, clock)
    {
        EXTENSION = extension;
    }

    /// @dev What TasksExtension does on this contract's storage. SAFETY: the code that is called is fixed at deployment and
    /// declares no storage but that of Claims (test/market/Layouts.t.sol).
    fallback() external {
        if (!_isExtended(msg.sig)) revert ITasks.NoSuchFunction(msg.sig);
        address extension = EXTENSION;
        assembly ("memory-safe") {
            let p := mload(0x40)
            calldatacopy(p, 0, calldatasize())
            let done := delegatecall(gas(), extension, p, calldatasize(), 0, 0)
            returndatacopy(p, 0, returndatasize())
            if iszero(done) { revert(p, returndatasize()) }
            return(p, returndatasize())
        }
    }

    function _isExtended(bytes4 selector) private pure returns (bool) {
        return selector == ITasks.takeShard.selector || selector == ITasks.release.selector
            || selector == ITasks.expire.selector || selector == ITasks.void.selector
            || selector == ITasks.freeSeats.selector || selector == ITasks.gameOpened.selector
            || selector == ITasks.gameClosed.selector || selector == ITasks.convict.selector
            || selector == ITasks.voteGameOpened.selector || selector == ITasks.voteGameClosed.selector
            || selector == ITasks.convictVote.selector || selector == ITasks.payReward.selector
            || selector == ITasks.payUnsettled.selector || selector == ITasks.reward.selector
            || selector == ITasks.status.selector || selector == ITasks.votes.selector
            || selector == ITasks.current.selector || selector == ITasks.holder.selector
            || selector == ITasks.price.selector;
    }

    function commit(Claim calldata given, bytes32[] calldata roots) external returns (bytes32 claimId) {
        Claim memory claim = given;
        Terms memory t = TermsStore.load(address(JOBS), claim.jobId);
        claim.segmentsRoot =
            _segmentsRoot(given, claim.kind == Kind.TASK ? t.segments : t.outerSegments, roots);
        claim.claimant = msg.sender;
        claim.committedAt = uint64(block.timestamp);
        bytes32 place = _place(claim.jobId, claim.kind, claim.round, claim.shard);
        claim.attempt = _attempt(claim, place);
        bool isTask = claim.kind == Kind.TASK;
        if (isTask) _enterTask(claim, t);
        else _enterOuter(claim, t);
        // What it was computed from may have been rewound since, and one wrong slot convicts.
        if (given.rewinds != claim.rewinds) revert ITasks.RewoundSince(claim.rewinds);
        uint40 seedBlock = isTask ? _newSeedBlock(t) : 0;
        claimId = keccak256(abi.encode(claim));
        emit ITasks.Committed(claimId, claim.jobId, msg.sender, claim, roots, seedBlock);
        places[place] = claimId;
        Status storage st = statuses[claimId];
        (st.phase, st.seedBlock, st.since) = (isTask ? Phase.COMMITTED : Phase.ACCEPTED, seedBlock, _now());
        if (claim.attempt > 0) st.attempt = uint256(claim.attempt).toUint16();
        if (claim.rewinds > 0) st.rewinds = uint256(claim.rewinds).toUint24();
        if (!isTask) emit ITasks.Accepted(claimId, uint64(block.timestamp + t.challengeWindow));
        STAKES.lock(msg.sender, Role.SOLVER, t.solverStake, t.client);
    }

    function settle(Claim calldata claim) external {
        (bytes32 claimId, Status memory st, Terms memory t) = _inPhase(claim, Phase.ACCEPTED);
        if (st.openGames > 0) revert ITasks.GamesOpen(st.openGames);
        uint256 valid = _validSeats(st);
        address[] memory payees = _payees(claimId, st, claim.claimant, valid);
        uint256 end = _windowEnd(claim.kind, st.since, payees.length - 1, t);
        if (block.timestamp <= end) revert ITasks.NotDue((end + 1).toUint64());
        statuses[claimId].phase = Phase.SETTLED;
        emit ITasks.Settled(claimId, claim.claimant, claim.price);
        JOBS.claimSettled(claim.jobId, claim.kind, claim.round, claim.rewinds, t.maxUnsettled);
        STAKES.release(payees, t.solverStake, t.verifierStake, t.client);
        VAULT.payEach(IVault.Bucket.ESCROW, claim.jobId, payees, claim.price, t.verifierFee);
        uint256 wrong = _held(st) & ~valid; // what they called invalid was not
        if (wrong != 0) _fine(claimId, _accounts(claimId, st, wrong), t);
    }

    function _enterTask(Claim memory claim, Terms memory t) private {
        Shard storage shard = shardsOf[claim.jobId][claim.shard];
        (address solver, uint64 since) = (shard.solver, shard.since);
        if (solver != msg.sender) revert ITasks.NotHolder(solver);
        if (claim.round == 0 && claim.inputRoot != t.genesisRoot) {
            revert ITasks.WrongInput(t.genesisRoot, claim.inputRoot);
        }
        claim.price = shard.price;
        uint64 roundStart;
        (claim.rewinds, roundStart) =
            JOBS.taskCommitted(claim.jobId, claim.round, _worth(Kind.TASK, claim.price, t), t.maxUnsettled);
        if (block.timestamp <= uint256(roundStart) + t.taskTime) return;
        // Later: where something was in dispute, or for who has the shard since then; not once the round can be closed.
        (bool running,, uint64 dueSince,) = JOBS.running(claim.jobId);
        if (!running) revert ITasks.TooLate(roundStart + t.taskTime);
        uint64 deadline = _deadline(dueSince, since, t.taskTime);
        if (_passed(deadline)) revert ITasks.TooLate(deadline);
    }

    function _enterOuter(Claim memory claim, Terms memory t) private {
        if (claim.shard >= t.slices) revert ITasks.NoSuchShard(claim.shard);
        claim.price = t.outerFee;
        uint256 turn = (uint256(claim.round) + claim.shard) % t.shards;
        // A shard's number.
        // forge-lint: disable-next-line(unsafe-typecast)
        address holder_ = shardsOf[claim.jobId][uint32(turn)].solver;
        claim.rewinds = JOBS.outerCommitted(claim.jobId, claim.round, holder_ == msg.sender);
    }

    /// @dev A place can be claimed again once its last claim has fallen or has been overtaken.
    function _attempt(Claim memory claim, bytes32 place) private view returns (uint32) {
        bytes32 before = places[place];
        if (before == 0) return 0;
        bytes32 standing = _current(claim.jobId, claim.kind, claim.round, claim.shard);
        if (standing != 0) revert ITasks.PlaceTaken(standing);
        return uint32(statuses[before].attempt) + 1;
    }

    /// @dev The root over the states at segment ends, which lead from the claim's input to its output.
    function _segmentsRoot(Claim calldata claim, uint256 segments, bytes32[] calldata roots)
        private
        view
        returns (bytes32)
    {
        if (roots.length != segments + 1) revert ITasks.BadSegments();
        if (roots[0] != claim.inputRoot || roots[segments] != claim.outputRoot) revert ITasks.BadSegments();
        return Merkle.root(roots);
    }
}
