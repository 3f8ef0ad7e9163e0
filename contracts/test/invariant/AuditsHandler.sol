// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {IAvailability} from "../../src/interfaces/IAvailability.sol";
import {IVault} from "../../src/interfaces/IVault.sol";
import {Claim} from "../../src/interfaces/Types.sol";
import {DisputesHandler} from "./DisputesHandler.sol";

/// @notice Demands for pieces of states.
abstract contract AuditsHandler is DisputesHandler {
    struct Demanded {
        uint256 id;
        uint256 claim; // index
        bool known; // whether the pieces can be shown
        IAvailability.Asked asked;
    }

    Demanded[] internal demanded;

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
        bool stood = _live(claim);
        Purse memory before = _purse(claim.claimant);
        availability.expire(d.id, d.asked, claim);
        _assertSplit(before, claim.claimant, 0);
        if (stood) _claimFell(d.claim);
        ++calls[stood ? "withhold" : "expire demand"];
    }

    function _supply(Demanded memory d) private {
        Claim memory claim = claims[d.claim];
        bool stood = _live(claim);
        Purse memory before = _purse(claim.claimant);
        availability.supply(d.id, d.asked, claim, chunksOf(claim, d.asked.places));
        if (stood) _assertBondLost(before, claim.claimant);
        else _assertSplit(before, claim.claimant, 0);
        ++calls["supply"];
    }
}
