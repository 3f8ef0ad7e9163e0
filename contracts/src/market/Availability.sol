// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {Chunks} from "../dispute/Chunks.sol";
import {IAvailability} from "../interfaces/IAvailability.sol";
import {IClock} from "../interfaces/IClock.sol";
import {ITasks} from "../interfaces/ITasks.sol";
import {IVault} from "../interfaces/IVault.sol";
import {Accused, Claim, Kind, Loop, ProgramRef, Terms} from "../interfaces/Types.sol";
import {accountKey} from "../libraries/AccountKey.sol";
import {Loops} from "../libraries/Loops.sol";
import {Merkle} from "../libraries/Merkle.sol";
import {TermsStore} from "../libraries/TermsStore.sol";
import {Deadlines} from "./Deadlines.sol";

/// @notice See IAvailability. Does not guarantee that a state is whole: what nobody names need not be shown.
contract Availability is IAvailability, Deadlines {
    /// @notice The most leaves that a demand names.
    uint256 public constant CHUNKS = 4;

    IVault public immutable VAULT;
    address public immutable JOBS;
    ITasks public immutable TASKS;

    uint256 public demands;
    mapping(uint256 demandId => bytes32 asked) private open; // keccak256 of what is asked

    constructor(IVault vault, address jobs, ITasks tasks, IClock clock) Deadlines(clock) {
        VAULT = vault;
        JOBS = jobs;
        TASKS = tasks;
    }

    function demand(
        Claim calldata claim,
        uint32 segmentEnd,
        bytes32 stateRoot,
        bytes32[] calldata proof,
        StateLeaf[] calldata places
    ) external returns (uint256 demandId) {
        bytes32 claimId = TASKS.gameOpened(claim, false);
        Terms memory t = TermsStore.load(JOBS, claim.jobId);
        uint256 ends = uint256(claim.kind == Kind.TASK ? t.segments : t.outerSegments) + 1;
        if (segmentEnd >= ends) revert NoSuchSegment(segmentEnd);
        if (!Merkle.verify(claim.segmentsRoot, stateRoot, segmentEnd, ends, proof)) revert WrongState();
        if (places.length == 0 || places.length > CHUNKS) revert WrongPlaces(CHUNKS, places.length);
        uint256 slots = claim.kind == Kind.TASK ? t.slots : t.outerSlots;
        for (uint256 i; i < places.length; ++i) {
            if (places[i].slot >= slots) revert NoSuchSlot(places[i].slot);
        }
        demandId = ++demands;
        // A time fits 48 bits.
        // forge-lint: disable-next-line(unsafe-typecast)
        Asked memory asked =
            Asked(claimId, stateRoot, msg.sender, uint48(block.timestamp + t.moveTime), places);
        open[demandId] = keccak256(abi.encode(asked));
        emit Demanded(demandId, claimId, msg.sender, segmentEnd, stateRoot, asked.deadline, places);
        VAULT.move(
            IVault.Bucket.FREE, accountKey(msg.sender), IVault.Bucket.BOND, _bond(demandId), t.challengeBond
        );
    }

    function supply(uint256 demandId, Asked calldata asked, Claim calldata claim, Chunk[] calldata chunks)
        external
    {
        _take(demandId, asked, claim);
        if (_passed(asked.deadline)) revert TooLate(asked.deadline);
        if (chunks.length != asked.places.length) revert WrongCount(asked.places.length, chunks.length);
        Terms memory t = TermsStore.load(JOBS, claim.jobId);
        // All programs of a kind of claim have the same slots: the first one's encodings say how long each is.
        Loop memory first = TermsStore.loops(JOBS, claim.jobId, claim.kind)[0];
        ProgramRef memory program = Loops.programOf(first, claim.kind, t);
        for (uint256 i; i < chunks.length; ++i) {
            (, uint256 leaves) = Chunks.locate(asked.stateRoot, program, asked.places[i], chunks[i]);
            if (leaves == 0) revert BadProof(i);
        }
        bool stood = _close(asked, claim, false);
        bytes32 key = _bond(demandId);
        uint256 paid = VAULT.balance(IVault.Bucket.BOND, key);
        uint256 burnt = stood ? paid - paid / 2 : 0;
        paid -= burnt;
        emit Supplied(demandId, asked.claimId, burnt, paid);
        VAULT.burn(IVault.Bucket.BOND, key, burnt);
        address receiver = stood ? claim.claimant : asked.demander;
        VAULT.move(IVault.Bucket.BOND, key, IVault.Bucket.FREE, accountKey(receiver), paid);
    }

    function expire(uint256 demandId, Asked calldata asked, Claim calldata claim) external {
        _take(demandId, asked, claim);
        if (!_passed(asked.deadline)) revert NotDue(asked.deadline + 1);
        bool stood = _close(asked, claim, true);
        emit Withheld(demandId, asked.claimId, stood);
        bytes32 key = _bond(demandId);
        uint256 bond = VAULT.balance(IVault.Bucket.BOND, key);
        VAULT.move(IVault.Bucket.BOND, key, IVault.Bucket.FREE, accountKey(asked.demander), bond);
    }

    /// @dev Takes the demand off the books; a revert later puts it back.
    function _take(uint256 demandId, Asked calldata asked, Claim calldata claim) private {
        bytes32 made = open[demandId];
        if (made == 0) revert NoSuchDemand(demandId);
        if (keccak256(abi.encode(asked)) != made) revert WrongDemand(made);
        if (keccak256(abi.encode(claim)) != asked.claimId) revert ITasks.WrongClaim(asked.claimId);
        delete open[demandId];
    }

    function _close(Asked calldata asked, Claim calldata claim, bool withheld) private returns (bool stood) {
        Accused memory accused = Accused(
            claim.jobId, claim.claimant, claim.kind, claim.round, claim.shard, claim.price, claim.rewinds
        );
        (stood,) = TASKS.gameClosed(asked.claimId, accused, asked.demander, false, withheld);
    }

    /// @dev Apart from the keys of games' bonds, which are small numbers.
    function _bond(uint256 demandId) private pure returns (bytes32) {
        return bytes32(demandId | (1 << 255));
    }
}
