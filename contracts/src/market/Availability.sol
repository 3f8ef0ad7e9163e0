// SPDX-License-Identifier: MIT
pragma solidity ^0.8.28;

import {Nodes} from "../arbiter/Nodes.sol";
import {Openings} from "../dispute/Openings.sol";
import {IAvailability} from "../interfaces/IAvailability.sol";
import {ITasks, IVault} from "../interfaces/IMarket.sol";
import {Accused, Claim, Finding, Kind, ProgramRef, Terms, WITHHELD} from "../interfaces/Types.sol";
import {Merkle} from "../libraries/Merkle.sol";
import {TermsStore} from "../libraries/TermsStore.sol";
import {Blockhash} from "@openzeppelin/contracts/utils/Blockhash.sol";

/// @notice See IAvailability. Does not guarantee that a state is whole: a demand finds a hidden leaf with the probability that it
/// is drawn, and can be repeated. A claimant acts while the block-hash history (EIP-2935) still holds the seed block.
contract Availability is IAvailability {
    /// @dev Three slots.
    struct Demand {
        bytes32 claimId;
        bytes32 stateRoot;
        address demander;
        uint48 seedBlock;
        uint48 deadline; // seconds
    }

    /// @notice Leaves that each demand draws.
    uint256 public constant CHUNKS = 4;

    IVault public immutable VAULT;
    address public immutable JOBS;
    ITasks public immutable TASKS;

    uint256 public demands;
    mapping(uint256 demandId => Demand) private open;

    constructor(IVault vault, address jobs, ITasks tasks) {
        VAULT = vault;
        JOBS = jobs;
        TASKS = tasks;
    }

    function demand(Claim calldata claim, uint32 segmentEnd, bytes32 stateRoot, bytes32[] calldata proof)
        external
        returns (uint256 demandId)
    {
        (bytes32 claimId,) = TASKS.gameOpened(claim, block.number);
        Terms memory t = _terms(claim.jobId);
        uint256 ends = claim.kind == Kind.TASK ? t.stepsPerRound / t.segmentSteps + 1 : 2;
        if (segmentEnd >= ends) revert NoSuchSegment(segmentEnd);
        if (!Merkle.verify(claim.segmentsRoot, stateRoot, segmentEnd, ends, proof)) revert WrongState();
        demandId = ++demands;
        // A block number and a time fit 48 bits.
        // forge-lint: disable-next-item(unsafe-typecast)
        Demand memory made = Demand(
            claimId, stateRoot, msg.sender, uint48(block.number + 1), uint48(block.timestamp + t.moveTime)
        );
        open[demandId] = made;
        emit Demanded(demandId, claimId, msg.sender, segmentEnd, stateRoot, made.seedBlock, made.deadline);
        VAULT.move(IVault.Bucket.FREE, _key(msg.sender), IVault.Bucket.BOND, _bond(demandId), t.challengeBond);
    }

    function supply(uint256 demandId, Claim calldata claim, Chunk[] calldata chunks) external {
        Demand memory made = _taken(demandId, claim);
        if (block.timestamp > made.deadline) revert TooLate(made.deadline);
        if (block.number <= made.seedBlock) revert NotDrawnYet(made.seedBlock);
        bytes32 blockHash = Blockhash.blockHash(made.seedBlock);
        if (blockHash == 0) revert SeedGone(made.seedBlock);
        if (chunks.length != CHUNKS) revert WrongCount(CHUNKS, chunks.length);
        Terms memory t = _terms(claim.jobId);
        ProgramRef memory program = claim.kind == Kind.TASK ? t.inner : t.outer;
        for (uint256 i; i < CHUNKS; ++i) {
            (uint256 slot, uint64 leaf) = drawn(blockHash, demandId, i, program.slots);
            if (!_shown(made.stateRoot, program, slot, leaf, chunks[i])) revert BadProof(i);
        }
        bool stood = _close(made, claim, false);
        bytes32 key = _bond(demandId);
        uint256 paid = VAULT.balance(IVault.Bucket.BOND, key);
        uint256 burnt = stood ? paid - paid / 2 : 0;
        paid -= burnt;
        emit Supplied(demandId, made.claimId, burnt, paid);
        VAULT.burn(IVault.Bucket.BOND, key, burnt);
        address receiver = stood ? claim.claimant : made.demander;
        VAULT.move(IVault.Bucket.BOND, key, IVault.Bucket.FREE, _key(receiver), paid);
    }

    function expire(uint256 demandId, Claim calldata claim) external {
        Demand memory made = _taken(demandId, claim);
        if (block.timestamp <= made.deadline) revert NotDue(made.deadline + 1);
        bool stood = _close(made, claim, true);
        emit Withheld(demandId, made.claimId, stood);
        bytes32 key = _bond(demandId);
        uint256 bond = VAULT.balance(IVault.Bucket.BOND, key);
        VAULT.move(IVault.Bucket.BOND, key, IVault.Bucket.FREE, _key(made.demander), bond);
    }

    function drawn(bytes32 blockHash, uint256 demandId, uint256 chunk, uint256 slots)
        public
        pure
        returns (uint256 slot, uint64 leaf)
    {
        bytes32 hash = sha256(abi.encodePacked("assay/chunk/1", blockHash, demandId, chunk));
        // The first two words of eight bytes.
        // forge-lint: disable-next-item(unsafe-typecast)
        (slot, leaf) = (uint256(uint64(bytes8(hash))) % slots, uint64(bytes8(hash << 64)));
    }

    /// @dev Takes the demand off the books; a revert later puts it back.
    function _taken(uint256 demandId, Claim calldata claim) private returns (Demand memory made) {
        made = open[demandId];
        if (made.demander == address(0)) revert NoSuchDemand(demandId);
        if (keccak256(abi.encode(claim)) != made.claimId) revert ITasks.WrongClaim(made.claimId);
        delete open[demandId];
    }

    function _close(Demand memory made, Claim calldata claim, bool withheld) private returns (bool stood) {
        Accused memory accused = Accused(
            claim.jobId, claim.claimant, claim.kind, claim.round, claim.shard, claim.price, claim.epoch
        );
        return TASKS.gameClosed(made.claimId, accused, Finding(made.demander, WITHHELD, false), withheld);
    }

    /// @dev Whether the chunk is the drawn leaf of the slot, `draw` modulo its leaves, below the state's root.
    function _shown(
        bytes32 stateRoot,
        ProgramRef memory program,
        uint256 slot,
        uint64 draw,
        Chunk calldata chunk
    ) private view returns (bool) {
        uint256 encodings = 1 + uint256(program.nodes) + program.slots;
        bytes32 node = Openings.hash(0, chunk.node);
        if (!Merkle.verify(program.root, node, 1 + slot, encodings, chunk.nodeProof)) return false;
        uint256 size = Nodes.sizeOf(Nodes.decode(chunk.node));
        uint256 leaves = Openings.leaves(size);
        uint256 leaf = draw % leaves;
        if (chunk.data.length != Openings.leafSize(size, leaf)) return false;
        bytes32 root = _fold(Openings.hash(0, chunk.data), leaf, leaves, chunk.leafProof);
        return root != 0 && Merkle.verify(stateRoot, root, slot, program.slots, chunk.slotProof);
    }

    /// @dev Root that the leaf and its siblings give; 0 if there are too many or too few.
    function _fold(bytes32 digest, uint256 index, uint256 count, bytes32[] calldata proof)
        private
        view
        returns (bytes32)
    {
        return proof.length == Merkle.depth(count) ? Merkle.fold(digest, index, proof) : bytes32(0);
    }

    function _terms(bytes32 jobId) private view returns (Terms memory t) {
        uint256 found = TermsStore.read(JOBS, jobId);
        if (found == 0) revert ITasks.NoSuchJob(jobId);
        assembly ("memory-safe") {
            t := found
        }
    }

    /// @dev Apart from the keys of games' bonds, which are small numbers.
    function _bond(uint256 demandId) private pure returns (bytes32) {
        return bytes32(demandId | (1 << 255));
    }

    function _key(address account) private pure returns (bytes32) {
        return bytes32(uint256(uint160(account)));
    }
}
