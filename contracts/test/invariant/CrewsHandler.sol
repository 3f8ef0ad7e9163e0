// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {ICrew, ICrews, Said, Transcript} from "../../src/interfaces/ICrews.sol";
import {IStakes} from "../../src/interfaces/IStakes.sol";
import {ITasks} from "../../src/interfaces/ITasks.sol";
import {Claim, Kind, Phase, Role, Terms} from "../../src/interfaces/Types.sol";
import {CrewMarket} from "../crew/CrewMarket.sol";

/// @notice One crew after another, each with a shard of a job of its own. Its leader commits, anyone fells its claims, the leader
/// accuses whom it likes, verdicts fall as they like, and all members try to end it at any time. Keeps its own books of what the
/// crew has lost, and of who is guilty of it.
contract CrewsHandler is CrewMarket {
    struct Accusation {
        uint256 game;
        uint8 member;
        bytes32 claimId;
    }

    uint256 internal constant MEMBERS = 3;

    Claim[] internal ours;
    Claim[] private others;
    Accusation[] internal open;
    mapping(bytes32 claimId => bool) private paid;
    mapping(bytes32 claimId => mapping(uint256 member => bool)) private accused;
    uint256[MEMBERS] internal charged;
    uint256[MEMBERS] internal won;
    uint256 internal bonds; // that the crew holds
    uint256 internal given; // by strangers, as tokens
    uint256 internal lost;
    bool internal live;
    uint256 private nonce;
    mapping(string action => uint256) public calls;

    constructor() {
        setUpCrew();
        fund(solvers[1], 1e6 ether);
        stakeAs(solvers[1], Role.SOLVER, 1e6 ether);
        for (uint256 i; i < MEMBERS; ++i) {
            token.transfer(account(i), 1e6 ether);
            vm.prank(account(i));
            token.approve(address(crews), type(uint256).max);
        }
    }

    function form(uint256 seed) external {
        if (live) return;
        Terms memory t = aTerms();
        t.nonce = u64(++nonce);
        invited.jobId = postJob(t);
        // One claim's stake and its shard's penalty, or up to those of four claims.
        invited.stake = uint96(bound(seed, 107 ether, 420 ether));
        invited.expiry = u64(block.timestamp);
        invited.members[1].share = uint16(seed % 5001);
        invited.members[2].share = uint16((seed >> 16) % 5001);
        invited.members[0].share = 10_000 - invited.members[1].share - invited.members[2].share;
        bytes[] memory signatures = consents();
        vm.prank(account(0));
        crew = ICrew(crews.form(invited, signatures));
        vm.prank(solvers[1]);
        tasks.takeShard(jobId, 1, 0);
        delete ours;
        delete others;
        delete charged;
        delete won;
        (bonds, given, lost, live) = (0, 0, 0, true);
        ++calls["form"];
    }

    /// @dev Whether the contracts take it.
    function _does(address who, address what, bytes memory data) private returns (bool done) {
        vm.prank(who);
        (done,) = what.call(data);
    }

    // Work

    function commit(uint256 seed) external {
        if (!live) return;
        Claim memory claim = draft(seed % 4 == 0 ? Kind.OUTER : Kind.TASK, jobs.progress(jobId).round, 0);
        bytes memory data = abi.encodeCall(ICrew.commit, (claim, segmentEnds(claim)));
        vm.recordLogs();
        if (!_does(account(0), address(crew), data)) return;
        (claim,,) = abi.decode(committed().data, (Claim, bytes32[], uint64));
        ours.push(claim);
        ++calls[claim.kind == Kind.TASK ? "commit" : "commit outer"];
    }

    function commitOther(uint256 seed) external {
        if (!live) return;
        bool outer = seed % 2 == 0;
        Claim memory claim = draft(outer ? Kind.OUTER : Kind.TASK, jobs.progress(jobId).round, outer ? 0 : 1);
        bytes memory data = abi.encodeCall(ITasks.commit, (claim, segmentEnds(claim)));
        vm.recordLogs();
        if (!_does(solvers[1], address(tasks), data)) return;
        (claim,,) = abi.decode(committed().data, (Claim, bytes32[], uint64));
        others.push(claim);
    }

    /// @dev As far as it goes.
    function wholeRound(uint256) external {
        this.commit(1);
        this.commitOther(1);
        this.acceptAll(0);
        skip(101); // the outer claim is anybody's
        this.commit(0);
    }

    /// @dev All that wait for it.
    function acceptAll(uint256) external {
        for (uint256 i; i < ours.length + others.length; ++i) {
            Claim memory claim = i < ours.length ? ours[i] : others[i - ours.length];
            if (statusOf(claim).phase != Phase.COMMITTED) continue;
            try this.acceptIt(claim) {} catch {}
        }
    }

    function acceptIt(Claim memory claim) external {
        require(msg.sender == address(this));
        accept(claim);
    }

    /// @dev In the order of settlement, as far as that goes.
    function settleAll(uint256 seed) external {
        skip(bound(seed, 1, 600));
        for (uint256 i; i < 2 * (ours.length + others.length); ++i) {
            uint256 at = i % (ours.length + others.length);
            Claim memory claim = at < ours.length ? ours[at] : others[at - ours.length];
            if (!_does(stranger, address(tasks), abi.encodeCall(ITasks.settle, (claim)))) continue;
            if (at < ours.length) ++calls["settle"];
        }
    }

    /// @dev Of somebody else's claim, too: a rewind overtakes what the crew has committed after it.
    function convict(uint256 seed) external {
        if (ours.length + others.length == 0) return;
        uint256 at = seed % (ours.length + others.length);
        bool own = at < ours.length;
        try this.convictIt(own ? ours[at] : others[at - ours.length]) {
            if (own) lost += 100 ether;
            ++calls[own ? "convict" : "convict another"];
        } catch {}
    }

    function convictIt(Claim memory claim) external {
        require(msg.sender == address(this) && statusOf(claim).phase != Phase.CONVICTED);
        convictByGame(claim);
    }

    function expire(uint256 seed) external {
        if (!live) return;
        if (seed % 4 == 0) skip(1001);
        if (!_does(stranger, address(tasks), abi.encodeCall(ITasks.expire, (jobId, 0)))) return;
        lost += 7 ether;
        ++calls["expire"];
    }

    function void(uint256 seed) external {
        if (ours.length == 0) return;
        Claim memory claim = ours[seed % ours.length];
        if (_does(stranger, address(tasks), abi.encodeCall(ITasks.void, (claim)))) ++calls["void"];
    }

    // Guilt

    /// @dev Accepted exactly if the rules say so.
    function accuse(uint256 seed) external {
        if (!live || ours.length == 0) return;
        (uint8 member, Claim memory claim) = (uint8(seed % MEMBERS), ours[(seed >> 8) % ours.length]);
        bytes32 id = idOf(claim);
        bool due = statusOf(claim).phase == Phase.CONVICTED && claim.kind == Kind.TASK
            && block.timestamp <= statusOf(claim).since + 500 && !accused[id][member];
        (Transcript memory t, Said memory said) = transcript(member, claim);
        bytes memory signed_ = signature(member, crews.digestOf(t));
        bytes memory data = abi.encodeCall(ICrews.accuse, (invited, claim, t, signed_, said));
        assertTrue(_does(account(0), address(crews), data) == due, "once, in time, of what was lost");
        if (!due) return;
        accused[id][member] = true;
        open.push(Accusation(ownCourt.games(), member, id));
        bonds += BOND;
        ++calls["accuse"];
    }

    function judge(uint256 seed) external {
        if (open.length == 0) return;
        uint256 at = seed % open.length;
        _judge(at, (seed >> 8) % 2 == 0);
    }

    function _judge(uint256 at, bool guilty) internal {
        Accusation memory a = open[at];
        open[at] = open[open.length - 1];
        open.pop();
        ownCourt.decide(a.game, guilty);
        if (!guilty) {
            won[a.member] += BOND;
        } else {
            won[0] += BOND;
            if (!paid[a.claimId]) charged[a.member] += 100 ether;
            paid[a.claimId] = true;
        }
        ++calls[guilty ? "guilty" : "not guilty"];
    }

    // Money

    function pay(uint256 seed) external {
        if (!live) return;
        if (seed % 4 == 0) fund(address(crew), bound(seed, 1, 1e20)); // anybody may
        uint256 earned = vault.free(address(crew));
        uint256[MEMBERS] memory before = _frees();
        crew.pay(invited);
        _paidByShares(before, earned);
        if (earned > 0) ++calls["pay"];
    }

    function _paidByShares(uint256[MEMBERS] memory before, uint256 earned) private view {
        uint256 rest = earned;
        for (uint256 i = 1; i < MEMBERS; ++i) {
            uint256 part = earned * invited.members[i].share / 10_000;
            assertEq(free(account(i)) - before[i], part, "its share");
            rest -= part;
        }
        assertEq(free(account(0)) - before[0], rest, "the leader's share");
    }

    function give(uint256 seed) external {
        if (!live) return;
        uint256 amount = bound(seed, 1, 1e18);
        token.transfer(address(crew), amount);
        given += amount;
    }

    // The end

    function release(uint256 seed) external {
        if (!live) return;
        uint256 member = seed % MEMBERS;
        if (_does(account(member), address(crew), abi.encodeCall(ICrew.release, (invited, member)))) {
            ++calls["release"];
        }
    }

    function dissolve(uint256 seed) external {
        if (!live) return;
        uint256 member = seed % MEMBERS;
        uint256 locked = lockedOf(address(crew), Role.SOLVER);
        bool due = locked == 0 && activeOf(address(crew), Role.SOLVER) > 0;
        bytes memory data = abi.encodeCall(ICrew.dissolve, (invited, member));
        assertTrue(_does(account(member), address(crew), data) == due, "once nothing is locked");
        if (due) ++calls["dissolve"];
    }

    /// @dev Accepted exactly if all is unbonded and every accusation decided; pays what the books say.
    function finish(uint256 seed) external {
        if (live) _finish(seed % 2 == 0);
    }

    function _finish(bool wait_) internal {
        (bool asked, uint256 due) = _request();
        if (asked && wait_ && block.timestamp < due) vm.warp(due);
        bool can = asked && block.timestamp >= due && open.length == 0;
        uint256[MEMBERS] memory before = _frees();
        (uint256 earned, uint256 supply) = (vault.free(address(crew)), token.totalSupply());
        bool done = _does(stranger, address(crew), abi.encodeCall(ICrew.finish, (invited)));
        assertTrue(done == can, "possible once nothing is open");
        if (!done) return;
        uint256 left = MEMBERS * invited.stake - lost + bonds + given;
        uint256 half;
        uint256 sum;
        for (uint256 i = 1; i < MEMBERS; ++i) {
            uint256 part = earned * invited.members[i].share / 10_000;
            uint256 refund = free(account(i)) - before[i] - part;
            assertEq(refund + charged[i], invited.stake + won[i], "whole, but for what it is guilty of");
            half += charged[i] / 2;
            sum += refund + part;
        }
        assertEq(supply - token.totalSupply(), half, "half of what members are charged with is burnt");
        uint256 leaders = free(account(0)) - before[0];
        assertEq(sum + leaders + half, left + earned, "nothing is made, nothing stays");
        // What all charged is at most what was lost, so the leader's own loss is what nobody is charged with, and half of that.
        assertLe(leaders + lost + half, invited.stake + earned + charged[1] + charged[2] + won[0] + given);
        live = false;
        ++calls["finish"];
    }

    function _request() private view returns (bool asked, uint256 due) {
        try stakes.request(address(crew), Role.SOLVER, 0) returns (uint256, uint64 at) {
            return (true, at);
        } catch {}
    }

    function _frees() private view returns (uint256[MEMBERS] memory all) {
        for (uint256 i; i < MEMBERS; ++i) {
            all[i] = free(account(i));
        }
    }

    /// @dev Whatever was done, and with every accusation decided: without its shard and with nothing locked a crew ends.
    function end() internal {
        if (!live) return;
        while (open.length > 0) {
            _judge(0, false);
        }
        for (uint256 i; i < ours.length; ++i) {
            this.convict(i);
            this.void(i);
        }
        skip(1001);
        this.expire(1);
        this.release(1);
        if (lockedOf(address(crew), Role.SOLVER) > 0) return;
        this.dissolve(2);
        _finish(true);
        assertTrue(!live, "it ends");
        ++calls["end"];
    }
}
