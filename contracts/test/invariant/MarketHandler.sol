// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {IJobs} from "../../src/interfaces/IJobs.sol";
import {ITasks} from "../../src/interfaces/ITasks.sol";
import {IVault} from "../../src/interfaces/IVault.sol";
import {Claim, ClaimStatus, Found, Kind, Phase, Role, Terms, Vote} from "../../src/interfaces/Types.sol";
import {KnownStates} from "./KnownStates.sol";

/// @notice Plays a market at random, without ever making a call that the rules forbid (so no call may revert), and keeps
/// its own books beside the contracts'. Here: jobs, claims, votes and money; DisputesHandler and AuditsHandler add the rest.
abstract contract MarketHandler is KnownStates {
    uint256 internal constant FEE = 1 ether; // of a vote

    struct OpenGame {
        uint256 id;
        uint256 claim; // index
        address verifier; // 0: on the claim
        bytes32 claimId; // that drew the verifier
        Found found; // 0: a game on a vote
    }

    struct Unbonding {
        address account;
        Role role;
        uint256 index;
        uint64 due;
        bool done;
    }

    Claim[] internal claims;
    OpenGame[] internal open;
    Unbonding[] internal unbondings;
    mapping(uint256 claim => Phase) internal lastPhase;
    mapping(bytes32 claimId => mapping(address verifier => uint256)) internal voteGames;
    mapping(bytes32 claimId => mapping(address verifier => bool)) internal convictedVote;
    mapping(uint256 claim => Found[]) internal kept; // of claims whose rewards wait, in the order in which games ended
    uint256[] internal waiting; // such claims
    uint256 internal rewardsDue;
    bytes32[] internal jobIds;
    uint256 public games;

    // The handler's own books
    uint256 public deposited;
    uint256 public withdrawn;
    uint256 public donated;
    mapping(bytes32 jobId => uint256) public funded;
    mapping(bytes32 jobId => uint256) public paid;
    mapping(bytes32 jobId => uint256) public refunded;
    mapping(bytes32 jobId => uint256) public outstanding; // worst case of the places that have not settled
    mapping(string action => uint256) public calls;

    constructor() {
        setUpMarket();
        deposited = freeSum() + stakeSum(IVault.Bucket.STAKE);
        _post();
    }

    function _post() private {
        Terms memory t = aTerms();
        t.nonce = u64(jobIds.length);
        t.rounds = 4;
        if (jobIds.length % 2 == 1) _slice(t);
        (t.loops[0].root, t.outerLoops[0].root) = (programRoot(Kind.TASK), programRoot(Kind.OUTER));
        t.minShards = jobIds.length % 2 == 0 ? 1 : SHARDS;
        postJob(t);
        jobIds.push(jobId);
        funded[jobId] = jobs.worstCase(t);
        outstanding[jobId] = jobs.worstCase(t);
    }

    /// @dev Two slices, whose states have as many slots as a whole outer step's.
    function _slice(Terms memory t) private pure {
        shapeSliced(t, SLOTS, PARAMS, SHARDS, 2);
        t.outerSlots = slotsOf(Kind.OUTER);
        t.outerLinks[0].count = u16(t.outerSlots - SHARDS);
        t.outerFee = 2 ether; // so that the same stake covers both
    }

    function u16(uint256 small) private pure returns (uint16) {
        // forge-lint: disable-next-line(unsafe-typecast)
        return uint16(small);
    }

    // Actions

    /// @dev The next thing that the current job needs, whatever it is.
    function advance(uint256 seed) external {
        for (uint256 i; i < 4; ++i) {
            _advance(uint256(keccak256(abi.encode(seed, i))));
        }
    }

    function _advance(uint256 seed) private {
        ++calls["advance"];
        IJobs.Progress memory p = jobs.progress(jobId);
        if (p.closed || p.round >= p.finalRound || p.round - p.settledRounds >= 2) {
            return _settleOrPost(seed);
        }
        (bool running, uint32 round,,) = jobs.running(jobId);
        if (!running) {
            if (seed % 4 == 1 && _voidLate()) return;
            return _outer(round, seed);
        }
        if (seed % 16 == 0 && block.timestamp <= p.roundStart + 1300) {
            vm.warp(p.roundStart + 1301); // the stragglers' time is over
            return;
        }
        uint32 shard = u32(seed % SHARDS);
        for (uint256 i; i < SHARDS; ++i) {
            bytes32 id = tasks.current(jobId, Kind.TASK, round, shard);
            if (id == 0) return _work(shard, round, seed);
            if (tasks.status(id).phase == Phase.COMMITTED || tasks.status(id).phase == Phase.SEEDED) {
                return _vote(_find(id), seed);
            }
            shard = (shard + 1) % SHARDS;
        }
    }

    /// @dev By whose turn it is, or by anyone once the reserved time is over.
    function _outer(uint32 round, uint256 seed) private {
        uint32 slices = jobs.terms(jobId).slices;
        uint32 number = u32((seed >> 8) % slices);
        if (tasks.current(jobId, Kind.OUTER, round, number) != 0) number = (number + 1) % slices;
        address aggregator = ownerOf(round + number);
        if (aggregator == address(0) || seed % 4 == 0) {
            aggregator = _solverWithStake(seed);
            skip(101);
        }
        _ensureStake(aggregator, Role.SOLVER, 100 ether);
        for (uint32 i; i < SHARDS; ++i) {
            bytes32 id = tasks.current(jobId, Kind.TASK, round, i);
            if (id == 0 || tasks.status(id).phase < Phase.ACCEPTED) ++calls["missing"];
        }
        claims.push(submit(aggregator, draftKnown(Kind.OUTER, round, number)));
        ++calls["outer"];
        if (slices == 1) return;
        ++calls["slice"];
        if (jobs.progress(jobId).round == round) ++calls["slice of a round that stays open"];
    }

    function _work(uint32 shard, uint32 round, uint256 seed) private {
        (address solver,, uint64 since) = tasks.holder(jobId, shard);
        if (solver == address(0)) {
            if (jobs.progress(jobId).halted) return _settleOrPost(seed);
            solver = _solverWithStake(seed);
            vm.prank(solver);
            tasks.takeShard(jobId, shard, 0);
            return;
        }
        (,, uint64 start, bool disputed) = jobs.running(jobId);
        if (!disputed && block.timestamp > (start > since ? start : since) + 1000) {
            tasks.expire(jobId, shard);
            ++calls["expire"];
            return;
        }
        _ensureStake(solver, Role.SOLVER, 100 ether);
        claims.push(submit(solver, draftKnown(Kind.TASK, round, shard)));
        ++calls["commit"];
    }

    function _vote(uint256 index, uint256 seed) private {
        Claim memory claim = claims[index];
        if (statusOf(claim).phase == Phase.SEEDED) {
            if ((seed >> 48) % 8 != 0) return;
            skip(201);
        } else {
            _castVotes(claim, seedFor(claim), seed);
            if ((seed >> 32) % 4 == 0 || _mostlyInvalid(seed)) return; // and counted later
        }
        ClaimStatus memory st = statusOf(claim);
        if (st.calls > 0 && block.timestamp <= st.since + 74) _castVotes(claim, drawnOf(claim), seed >> 64);
        if (statusOf(claim).phase == Phase.COMMITTED) {
            ++calls["seed too old"];
            return;
        }
        (bool running,,,) = jobs.running(jobId);
        if (!running) {
            ++calls["too late"];
            return;
        }
        if (_waitsForSomebody(claim)) skip(201);
        (running,,,) = jobs.running(jobId);
        if (!running) return;
        tasks.tally(claim);
        bool done = statusOf(claim).phase == Phase.ACCEPTED;
        ++calls[done ? "accept" : "recall"];
        if (done && statusOf(claim).valid < 3) ++calls["unattested"];
    }

    function _castVotes(Claim memory claim, address[] memory drawn, uint256 seed) private {
        Vote[] memory cast = tasks.votes(idOf(claim));
        for (uint256 i; i < drawn.length; ++i) {
            if (cast[i].gone || cast[i].shown || _choice(seed, i) != 4) continue;
            vm.prank(drawn[i]);
            tasks.abstain(claim);
            ++calls["abstain"];
        }
        bool missed;
        cast = tasks.votes(idOf(claim));
        for (uint256 i; i < drawn.length; ++i) {
            uint256 choice = _choice(seed, i);
            if (cast[i].gone || cast[i].shown) continue;
            if (choice == 3) missed = true;
            else voteAs(drawn[i], claim, choice != 2);
        }
        if (missed) {
            skip(201);
            ++calls["missed vote"];
        }
    }

    /// @dev 2: invalid; 3: silent; 4: abstains; otherwise valid.
    function _choice(uint256 seed, uint256 i) private pure returns (uint256) {
        return _mostlyInvalid(seed) && i > 0 ? 2 : (seed >> (3 * i + 8)) & 7;
    }

    function _mostlyInvalid(uint256 seed) private pure returns (bool) {
        return (seed >> 40) % 8 == 0;
    }

    function _waitsForSomebody(Claim memory claim) private view returns (bool) {
        Vote[] memory cast = tasks.votes(idOf(claim));
        for (uint256 i; i < cast.length; ++i) {
            if (!cast[i].gone && !cast[i].shown) return true;
        }
        return false;
    }

    function _settleOrPost(uint256 seed) private {
        if (seed % 4 == 0) skip(1001); // the windows are over
        for (uint256 i; i < claims.length; ++i) {
            if (claims[i].jobId == jobId && statusOf(claims[i]).phase == Phase.ACCEPTED) settle(i);
        }
        if (jobs.progress(jobId).closed) _post();
        else closeJob();
    }

    function settle(uint256 seed) public {
        if (claims.length == 0) return;
        Claim memory claim = claims[seed % claims.length];
        ClaimStatus memory st = statusOf(claim);
        if (st.phase != Phase.ACCEPTED) return;
        uint256 before = vault.balance(IVault.Bucket.ESCROW, claim.jobId);
        uint256 valid = _paidVotes(claim);
        try tasks.settle(claim) {
            assertEq(st.openGames, 0, "no payout with an open game");
            bool attested = claim.kind == Kind.OUTER || valid == 3;
            assertGt(block.timestamp, st.since + (attested ? 500 : 1000), "no payout before the window ends");
            uint256 due = claim.price + valid * 1 ether;
            assertEq(before - vault.balance(IVault.Bucket.ESCROW, claim.jobId), due, "paid what is due");
            paid[claim.jobId] += due;
            outstanding[claim.jobId] -= claim.kind == Kind.TASK ? 13 ether : claim.price;
            ++calls["settle"];
        } catch (bytes memory reason) {
            // forge-lint: disable-next-line(unsafe-typecast)
            bytes4 why = bytes4(reason);
            assertTrue(
                why == ITasks.EarlierUnsettled.selector || why == ITasks.GamesOpen.selector
                    || why == ITasks.NotDue.selector || why == ITasks.NotStanding.selector,
                "settlement waits for named reasons only"
            );
        }
    }

    function _paidVotes(Claim memory claim) private view returns (uint256 n) {
        Vote[] memory cast = tasks.votes(idOf(claim));
        for (uint256 i; i < cast.length; ++i) {
            if (cast[i].valid) ++n;
        }
    }

    function voidStale(uint256 seed) external {
        for (uint256 i; i < claims.length; ++i) {
            Claim memory claim = claims[(seed % claims.length + i) % claims.length];
            if (!_live(claim) || statusOf(claim).openGames > 0 || (_stands(claim) && !_late(claim))) {
                continue;
            }
            ++calls[_stands(claim) ? "late void" : "void"];
            tasks.void(claim);
            assertPhase(claim, Phase.VOID);
            return;
        }
    }

    function _voidLate() private returns (bool) {
        for (uint256 i; i < claims.length; ++i) {
            if (!_late(claims[i]) || !_stands(claims[i]) || statusOf(claims[i]).openGames > 0) continue;
            tasks.void(claims[i]);
            ++calls["late void"];
            return true;
        }
        return false;
    }

    /// @dev Neither accepted nor to be accepted any more.
    function _late(Claim memory claim) internal view returns (bool) {
        IJobs.Progress memory p = jobs.progress(claim.jobId);
        (bool running,,,) = jobs.running(claim.jobId);
        bool full = p.round - p.settledRounds >= 2;
        return claim.kind == Kind.TASK && claim.round == p.round && statusOf(claim).phase < Phase.ACCEPTED
            && !running && !p.closed && !full && p.round < p.finalRound;
    }

    function freeSeats(uint256 seed) external {
        for (uint256 i; i < claims.length; ++i) {
            Claim memory claim = claims[(seed % claims.length + i) % claims.length];
            if (!_seatsDue(claim)) continue;
            if (block.timestamp <= statusOf(claim).since + 500) {
                vm.expectPartialRevert(ITasks.NotDue.selector);
                tasks.freeSeats(claim);
                if (seed % 4 == 0) return;
                skip(501);
            }
            tasks.freeSeats(claim);
            ++calls["free seats"];
            return;
        }
    }

    /// @dev Votes on it hold stake, and no game on it is open.
    function _seatsDue(Claim memory claim) internal view returns (bool) {
        ClaimStatus memory st = statusOf(claim);
        return st.phase == Phase.CONVICTED && st.openGames == 0 && st.shown > 0;
    }

    /// @dev Kept with the module for the votes on fallen claims.
    function feesDue() public view returns (uint256 sum) {
        for (uint256 i; i < claims.length; ++i) {
            ClaimStatus memory st = statusOf(claims[i]);
            if (st.phase == Phase.CONVICTED) sum += st.shown * FEE;
        }
    }

    /// @dev Rarely, since the holder loses its place; but not never in a run, so the first chance is taken.
    function releaseShard(uint256 seed) external {
        if (seed % 4 != 0 && calls["release"] > 0) return;
        uint32 shard = u32((seed >> 2) % SHARDS);
        (address solver,,) = tasks.holder(jobId, shard);
        if (solver == address(0)) return;
        vm.prank(solver);
        tasks.release(jobId, shard);
        ++calls["release"];
    }

    function unbond(uint256 seed, uint256 amount) external {
        (address account, Role role) = _staker(seed);
        uint256 unlocked = activeOf(account, role) - lockedOf(account, role);
        if (unlocked == 0) return;
        amount = bound(amount, 1, unlocked);
        vm.prank(account);
        uint256 index = stakes.startUnbond(role, amount);
        unbondings.push(Unbonding(account, role, index, u64(block.timestamp) + UNBOND_DELAY, false));
        ++calls["unbond"];
    }

    function finishUnbond(uint256 seed) external {
        if (unbondings.length == 0) return;
        Unbonding storage u = unbondings[seed % unbondings.length];
        if (u.done) return;
        if (block.timestamp < u.due) {
            vm.prank(u.account);
            try stakes.finishUnbond(u.role, u.index) {
                assertTrue(false, "no exit before its deadline");
            } catch {}
            if (seed % 8 != 0) return;
            vm.warp(u.due);
        }
        vm.prank(u.account);
        stakes.finishUnbond(u.role, u.index);
        u.done = true;
        ++calls["finish unbond"];
    }

    function wait(uint256 seed) external {
        skip(bound(seed, 1, 200));
        vm.roll(block.number + bound(seed, 1, 50));
    }

    function withdraw(uint256 seed, uint256 amount) external {
        (address account,) = _staker(seed);
        amount = bound(amount, 0, free(account));
        uint256 before = token.balanceOf(account);
        vm.prank(account);
        vault.withdraw(account, amount);
        assertEq(token.balanceOf(account) - before, amount);
        withdrawn += amount;
        donated += seed % 3;
        require(token.transfer(address(vault), seed % 3));
        vault.destroy();
        ++calls["withdraw"];
    }

    function haltJob(uint256 seed) external {
        if (seed % 4 != 0 || jobs.progress(jobId).halted) return;
        (, uint32 round,,) = jobs.running(jobId);
        if (round >= 4) return;
        vm.prank(client);
        jobs.halt(jobId);
        ++calls["halt"];
    }

    function closeJob() public {
        if (jobs.progress(jobId).closed) return;
        uint256 rest = vault.balance(IVault.Bucket.ESCROW, jobId);
        try jobs.close(jobId) {
            refunded[jobId] = rest;
            outstanding[jobId] = 0;
            ++calls["close"];
        } catch {}
    }

    // Choices

    function _solverWithStake(uint256 seed) private returns (address solver) {
        solver = solvers[(seed >> 200) % solvers.length];
        _ensureStake(solver, Role.SOLVER, 107 ether);
    }

    function _ensureStake(address account, Role role, uint256 needed) private {
        uint256 unlocked = activeOf(account, role) - lockedOf(account, role);
        if (unlocked >= needed) return;
        _ensureFree(account, needed);
        stakeAs(account, role, needed);
    }

    function _ensureFree(address account, uint256 needed) internal {
        if (free(account) >= needed) return;
        fund(account, needed);
        deposited += needed;
    }

    function _staker(uint256 seed) private view returns (address, Role) {
        uint256 i = seed % (solvers.length + verifiers.length);
        return i < solvers.length ? (solvers[i], Role.SOLVER) : (verifiers[i - solvers.length], Role.VERIFIER);
    }

    function _find(bytes32 id) private view returns (uint256 index) {
        for (index = claims.length - 1; idOf(claims[index]) != id; --index) {}
    }

    /// @dev A standing claim within its window, scanning from a random place; max if there is none.
    function _pick(uint256 seed) internal view returns (uint256) {
        for (uint256 i; i < claims.length; ++i) {
            uint256 index = (seed % claims.length + i) % claims.length;
            if (_mayFall(claims[index])) return index;
        }
        return type(uint256).max;
    }

    /// @dev Stands, and its window is open.
    function _mayFall(Claim memory claim) internal view returns (bool) {
        ClaimStatus memory st = statusOf(claim);
        return _stands(claim) && (st.phase != Phase.ACCEPTED || block.timestamp <= st.since + 500);
    }

    function _live(Claim memory claim) internal view returns (bool) {
        Phase phase = statusOf(claim).phase;
        return phase == Phase.COMMITTED || phase == Phase.SEEDED || phase == Phase.ACCEPTED;
    }

    function _stands(Claim memory claim) internal view returns (bool) {
        bool pending = statusOf(claim).phase < Phase.ACCEPTED;
        return _live(claim) && !jobs.overtaken(claim.jobId, claim.kind, claim.round, claim.rewinds, pending);
    }
}
