// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {Crews} from "../../src/crew/Crews.sol";
import {Game, ICourt} from "../../src/interfaces/ICourt.sol";
import {ICrew, ICrews, Member, Said, Transcript} from "../../src/interfaces/ICrews.sol";
import {IStakes} from "../../src/interfaces/IStakes.sol";
import {ITasks} from "../../src/interfaces/ITasks.sol";
import {Claim, Kind, Phase, ProgramRef, Role, Terms} from "../../src/interfaces/Types.sol";
import {Merkle} from "../../src/libraries/Merkle.sol";
import {Vm} from "../Vm.sol";
import {FakeCourt, Market} from "../market/Market.sol";

/// @notice A crew as a solver of a market that knows nothing of crews: what it takes, earns, loses, and whose loss that is.
contract CrewsTest is Market {
    uint96 private constant EACH = 220 ether;

    Crews private crews;
    FakeCourt private ownCourt;
    ICrew private crew;
    Member[] private members;
    uint256[3] private privateKeys;

    function setUp() public {
        setUpMarket();
        address predicted = vm.computeCreateAddress(address(this), vm.getNonce(address(this)) + 1);
        ownCourt = new FakeCourt(predicted);
        crews = new Crews(
            token, vault, stakes, address(jobs), address(tasks), address(court), ICourt(address(ownCourt))
        );
        uint16[3] memory shares = [uint16(5000), 3000, 2000];
        for (uint256 i; i < 3; ++i) {
            privateKeys[i] = 0xA11CE + i;
            address who = vm.addr(privateKeys[i]);
            members.push(Member(who, shares[i], ProgramRef(bytes32(i + 1), 20, 3, 2)));
            token.transfer(who, 1000 ether);
        }
        crew = ICrew(crews.create(members, EACH));
        postJob(aTerms());
    }

    function account(uint256 member) private view returns (address) {
        return members[member].account;
    }

    function join(uint256 member) private {
        vm.startPrank(account(member));
        token.approve(address(crew), EACH);
        crew.join(members, member);
        vm.stopPrank();
    }

    function joinAll() private {
        for (uint256 i; i < 3; ++i) {
            join(i);
        }
    }

    function say(bytes memory data) private {
        vm.prank(account(0));
        crew.relay(address(tasks), data);
    }

    function takes(uint32 shard) private {
        say(abi.encodeCall(ITasks.takeShard, (jobId, shard, 0)));
    }

    /// @dev The crew and a solver hold a shard each, and have committed to round 0.
    function working() private returns (Claim memory ours, Claim memory other) {
        joinAll();
        takes(0);
        vm.prank(solvers[1]);
        tasks.takeShard(jobId, 1, 0);
        Claim memory claim = draft(Kind.TASK, 0, 0);
        vm.recordLogs();
        say(abi.encodeCall(ITasks.commit, (claim, segmentEnds(claim))));
        (ours,,) = abi.decode(committed().data, (Claim, bytes32[], uint64));
        other = commitTask(0, 1);
    }

    function committed() private returns (Vm.Log memory) {
        Vm.Log[] memory logs = vm.getRecordedLogs();
        for (uint256 i; i < logs.length; ++i) {
            if (logs[i].topics[0] == ITasks.Committed.selector) return logs[i];
        }
        revert("nothing was committed");
    }

    function convicted() private returns (Claim memory claim) {
        (claim,) = working();
        convictByGame(claim);
        assertPhase(claim, Phase.CONVICTED);
    }

    function dissolve() private {
        vm.prank(account(1));
        crew.dissolve(members, 1);
        skip(UNBOND_DELAY);
    }

    function transcript() private view returns (Transcript memory t, Said memory said) {
        bytes32[] memory leaves = new bytes32[](2);
        leaves[0] = Merkle.leaf(abi.encodePacked(bytes32("in"), bytes32("middle")));
        leaves[1] = Merkle.leaf(abi.encodePacked(bytes32("middle"), bytes32("out")));
        said = Said(1, "middle", "out", memberProof(leaves, 1));
        t = Transcript(address(crew), jobId, 0, 40, 2, Merkle.root(leaves));
    }

    function signed(uint256 member, Transcript memory t) private view returns (bytes memory) {
        (uint8 v, bytes32 r, bytes32 s) = vm.sign(privateKeys[member], crews.digestOf(t));
        return abi.encodePacked(r, s, v);
    }

    function accuse(uint256 member) private returns (uint256 gameId) {
        (Transcript memory t, Said memory said) = transcript();
        bytes memory signature = signed(member, t);
        vm.startPrank(account(0));
        token.approve(address(crews), 30 ether);
        gameId = crews.accuse(members, member, t, signature, said);
        vm.stopPrank();
    }

    function assertRefunds(uint256 a, uint256 b, uint256 c) private {
        uint256[3] memory before;
        for (uint256 i; i < 3; ++i) {
            before[i] = free(account(i));
        }
        crew.finish(members);
        assertEq(free(account(0)) - before[0], a, "leader");
        assertEq(free(account(1)) - before[1], b, "member 1");
        assertEq(free(account(2)) - before[2], c, "member 2");
        assertEq(token.balanceOf(address(crew)) + vault.free(address(crew)), 0, "nothing is left");
    }

    // Registration

    function test_CrewIsASolverOnceAllHaveJoined() public {
        join(0);
        join(2);
        vm.expectRevert(abi.encodeWithSelector(ICrew.Incomplete.selector, 5));
        takes(0);
        join(1);
        assertEq(activeOf(address(crew), Role.SOLVER), 3 * EACH);
        takes(0);
        (address holder,,) = tasks.holder(jobId, 0);
        assertEq(holder, address(crew));
    }

    function test_WhoeverWaitsInVainTakesItsStakeBack() public {
        join(1);
        vm.prank(account(1));
        crew.quit(members, 1);
        assertEq(token.balanceOf(account(1)), 1000 ether);
        vm.prank(account(1));
        vm.expectRevert(abi.encodeWithSelector(ICrew.NotMember.selector, 1));
        crew.quit(members, 1);
        joinAll();
        vm.prank(account(1));
        vm.expectRevert(ICrew.Complete.selector);
        crew.quit(members, 1);
    }

    function test_NobodyJoinsForAnotherOrTwice() public {
        vm.prank(stranger);
        vm.expectRevert(abi.encodeWithSelector(ICrew.NotMember.selector, 1));
        crew.join(members, 1);
        join(1);
        vm.prank(account(1));
        vm.expectRevert(abi.encodeWithSelector(ICrew.AlreadyJoined.selector, 1));
        crew.join(members, 1);
        Member[] memory others = members;
        others[1].share = 0;
        others[2].share = 5000;
        vm.prank(account(2));
        vm.expectRevert(abi.encodeWithSelector(ICrew.WrongMembers.selector, crew.membersHash()));
        crew.join(others, 2);
    }

    function test_SharesAreTenThousandTogether() public {
        members[2].share = 2001;
        vm.expectRevert(abi.encodeWithSelector(ICrews.WrongShares.selector, 10_001));
        crews.create(members, EACH);
        members.pop();
        members.pop();
        vm.expectRevert(abi.encodeWithSelector(ICrews.WrongCount.selector, 1));
        crews.create(members, EACH);
    }

    function test_NobodyBeginsACrewAgain() public {
        vm.expectRevert(ICrew.NotCrews.selector);
        crew.begin(bytes32(0), address(this), 1);
        vm.expectRevert(ICrew.NotCrews.selector);
        crew.charge(1, 1);
    }

    // Working

    function test_OnlyTheLeaderSaysWhatTheCrewDoes() public {
        joinAll();
        vm.prank(account(1));
        vm.expectRevert(abi.encodeWithSelector(ICrew.NotLeader.selector, account(0)));
        crew.relay(address(tasks), abi.encodeCall(ITasks.takeShard, (jobId, 0, 0)));
    }

    function test_TheLeaderMovesNoStakeAndNoToken() public {
        joinAll();
        address[4] memory targets = [address(stakes), address(vault), address(token), address(challenges)];
        bytes memory data = abi.encodeCall(IStakes.startUnbond, (Role.SOLVER, EACH));
        for (uint256 i; i < targets.length; ++i) {
            vm.prank(account(0));
            vm.expectRevert(
                abi.encodeWithSelector(ICrew.NotAllowed.selector, targets[i], IStakes.startUnbond.selector)
            );
            crew.relay(targets[i], data);
        }
        vm.prank(account(0));
        crew.relay(address(stakes), abi.encodeCall(IStakes.setEndpoint, ("http://crew:1")));
        assertEq(stakes.endpoint(address(crew)), "http://crew:1");
    }

    function test_WhatTheMarketRefusesTheLeaderIsTold() public {
        joinAll();
        takes(0);
        vm.prank(account(0));
        vm.expectRevert(abi.encodeWithSelector(ITasks.ShardTaken.selector, address(crew)));
        crew.relay(address(tasks), abi.encodeCall(ITasks.takeShard, (jobId, 0, 0)));
    }

    function test_NoMoreIsLockedThanOneMemberCanPay() public {
        (Claim memory claim,) = working();
        assertEq(lockedOf(address(crew), Role.SOLVER), 107 ether);
        say(abi.encodeCall(ITasks.release, (jobId, 0)));
        takes(0);
        accept(claim);
        postJob(otherTerms());
        takes(0);
        assertEq(lockedOf(address(crew), Role.SOLVER), 114 ether);
        Claim memory second = draft(Kind.TASK, 0, 0);
        say(abi.encodeCall(ITasks.commit, (second, segmentEnds(second))));
        assertEq(lockedOf(address(crew), Role.SOLVER), 214 ether);
        vm.prank(account(0));
        vm.expectRevert(abi.encodeWithSelector(ICrew.BeyondStake.selector, 221 ether, 0, EACH));
        crew.relay(address(tasks), abi.encodeCall(ITasks.takeShard, (jobId, 1, 0)));
    }

    function otherTerms() private view returns (Terms memory t) {
        t = aTerms();
        t.nonce = 2;
    }

    function test_EarningsArePaidByShares() public {
        (Claim memory ours, Claim memory other) = working();
        accept(ours);
        accept(other);
        skip(501);
        tasks.settle(ours);
        assertEq(vault.free(address(crew)), 10 ether);
        crew.pay(members);
        assertEq(free(account(0)), 5 ether);
        assertEq(free(account(1)), 3 ether);
        assertEq(free(account(2)), 2 ether);
        crew.pay(members);
        assertEq(free(account(2)), 2 ether, "once");
    }

    // Losses

    function test_TheLeaderPaysForWhatNobodyIsChargedWith() public {
        convicted();
        dissolve();
        assertRefunds(EACH - 100 ether, EACH, EACH);
    }

    function test_ALeaderThatLetsADeadlinePassPaysThePenalty() public {
        joinAll();
        takes(0);
        skip(1001);
        tasks.expire(jobId, 0);
        dissolve();
        assertRefunds(EACH - 7 ether, EACH, EACH);
    }

    function test_AMemberWhoseTranscriptIsFalsePaysAlone() public {
        for (uint256 i = 1; i < 3; ++i) {
            uint256 snapshot = vm.snapshotState();
            convicted();
            ownCourt.decide(accuse(i), true);
            dissolve();
            if (i == 1) assertRefunds(EACH, EACH - 100 ether, EACH);
            else assertRefunds(EACH, EACH, EACH - 100 ether);
            vm.revertToState(snapshot);
        }
    }

    function test_AMemberWhoseTranscriptIsTruePaysNothingAndGetsTheBond() public {
        convicted();
        ownCourt.decide(accuse(1), false);
        assertEq(token.balanceOf(account(1)), 1000 ether - EACH + 30 ether);
        dissolve();
        assertRefunds(EACH - 100 ether, EACH, EACH);
    }

    function test_AConvictionIsChargedOnce() public {
        convicted();
        uint256 first = accuse(1);
        uint256 second = accuse(2);
        ownCourt.decide(first, true);
        ownCourt.decide(second, true);
        dissolve();
        assertRefunds(EACH, EACH - 100 ether, EACH);
    }

    function test_NobodyIsAccusedOfWhatWasNotLost() public {
        working();
        (Transcript memory t, Said memory said) = transcript();
        bytes memory signature = signed(1, t);
        vm.prank(account(0));
        vm.expectRevert(ICrews.NothingLost.selector);
        crews.accuse(members, 1, t, signature, said);
    }

    /// @notice An account may take code later (EIP-7702) that denies its signatures.
    function test_WhoHasSignedIsAccusedWhateverCodeItsAccountHasTaken() public {
        convicted();
        vm.etch(account(1), hex"5f5ffd"); // reverts, whatever it is asked
        assertGt(accuse(1), 0);
    }

    function test_NobodyIsAccusedOfWhatItDidNotSign() public {
        convicted();
        (Transcript memory t, Said memory said) = transcript();
        bytes memory signature = signed(2, t);
        vm.startPrank(account(0));
        vm.expectRevert(abi.encodeWithSelector(ICrews.WrongSignature.selector, account(1)));
        crews.accuse(members, 1, t, signature, said);
        said.outRoot = "another";
        signature = signed(1, t);
        vm.expectRevert(ICrews.BadProof.selector);
        crews.accuse(members, 1, t, signature, said);
        vm.stopPrank();
        vm.prank(account(2));
        vm.expectRevert(abi.encodeWithSelector(ICrews.NotLeader.selector, account(0)));
        crews.accuse(members, 1, t, signature, said);
    }

    function test_NobodyIsPaidOutBeforeAnAccusationIsDecided() public {
        convicted();
        uint256 gameId = accuse(1);
        dissolve();
        vm.expectRevert(abi.encodeWithSelector(ICrew.GamesOpen.selector, 1));
        crew.finish(members);
        ownCourt.decide(gameId, true);
        assertRefunds(EACH, EACH - 100 ether, EACH);
    }

    function test_NothingIsTakenOutWhileItIsLocked() public {
        working();
        vm.prank(account(2));
        vm.expectRevert(abi.encodeWithSelector(ICrew.StillLocked.selector, 107 ether));
        crew.dissolve(members, 2);
    }

    function test_ADissolvedCrewTakesNothing() public {
        joinAll();
        dissolve();
        vm.prank(account(0));
        vm.expectRevert(
            abi.encodeWithSelector(
                IStakes.InsufficientStake.selector, address(crew), Role.SOLVER, 107 ether, 0
            )
        );
        crew.relay(address(tasks), abi.encodeCall(ITasks.takeShard, (jobId, 0, 0)));
        assertRefunds(EACH, EACH, EACH);
        vm.expectRevert();
        crew.finish(members);
    }

    function test_OnlyItsCourtJudges() public {
        convicted();
        uint256 gameId = accuse(1);
        Game memory game = ownCourt.game(gameId);
        vm.expectRevert(abi.encodeWithSelector(ICrews.NotCourt.selector, address(this)));
        crews.resolve(gameId, game, true);
        assertEq(game.cursor.defender, account(1));
        assertEq(game.cursor.challenger, account(0));
        assertEq(game.context.step, 41);
        assertEq(game.context.inRoot, "middle");
        assertEq(game.context.outRoot, "out");
        assertEq(game.params.program.root, bytes32(uint256(2)));
        assertEq(game.params.datasetRoot, aTerms().datasetRoot);
        assertEq(game.params.seed, aTerms().seed);
    }

    // Gas

    /// @dev As at the beginning of a transaction.
    function cold() private {
        vm.cool(address(crews));
        vm.cool(address(crew));
        vm.cool(address(token));
        chill();
    }

    function test_GasOfJoining() public {
        uint256 before = gasleft();
        crew = ICrew(crews.create(members, EACH));
        vm.snapshotValue("crew", "create, 3 members", before - gasleft());
        for (uint256 i; i < 3; ++i) {
            vm.startPrank(account(i));
            token.approve(address(crew), EACH);
            cold();
            before = gasleft();
            crew.join(members, i);
            uint256 used = before - gasleft();
            vm.stopPrank();
            if (i > 0) vm.snapshotValue("crew", i == 2 ? "join, the last of 3" : "join", used);
        }
    }

    function test_GasOfATask() public {
        joinAll();
        uint256 snapshot = vm.snapshotState();
        takes(0);
        Claim memory claim = draft(Kind.TASK, 0, 0);
        bytes memory data = abi.encodeCall(ITasks.commit, (claim, segmentEnds(claim)));
        vm.prank(account(0));
        cold();
        uint256 before = gasleft();
        crew.relay(address(tasks), data);
        vm.snapshotValue("crew", "commit", before - gasleft());
        vm.revertToState(snapshot);
        vm.prank(solvers[0]);
        tasks.takeShard(jobId, 0, 0);
        bytes32[] memory ends = segmentEnds(claim);
        vm.prank(solvers[0]);
        cold();
        before = gasleft();
        tasks.commit(claim, ends);
        vm.snapshotValue("crew", "commit, without a crew", before - gasleft());
    }

    function test_GasOfACharge() public {
        convicted();
        uint256 gameId = accuse(1);
        Game memory game = ownCourt.game(gameId);
        vm.prank(address(ownCourt));
        cold();
        uint256 before = gasleft();
        crews.resolve(gameId, game, true);
        vm.snapshotValue("crew", "charge", before - gasleft());
    }
}
