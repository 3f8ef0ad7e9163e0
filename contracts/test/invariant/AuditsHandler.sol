// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {IAvailability} from "../../src/interfaces/IAvailability.sol";
import {IVault} from "../../src/interfaces/IVault.sol";
import {Claim, Kind, Phase} from "../../src/interfaces/Types.sol";
import {DisputesHandler} from "./DisputesHandler.sol";

/// @notice Demands for pieces of states, and faults that the client forces in its own jobs.
abstract contract AuditsHandler is DisputesHandler {
    struct Demanded {
        uint256 id;
        uint256 claim; // index
        bool known; // whether the pieces can be shown
        IAvailability.Asked asked;
    }

    struct ErrorForced {
        bytes32 commitment;
        bytes32 salt;
        bytes32 jobId;
        address solver;
        uint32 round;
        uint32 shard;
        uint256 forcedAt;
        uint256 deposit;
        bytes32 claimId; // 0 until revealed
    }

    Demanded[] internal demanded;
    ErrorForced[] internal planted;

    // Demands

    /// @dev Mostly for the state at the claim's end, of which all pieces are known.
    function demand(uint256 seed) external {
        uint256 index = _pick(seed);
        if (index == type(uint256).max) return;
        Claim memory claim = claims[index];
        bytes32[] memory ends = segmentEnds(claim);
        uint256 end = seed & 3072 == 0 ? (seed >> 16) % ends.length : ends.length - 1;
        bytes32[] memory proof = memberProof(ends, end);
        _ensureFree(whistle, CHALLENGE_BOND);
        IAvailability.StateLeaf[] memory places = _places(seed, slotsOf(claim.kind));
        vm.prank(whistle);
        uint256 id = availability.demand(claim, u32(end), ends[end], proof, places);
        if (firstGame[index] == 0) firstGame[index] = vm.getBlockNumber();
        demanded.push();
        Demanded storage d = demanded[demanded.length - 1];
        (d.id, d.claim, d.known) = (id, index, end == ends.length - 1);
        d.asked.claimId = idOf(claim);
        d.asked.stateRoot = ends[end];
        (d.asked.demander, d.asked.deadline) = (whistle, uint48(block.timestamp + 60));
        for (uint256 i; i < places.length; ++i) {
            d.asked.places.push(places[i]);
        }
        ++calls["demand"];
        if ((seed >> 24) % 4 == 0) _answer(demanded.length - 1, true); // at once
    }

    /// @dev One to four of them, some twice.
    function _places(uint256 seed, uint256 slots)
        private
        view
        returns (IAvailability.StateLeaf[] memory places)
    {
        places = new IAvailability.StateLeaf[](1 + (seed >> 32) % availability.CHUNKS());
        for (uint256 i; i < places.length; ++i) {
            places[i] = IAvailability.StateLeaf(u32((seed >> (40 + i)) % slots), u32(seed >> 48 & 3));
        }
    }

    function answer(uint256 seed) external {
        if (demanded.length > 0) _answer(seed % demanded.length, seed & 12_288 != 0);
    }

    /// @dev Shows the pieces if it may and can, or lets the time pass.
    function _answer(uint256 i, bool mayShow) internal {
        Demanded memory d = demanded[i];
        demanded[i] = demanded[demanded.length - 1];
        demanded.pop();
        bool late = block.timestamp > d.asked.deadline;
        if (mayShow && d.known && !late) return _supply(d);
        if (!late) vm.warp(d.asked.deadline + 1);
        Claim memory claim = claims[d.claim];
        bool stood = _liable(claim);
        Purse memory before = _purse(claim.claimant);
        availability.expire(d.id, d.asked, claim);
        _assertSplit(before, claim.claimant, stood && forcedErrors.forcer(idOf(claim)) != address(0));
        if (stood) _claimFell(d.claim);
        ++calls[stood ? "withhold" : "expire demand"];
    }

    function _supply(Demanded memory d) private {
        Claim memory claim = claims[d.claim];
        bool stood = _liable(claim);
        Purse memory before = _purse(claim.claimant);
        availability.supply(d.id, d.asked, claim, chunksOf(claim, d.asked.places));
        if (stood) _assertBondLost(before, claim.claimant);
        else _assertSplit(before, claim.claimant, false);
        ++calls["supply"];
    }

    // ForcedErrors

    /// @dev In what the holder of a shard commits next, or, rarely, with too small a deposit to be of use.
    function forceError(uint256 seed) external {
        (bool running, uint32 round,) = jobs.running(jobId);
        uint32 shard = u32(seed % SHARDS);
        (address solver,,) = tasks.holder(jobId, shard);
        if (!running || solver == address(0)) return;
        if (tasks.current(jobId, Kind.TASK, round, shard) != 0) ++round;
        bytes32 salt = newSalt();
        bytes32 commitment = keccak256(abi.encode(client, solver, jobId, round, shard, salt));
        uint256 deposit = seed & 960 == 0 ? 99 ether : 100 ether;
        _ensureFree(client, deposit);
        vm.prank(client);
        forcedErrors.commitError(commitment, deposit);
        planted.push(ErrorForced(commitment, salt, jobId, solver, round, shard, block.timestamp, deposit, 0));
        skip(1);
        ++calls["forceError"];
    }

    /// @dev The first forced error, from a random one on, that may be revealed. What is revealed is found, if it still can be.
    function reveal(uint256 seed) external {
        for (uint256 i; i < planted.length; ++i) {
            ErrorForced storage p = planted[(seed % planted.length + i) % planted.length];
            if (p.claimId != 0 || p.deposit < 100 ether || block.timestamp > p.forcedAt + FORCED_ERROR_TIME) {
                continue;
            }
            for (uint256 c; c < claims.length; ++c) {
                if (!_isForcedErrorOf(p, claims[c])) continue;
                p.claimId = idOf(claims[c]);
                vm.prank(client);
                forcedErrors.reveal(claims[c], p.salt);
                ++calls["reveal"];
                if (_mayFall(claims[c])) _challenge(c, seed >> 8);
                return;
            }
        }
    }

    function _isForcedErrorOf(ErrorForced storage p, Claim memory claim) private view returns (bool) {
        if (claim.kind != Kind.TASK || claim.jobId != p.jobId || claim.claimant != p.solver) return false;
        if (claim.round != p.round || claim.shard != p.shard || claim.committedAt <= p.forcedAt) {
            return false;
        }
        Phase phase = statusOf(claim).phase;
        if (phase == Phase.CONVICTED || phase == Phase.SETTLED) return false;
        return forcedErrors.forcer(idOf(claim)) == address(0);
    }

    /// @dev Waits for the forced error's end now and then; before it, nothing may come out.
    function finishForcedError(uint256 seed) external {
        if (planted.length == 0) return;
        uint256 i = seed % planted.length;
        ErrorForced memory p = planted[i];
        uint256 expiry = p.forcedAt + FORCED_ERROR_TIME;
        if (!_isKept(p) && block.timestamp <= expiry) {
            (bool early,) =
                address(forcedErrors).call(abi.encodeCall(forcedErrors.finish, (client, p.commitment)));
            assertFalse(early, "no end before its time");
            if ((seed >> 8) % 8 != 0) return;
            vm.warp(expiry + 1);
        }
        _finishForcedError(i);
    }

    /// @dev The deposit comes back if what it vouched for fell, or was ended by a rewind; otherwise it is burnt.
    function _finishForcedError(uint256 i) internal {
        ErrorForced memory p = planted[i];
        planted[i] = planted[planted.length - 1];
        planted.pop();
        bool kept = _isKept(p);
        (uint256 held, uint256 burnt) = (free(client), vault.burnt());
        forcedErrors.finish(client, p.commitment);
        assertEq(free(client) - held, kept ? p.deposit : 0, "a deposit is returned");
        assertEq(vault.burnt() - burnt, kept ? 0 : p.deposit, "or burnt");
        ++calls[kept ? "keep deposit" : "burn deposit"];
    }

    function _isKept(ErrorForced memory p) private view returns (bool) {
        if (p.claimId == 0) return false;
        Phase phase = tasks.status(p.claimId).phase;
        return phase == Phase.CONVICTED || phase == Phase.VOID;
    }

    /// @dev What the vault holds of the forced errors that have not ended.
    function _deposits() internal view returns (uint256 sum) {
        for (uint256 i; i < planted.length; ++i) {
            bytes32 id = keccak256(abi.encode(client, planted[i].commitment));
            sum += vault.balance(IVault.Bucket.BOND, id);
        }
    }
}
