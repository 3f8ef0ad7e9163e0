// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

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

/// @notice See ITasks; docs/protocol.md, section 4. The life of a claim that nobody disputes, from commit over votes
/// (Attestations) to settlement. Everything else of ITasks is done by TasksExtension on this contract's storage.
contract Tasks is Attestations, Batch {
    address public immutable EXTENSION;

    constructor(IVault vault, IStakes stakes, IJobs jobs, address extension) Claims(vault, stakes, jobs) {
        EXTENSION = extension;
    }

    /// @dev SAFETY: the code that is called is fixed at deployment and declares no storage but that of Claims.
    fallback() external {
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

    function commit(Claim calldata given, bytes32[] calldata roots) external returns (bytes32 claimId) {
        Claim memory claim = given;
        Terms memory t = TermsStore.loader()(address(JOBS), claim.jobId);
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
        claimId = _log(claim, roots, seedBlock);
        places[place] = claimId;
        _setNew(claimId, isTask ? Phase.COMMITTED : Phase.ACCEPTED, seedBlock, claim.attempt, claim.rewinds);
        if (!isTask) emit ITasks.Accepted(claimId, uint64(block.timestamp + t.challengeWindow));
        STAKES.lock(msg.sender, Role.SOLVER, t.solverStake, t.client);
    }

    function settle(Claim calldata claim) external {
        (bytes32 claimId, Status memory st, Terms memory t) = _inPhase()(claim, Phase.ACCEPTED);
        if (st.openGames > 0) revert ITasks.GamesOpen(st.openGames);
        (Kind kind, address claimant, uint128 price) = (claim.kind, claim.claimant, claim.price);
        (address[] memory each, uint256 paid) = _dueAtSettlement(claimId, st, claimant);
        uint256 end = _windowEnd(kind, st.since, paid - 1, t);
        if (block.timestamp <= end) revert ITasks.NotDue(_time(end + 1));
        _setPhase(claimId, Phase.SETTLED);
        emit ITasks.Settled(claimId, claimant, price);
        JOBS.claimSettled(claim.jobId, kind, claim.round, claim.rewinds, t.maxUnsettled);
        STAKES.release(each, t.solverStake, t.verifierStake, t.client);
        assembly ("memory-safe") {
            mstore(each, paid)
        }
        VAULT.payEach(IVault.Bucket.ESCROW, claim.jobId, each, price, t.verifierFee);
    }

    /// @dev emit ITasks.Committed(claimId, claim.jobId, msg.sender, claim, roots, seedBlock), with claimId =
    /// keccak256(abi.encode(claim)). A claim has 13 words of plain values, in memory as in the encoding.
    function _log(Claim memory claim, bytes32[] calldata roots, uint64 seedBlock)
        private
        returns (bytes32 claimId)
    {
        bytes32 topic = ITasks.Committed.selector;
        assembly ("memory-safe") {
            claimId := keccak256(claim, 0x1a0)
            let p := mload(0x40)
            let size := shl(5, roots.length)
            mcopy(p, claim, 0x1a0)
            mstore(add(p, 0x1a0), 0x1e0) // where the roots begin
            mstore(add(p, 0x1c0), seedBlock)
            mstore(add(p, 0x1e0), roots.length)
            calldatacopy(add(p, 0x200), roots.offset, size)
            log4(p, add(0x200, size), topic, claimId, mload(claim), caller())
        }
    }

    /// @dev Whose stake is freed: the claimant, then the valid voters, then the others. The first `paid` of them are paid.
    function _dueAtSettlement(bytes32 claimId, Status memory st, address claimant)
        private
        view
        returns (address[] memory each, uint256 paid)
    {
        uint256 n = st.drawn;
        each = new address[](n + 1);
        each[0] = claimant;
        paid = 1;
        uint256 last = n;
        uint256 numbers = draws[claimId];
        uint256 held = ~uint256(st.gone);
        uint256 valid = st.first & st.second & held;
        for (uint256 i; i < n; ++i) {
            if (i == SEATS_BESIDE) numbers = calledSeats[claimId];
            if (held >> i & 1 == 1) {
                each[valid >> i & 1 == 1 ? paid++ : last--] = accountOf[_first(numbers)];
            }
            numbers >>= 32;
        }
        // Close the gap between the two kinds.
        uint256 size = paid;
        while (last < n) each[size++] = each[++last];
        assembly ("memory-safe") {
            mstore(each, size)
        }
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
        if (block.timestamp <= _deadline(roundStart, since, t.taskTime)) return;
        (,, uint64 dueSince,) = JOBS.running(claim.jobId); // later, where something was in dispute
        uint64 deadline = _deadline(dueSince, since, t.taskTime);
        if (block.timestamp > deadline) revert ITasks.TooLate(deadline);
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
        return uint32(_status()(before).attempt) + 1;
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
