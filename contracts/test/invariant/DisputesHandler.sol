// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {IVault} from "../../src/interfaces/IVault.sol";
import {Claim, ClaimStatus, Found, Kind, Phase, Vote} from "../../src/interfaces/Types.sol";
import {Sampling} from "../../src/libraries/Sampling.sol";
import {MarketHandler} from "./MarketHandler.sol";

/// @notice Games on claims and votes, and what becomes of the money when they end.
abstract contract DisputesHandler is MarketHandler {
    uint256 internal constant CHALLENGE_BOND = 30 ether;

    /// @dev What an end of a game or of a demand may change. `challenger`: free, with what waits for other challengers.
    struct Purse {
        uint256 staked; // at work or unbonding
        uint256 burnt;
        uint256 challenger;
        uint256 compensation;
        uint256 defender;
    }

    function challenge(uint256 seed) external {
        uint256 index = _pick(seed);
        if (index != type(uint256).max) _challenge(index, seed);
    }

    function _challenge(uint256 index, uint256 seed) internal {
        Claim memory claim = claims[index];
        uint32 segment = claim.kind == Kind.TASK ? u32(seed % SEGMENTS) : 0;
        // Two findings, announced before either is opened, or one.
        uint256 announced = vm.getBlockNumber();
        bytes32 second = announceAs(whistle, idOf(claim), segment, address(0));
        bytes32 salt = announceAs(whistle, idOf(claim), segment, address(0));
        _open(index, segment, salt, announced + 1);
        if (seed & 1024 != 0) _open(index, segment, second, announced);
        ++calls["challenge"];
    }

    function _open(uint256 index, uint32 segment, bytes32 salt, uint256 announced) private {
        Claim memory claim = claims[index];
        bytes32[] memory ends = segmentEnds(claim);
        bytes32[] memory from = memberProof(ends, segment);
        bytes32[] memory to = memberProof(ends, segment + 1);
        _ensureFree(whistle, CHALLENGE_BOND);
        vm.prank(whistle);
        uint256 id = challenges.open(claim, segment, ends[segment], from, ends[segment + 1], to, TRUTH, salt);
        Found memory found = Found(whistle, segment, u64(announced), u64(vm.getBlockNumber()), TRUTH, false);
        open.push(OpenGame(id, index, address(0), 0, found));
        ++games;
    }

    function challengeVote(uint256 seed) external {
        uint256 index = _pick(seed);
        for (uint256 i; i < claims.length && seed & 1024 == 0; ++i) {
            if (_stands(claims[i]) && statusOf(claims[i]).phase == Phase.SEEDED) index = i; // whose draw may yet fail
        }
        for (uint256 i; i < claims.length && seed & 6144 == 0; ++i) {
            if (_votesMayFall(claims[i])) index = i;
        }
        if (index == type(uint256).max) return;
        Claim memory claim = claims[index];
        bytes32 claimId = idOf(claim);
        Vote[] memory cast = tasks.votes(idOf(claim));
        if (cast.length == 0) return;
        Vote memory vote = cast[seed % cast.length];
        if (!vote.shown || !vote.valid) return;
        _ensureFree(whistle, CHALLENGE_BOND);
        Found memory none;
        open.push(
            OpenGame(
                openVoteAs(whistle, claim, vote.verifier, u32(seed % 2)), index, vote.verifier, claimId, none
            )
        );
        ++games;
        ++voteGames[claimId][vote.verifier];
        ++calls["challenge vote"];
    }

    /// @dev The challenger wins one game in four, lest nearly every claim fall.
    function decide(uint256 seed) external {
        if (open.length == 0) return;
        OpenGame memory game = open[seed % open.length];
        open[seed % open.length] = open[open.length - 1];
        open.pop();
        Claim memory claim = claims[game.claim];
        bool won = (seed >> 16) % 4 == 0;
        bool fallen = statusOf(claim).phase == Phase.CONVICTED;
        bool live = game.verifier == address(0) ? _live(claim) : !convictedVote[game.claimId][game.verifier];
        address defender = game.verifier == address(0) ? claim.claimant : game.verifier;
        Purse memory before = _purse(defender);
        court.decide(game.id, won);
        if (live && !won) _assertBondLost(before, defender);
        else _assertSplit(before, defender, live && fallen ? FEE : 0);
        if (game.verifier == address(0)) {
            if (live && won) _claimFell(game.claim);
            game.found.won = won;
            if (_waits(claim)) kept[game.claim].push(game.found);
        } else {
            _voteGameOver(game.claimId, game.verifier, live && won);
        }
        _notAgain(game.id);
        ++calls["decide"];
    }

    /// @dev The bond came back, and what left the stakes is burnt, set aside, or the challenger's. The larger half is burnt.
    /// `fee`: of a vote on a fallen claim, which was kept for it.
    function _assertSplit(Purse memory before, address defender, uint256 fee) internal view {
        Purse memory later = _purse(defender);
        uint256 slashed = before.staked - later.staked;
        uint256 burnt = later.burnt - before.burnt;
        uint256 pool = later.challenger - before.challenger - CHALLENGE_BOND;
        pool += later.compensation - before.compensation;
        assertEq(burnt, slashed - slashed / 2 + fee, "the larger half is burnt");
        assertEq(slashed, burnt + pool, "a slash splits exactly");
    }

    /// @dev Half is burnt, half is the defender's, nothing else moves.
    function _assertBondLost(Purse memory before, address defender) internal view {
        Purse memory later = _purse(defender);
        assertEq(later.burnt - before.burnt, CHALLENGE_BOND / 2, "half of the bond is burnt");
        assertEq(later.challenger, before.challenger, "the rest is not the challenger's");
        assertEq(later.defender - before.defender, CHALLENGE_BOND / 2, "the rest is the defender's");
        assertEq(later.staked, before.staked, "no stake is taken");
    }

    function _notAgain(uint256 gameId) private {
        (bool again,) = address(court).call(abi.encodeCall(court.decide, (gameId, true)));
        assertFalse(again, "a game is decided, and its bond paid out, once");
    }

    /// @dev The reward waits with the module if, and only if, another finding is in dispute on the claim.
    function _claimFell(uint256 index) internal {
        uint256 left = free(address(tasks)) - rewardsDue - feesDue();
        bool waits = _waits(claims[index]);
        assertTrue(waits == (_others(index) > 0), "a reward waits for other findings");
        (uint256 reward,) = tasks.reward(idOf(claims[index]));
        assertEq(left, reward, "what stays with the module is the reward");
        rewardsDue += left;
        if (waits) waiting.push(index);
        ++calls["convict"];
    }

    /// @dev Pays a reward whose games are over, where all of them said the same and one was the winner's, or where the job goes on
    /// without the claim.
    function share(uint256 seed) external {
        for (uint256 i; i < waiting.length; ++i) {
            uint256 which = (seed % waiting.length + i) % waiting.length;
            uint256 index = waiting[which];
            bytes32 claimId = idOf(claims[index]);
            if (_others(index) > 0) continue;
            (uint256 reward,) = tasks.reward(claimId);
            uint256 before = free(whistle);
            if (_alike(kept[index])) {
                challenges.shareAlike(claimId, kept[index]);
            } else {
                try challenges.shareWon(claims[index], kept[index]) {
                    ++calls["share among whose games were won"];
                } catch {
                    continue;
                }
            }
            assertEq(free(whistle) - before, reward, "all of it, once");
            rewardsDue -= reward;
            waiting[which] = waiting[waiting.length - 1];
            waiting.pop();
            ++calls["share"];
            return;
        }
    }

    function _alike(Found[] memory found) private pure returns (bool) {
        for (uint256 i; i < found.length; ++i) {
            if (found[i].segment != found[0].segment) return false;
        }
        return found.length > 0;
    }

    /// @dev Findings that are in dispute on the claim.
    function _others(uint256 index) private view returns (uint256 n) {
        for (uint256 i; i < open.length; ++i) {
            if (open[i].claim == index && open[i].verifier == address(0)) ++n;
        }
    }

    function _waits(Claim memory claim) internal view returns (bool) {
        (, address winner) = tasks.reward(idOf(claim));
        return winner != address(0);
    }

    function _voteGameOver(bytes32 claimId, address verifier, bool convicted) private {
        --voteGames[claimId][verifier];
        if (convicted) {
            assertFalse(convictedVote[claimId][verifier], "a vote is convicted once");
            convictedVote[claimId][verifier] = true;
            ++calls["convict vote"];
            if (tasks.status(claimId).phase == Phase.CONVICTED) ++calls["convict vote of a fallen claim"];
        }
    }

    /// @dev It has fallen, and its window is open.
    function _votesMayFall(Claim memory claim) private view returns (bool) {
        ClaimStatus memory st = statusOf(claim);
        return st.phase == Phase.CONVICTED && block.timestamp <= st.since + 500;
    }

    function _purse(address defender) internal view returns (Purse memory purse) {
        purse.staked = stakeSum(IVault.Bucket.STAKE) + stakeSum(IVault.Bucket.UNBONDING);
        purse.burnt = vault.burnt();
        purse.challenger = free(whistle) + free(address(tasks));
        purse.compensation = compensationSum();
        purse.defender = free(defender);
    }
}
