// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {IClock} from "../../src/interfaces/IClock.sol";
import {Game} from "../../src/interfaces/ICourt.sol";
import {ICrew, ICrews, Member, Said, Transcript} from "../../src/interfaces/ICrews.sol";
import {IStakes} from "../../src/interfaces/IStakes.sol";
import {ITasks} from "../../src/interfaces/ITasks.sol";
import {Claim, Kind, ProgramRef, Role, Terms} from "../../src/interfaces/Types.sol";
import {FakeCourt} from "../market/Market.sol";
import {CrewMarket} from "./CrewMarket.sol";
import {IERC20} from "@openzeppelin/contracts/token/ERC20/IERC20.sol";
import {ERC20Burnable} from "@openzeppelin/contracts/token/ERC20/extensions/ERC20Burnable.sol";
import {LibClone} from "solady/utils/LibClone.sol";

/// @notice A crew as a solver of a market that knows nothing of crews: what it takes, earns, loses, and whose loss that is.
contract CrewsTest is CrewMarket {
    function setUp() public {
        setUpCrew();
    }

    function assertRefunds(uint256 a, uint256 b, uint256 c) private {
        uint256[3] memory before;
        for (uint256 i; i < 3; ++i) {
            before[i] = free(account(i));
        }
        crew.finish(invited);
        assertEq(free(account(0)) - before[0], a, "leader");
        assertEq(free(account(1)) - before[1], b, "member 1");
        assertEq(free(account(2)) - before[2], c, "member 2");
        assertEq(token.balanceOf(address(crew)) + vault.free(address(crew)), 0, "nothing is left");
    }

    // Forming

    function test_ACrewHoldsItsShardFromTheFirst() public {
        address predicted = crews.crewOf(invited);
        form();
        assertEq(address(crew), predicted);
        assertEq(activeOf(predicted, Role.SOLVER), 3 * STAKE);
        (address holder,,) = tasks.holder(jobId, 0);
        assertEq(holder, predicted);
        assertEq(token.balanceOf(account(2)), 1000 ether - STAKE);
    }

    function test_NobodyPaysWhoHasNotConsented() public {
        bytes[] memory signatures = consents();
        signatures[1] = signatures[0];
        vm.startPrank(account(0));
        vm.expectRevert(abi.encodeWithSelector(ICrews.WrongConsent.selector, account(2)));
        crews.form(invited, signatures);
        signatures = consents();
        invited.members[1].share -= 1;
        invited.members[0].share += 1;
        vm.expectRevert(abi.encodeWithSelector(ICrews.WrongConsent.selector, account(1)));
        crews.form(invited, signatures);
        vm.stopPrank();
        assertEq(token.balanceOf(account(1)), 1000 ether);
        signatures = consents();
        vm.prank(account(1));
        vm.expectRevert(abi.encodeWithSelector(ICrews.NotLeader.selector, account(0)));
        crews.form(invited, signatures);
    }

    function test_NobodyPaysForAShardThatAnotherHas() public {
        vm.prank(solvers[0]);
        tasks.takeShard(jobId, 0, 0);
        bytes[] memory signatures = consents();
        vm.prank(account(0));
        vm.expectRevert(abi.encodeWithSelector(ITasks.ShardTaken.selector, solvers[0]));
        crews.form(invited, signatures);
        assertEq(token.balanceOf(account(1)), 1000 ether);
    }

    function test_AConsentIsUsedOnceAndNotLate() public {
        form();
        skip(1001);
        tasks.expire(jobId, 0);
        bytes[] memory signatures = consents();
        vm.prank(account(0));
        vm.expectRevert(LibClone.DeploymentFailed.selector);
        crews.form(invited, signatures);
        vm.warp(invited.expiry + 1);
        vm.prank(account(0));
        vm.expectRevert(abi.encodeWithSelector(ICrews.Expired.selector, invited.expiry));
        crews.form(invited, signatures);
    }

    function test_SharesAreTenThousandTogether() public {
        invited.members[2].share = 2001;
        bytes[] memory signatures = consents();
        vm.startPrank(account(0));
        vm.expectRevert(abi.encodeWithSelector(ICrews.WrongShares.selector, 10_001));
        crews.form(invited, signatures);
        invited.members.pop();
        vm.expectRevert(abi.encodeWithSelector(ICrews.WrongCount.selector, 2));
        crews.form(invited, signatures);
        invited.members.pop();
        vm.expectRevert(abi.encodeWithSelector(ICrews.WrongCount.selector, 1));
        crews.form(invited, new bytes[](0));
        vm.stopPrank();
    }

    function test_NobodyElseBeginsACrew() public {
        form();
        vm.expectRevert(ICrew.NotCrews.selector);
        crew.begin(1);
    }

    /// @notice The digest that wallets sign, from the types as EIP-712 writes them.
    function test_AConsentIsTypedData() public view {
        bytes32 program = keccak256("ProgramRef(bytes32 root,uint32 nodes,uint32 slots,uint32 params)");
        bytes32 member = keccak256(
            "Member(address account,uint16 share,ProgramRef stage)ProgramRef(bytes32 root,uint32 nodes,uint32 slots,uint32 params)"
        );
        bytes32 all = keccak256(
            "Invitation(bytes32 jobId,uint32 shard,uint128 leastPrice,uint96 stake,uint64 expiry,bytes32 plan,Member[] members)Member(address account,uint16 share,ProgramRef stage)ProgramRef(bytes32 root,uint32 nodes,uint32 slots,uint32 params)"
        );
        bytes memory each;
        for (uint256 i; i < 3; ++i) {
            Member memory m = invited.members[i];
            bytes32 stage = keccak256(abi.encode(program, m.stage));
            each = abi.encodePacked(each, keccak256(abi.encode(member, m.account, m.share, stage)));
        }
        bytes memory head = abi.encode(all, jobId, uint256(0), uint256(10 ether));
        bytes memory tail = abi.encode(STAKE, invited.expiry, bytes32("plan"), keccak256(each));
        bytes32 domain = keccak256(
            abi.encode(
                keccak256(
                    "EIP712Domain(string name,string version,uint256 chainId,address verifyingContract)"
                ),
                keccak256("Assay Crews"),
                keccak256("1"),
                block.chainid,
                address(crews)
            )
        );
        bytes32 hash = keccak256(bytes.concat(head, tail));
        assertEq(crews.consentOf(invited), keccak256(abi.encodePacked("\x19\x01", domain, hash)));
    }

    // Working

    function test_OnlyTheLeaderSaysWhatTheCrewDoes() public {
        form();
        Claim memory claim = draft(Kind.TASK, 0, 0);
        bytes32[] memory ends = segmentEnds(claim);
        bytes memory refused = abi.encodeWithSelector(ICrew.NotLeader.selector, account(0));
        vm.startPrank(account(1));
        vm.expectRevert(refused);
        crew.commit(claim, ends);
        vm.expectRevert(refused);
        crew.move("");
        vm.expectRevert(refused);
        crew.setEndpoint("http://thief:1");
        vm.stopPrank();
        vm.prank(account(0));
        crew.setEndpoint("http://crew:1");
        assertEq(stakes.endpoint(address(crew)), "http://crew:1");
    }

    function test_AMoveIsTheCourts() public {
        form();
        bytes memory data = abi.encodeCall(FakeCourt.decide, (7, true));
        vm.expectCall(address(court), data);
        vm.prank(account(0));
        vm.expectRevert();
        crew.move(data);
    }

    function test_WhatTheMarketRefusesTheLeaderIsTold() public {
        (Claim memory ours,) = working();
        bytes32[] memory ends = segmentEnds(ours);
        bytes memory refused =
            abi.encodeWithSelector(ITasks.PlaceTaken.selector, tasks.current(jobId, Kind.TASK, 0, 0));
        vm.prank(account(0));
        vm.expectRevert(refused);
        crew.commit(ours, ends);
    }

    function test_NoMoreIsLockedThanOneMemberCanPay() public {
        invited.stake = 106 ether;
        form();
        Claim memory claim = draft(Kind.TASK, 0, 0);
        bytes32[] memory ends = segmentEnds(claim);
        vm.prank(account(0));
        vm.expectRevert(abi.encodeWithSelector(ICrew.BeyondStake.selector, 107 ether, 0, uint256(106 ether)));
        crew.commit(claim, ends);
    }

    /// @notice A task that is missed costs missPenalty: a shard that costs more than one member has is not taken.
    function test_NoShardIsTakenWithoutItsPenalty() public {
        invited.stake = 6 ether;
        bytes[] memory signatures = consents();
        vm.prank(account(0));
        vm.expectRevert();
        crews.form(invited, signatures);
        invited.stake = 50 ether; // three are enough for the market, one is not for the others
        form();
        assertEq(lockedOf(address(crew), Role.SOLVER), 7 ether);
    }

    function test_ACrewWorksForItsJobAlone() public {
        form();
        bytes32 own = jobId;
        Terms memory t = aTerms();
        t.nonce = 2;
        postJob(t);
        Claim memory claim = draft(Kind.OUTER, 0, 0);
        bytes32[] memory ends = segmentEnds(claim);
        vm.prank(account(0));
        vm.expectRevert(abi.encodeWithSelector(ICrew.WrongJob.selector, own));
        crew.commit(claim, ends);
    }

    function test_EarningsArePaidByShares() public {
        (Claim memory ours, Claim memory other) = working();
        accept(ours);
        accept(other);
        skip(501);
        tasks.settle(ours);
        assertEq(vault.free(address(crew)), 10 ether);
        crew.pay(invited);
        assertEq(free(account(0)), 5 ether);
        assertEq(free(account(1)), 3 ether);
        assertEq(free(account(2)), 2 ether);
        crew.pay(invited);
        assertEq(free(account(2)), 2 ether, "once");
    }

    function test_AnotherInvitationIsRefused() public {
        form();
        invited.members[1].share += 1;
        bytes memory refused = abi.encodeWithSelector(ICrew.WrongInvitation.selector, crews.crewOf(invited));
        vm.expectRevert(refused);
        crew.pay(invited);
        vm.startPrank(account(1));
        vm.expectRevert(refused);
        crew.release(invited, 1);
        vm.expectRevert(refused);
        crew.dissolve(invited, 1);
        vm.expectRevert(refused);
        crew.finish(invited);
        vm.stopPrank();
    }

    // Getting out

    /// @notice The leader is gone for good: its task has settled, and the job waits for another shard.
    function test_AMemberGetsOutWithoutTheLeader() public {
        (Claim memory ours, Claim memory other) = working();
        accept(ours);
        accept(other);
        skip(501);
        tasks.settle(ours);
        assertEq(lockedOf(address(crew), Role.SOLVER), 7 ether);
        vm.prank(account(2));
        crew.release(invited, 2);
        vm.prank(account(2));
        crew.dissolve(invited, 2);
        skip(UNBOND_DELAY);
        assertRefunds(STAKE + 5 ether, STAKE + 3 ether, STAKE + 2 ether);
    }

    function test_AMemberReleasesNothingThatIsOwed() public {
        form();
        vm.prank(stranger);
        vm.expectRevert(abi.encodeWithSelector(ICrew.NotMember.selector, 1));
        crew.release(invited, 1);
        vm.prank(account(1));
        vm.expectRevert(ICrew.TaskOwed.selector);
        crew.release(invited, 1);
        skip(1001);
        tasks.expire(jobId, 0); // whoever owes it pays, and the shard is over all the same
        dissolve();
        assertRefunds(STAKE - 7 ether, STAKE, STAKE);
    }

    /// @notice A dispute of another claim excuses the crew's task, which is computed all the same: a member that gave the shard
    /// back now could commit it in another name.
    function test_NobodyGivesAComputedTaskAway() public {
        form();
        vm.prank(solvers[1]);
        tasks.takeShard(jobId, 1, 0);
        challengeAs(whistle, commitTask(0, 1), 0);
        (,,, bool disputed) = jobs.running(jobId);
        assertTrue(disputed);
        vm.prank(account(1));
        vm.expectRevert(ICrew.TaskOwed.selector);
        crew.release(invited, 1);
        commits(draft(Kind.TASK, 0, 0));
        vm.prank(account(1));
        crew.release(invited, 1);
    }

    /// @notice What has no shard commits nothing, so that no stake is locked again before its members get it.
    function test_NothingIsLockedOnceTheShardIsOver() public {
        (Claim memory ours, Claim memory other) = working();
        accept(ours);
        accept(other);
        vm.prank(account(2));
        crew.release(invited, 2);
        skip(101); // the outer claim is anybody's
        Claim memory claim = draft(Kind.OUTER, 0, 0);
        bytes32[] memory ends = segmentEnds(claim);
        vm.prank(account(0));
        vm.expectRevert(abi.encodeWithSelector(ITasks.NotHolder.selector, address(0)));
        crew.commit(claim, ends);
        vm.prank(solvers[1]);
        tasks.commit(claim, ends);
    }

    function test_NothingIsTakenOutWhileItIsLocked() public {
        working();
        vm.prank(account(2));
        vm.expectRevert(abi.encodeWithSelector(ICrew.StillLocked.selector, 107 ether));
        crew.dissolve(invited, 2);
    }

    function test_EachIsRefundedOnce() public {
        form();
        skip(1001);
        tasks.expire(jobId, 0);
        dissolve();
        assertRefunds(STAKE - 7 ether, STAKE, STAKE);
        vm.expectRevert(abi.encodeWithSelector(IStakes.NoSuchRequest.selector, 0));
        crew.finish(invited);
    }

    // Losses

    function test_TheLeaderPaysForWhatNobodyIsChargedWith() public {
        convicted();
        assertEq(crew.lost(), 100 ether);
        dissolve();
        assertRefunds(STAKE - 100 ether, STAKE, STAKE);
    }

    function test_ALeaderThatLetsADeadlinePassPaysThePenalty() public {
        form();
        skip(1001);
        tasks.expire(jobId, 0);
        dissolve();
        assertRefunds(STAKE - 7 ether, STAKE, STAKE);
    }

    function test_AMemberWhoseTranscriptIsFalsePaysAlone() public {
        for (uint8 i = 1; i < 3; ++i) {
            uint256 snapshot = vm.snapshotState();
            ownCourt.decide(accuse(i, convicted()), true);
            dissolve();
            if (i == 1) assertRefunds(STAKE - 50 ether + BOND, STAKE - 100 ether, STAKE);
            else assertRefunds(STAKE - 50 ether + BOND, STAKE, STAKE - 100 ether);
            vm.revertToState(snapshot);
        }
    }

    function test_AMemberWhoseTranscriptIsTruePaysNothingAndGetsTheBond() public {
        ownCourt.decide(accuse(1, convicted()), false);
        dissolve();
        assertRefunds(STAKE - 100 ether, STAKE + BOND, STAKE);
    }

    /// @notice What a token does not burn stays with the crew, of which nobody can take anything any more.
    function test_ATokenThatDoesNotBurnHoldsNoRefundUp() public {
        ownCourt.decide(accuse(1, convicted()), true);
        dissolve();
        vm.mockCallRevert(address(token), abi.encodePacked(ERC20Burnable.burn.selector), "");
        uint256 leaders = free(account(0));
        crew.finish(invited);
        assertEq(free(account(0)) - leaders, STAKE - 50 ether + BOND);
        assertEq(free(account(1)), STAKE - 100 ether);
        assertEq(free(account(2)), STAKE);
        assertEq(token.balanceOf(address(crew)), 50 ether);
        crew.pay(invited);
        assertEq(token.balanceOf(address(crew)), 50 ether);
    }

    /// @notice A verdict calls no token, so none can keep an accusation from ending.
    function test_ATokenThatMovesNothingHoldsNoVerdictUp() public {
        uint256 game = accuse(1, convicted());
        vm.mockCallRevert(address(token), abi.encodePacked(IERC20.transfer.selector), "");
        vm.mockCallRevert(address(token), abi.encodePacked(IERC20.transferFrom.selector), "");
        ownCourt.decide(game, true);
        (uint256 amount,, uint256 games) = crews.charged(address(crew), 1);
        assertEq(amount, 100 ether);
        assertEq(games, 0);
    }

    /// @notice The chain makes no block until the window's time is over.
    function test_ALeaderAccusesAfterAHalt() public {
        Claim memory claim = convicted();
        uint64 end = u64(block.timestamp) + 500;
        vm.warp(end + 1 hours);
        vm.mockCall(address(clock), abi.encodeCall(IClock.time, ()), abi.encode(end));
        accuse(1, claim);
        vm.mockCall(address(clock), abi.encodeCall(IClock.time, ()), abi.encode(end + 1));
        refuses(2, claim, abi.encodeWithSelector(ICrews.WindowClosed.selector, end));
    }

    function test_AConvictionIsChargedOnce() public {
        Claim memory claim = convicted();
        uint256 first = accuse(1, claim);
        uint256 second = accuse(2, claim);
        ownCourt.decide(first, true);
        ownCourt.decide(second, true);
        dissolve();
        assertRefunds(STAKE - 50 ether + 2 * BOND, STAKE - 100 ether, STAKE);
    }

    /// @notice Two claims of the crew fall, and the member has lied in the first: it pays for that one alone.
    function test_ATranscriptIsChargedForItsOwnClaimAlone() public {
        invited.stake = 400 ether;
        (Claim memory first, Claim memory other) = working();
        accept(first);
        accept(other);
        other = commits(draft(Kind.OUTER, 0, 0));
        Claim memory second = commits(draft(Kind.TASK, 1, 0));
        convictByGame(second);
        convictByGame(first);
        assertEq(crew.lost(), 200 ether);
        ownCourt.decide(accuse(1, first), true);
        refuses(1, first, abi.encodeWithSelector(ICrews.AlreadyAccused.selector, idOf(first), 1));
        (Transcript memory t, Said memory said) = transcript(1, first);
        accuse(second, t, said, abi.encodePacked(ICrews.WrongClaim.selector));
        t.attempt += 1;
        accuse(first, t, said, abi.encodePacked(ICrews.WrongClaim.selector));
        tasks.void(other);
        dissolve();
        assertRefunds(250 ether + BOND, 300 ether, 400 ether);
    }

    /// @notice However the leader and a puppet play, each member is accused once for a claim, within its window; the rest is games.
    function test_AccusationsPutPayingOffByAGameAtMost() public {
        Claim memory claim = convicted();
        uint256 game = accuse(1, claim);
        ownCourt.decide(game, false);
        refuses(1, claim, abi.encodeWithSelector(ICrews.AlreadyAccused.selector, idOf(claim), 1));
        vm.prank(account(1));
        crew.dissolve(invited, 1);
        uint64 end = u64(block.timestamp) + 500;
        vm.warp(end);
        game = accuse(2, claim);
        vm.warp(end + 1);
        refuses(0, claim, abi.encodeWithSelector(ICrews.WindowClosed.selector, end));
        skip(UNBOND_DELAY);
        vm.expectRevert(abi.encodeWithSelector(ICrew.GamesOpen.selector, 2));
        crew.finish(invited);
        ownCourt.decide(game, false);
        assertRefunds(STAKE - 100 ether, STAKE + BOND, STAKE + BOND);
    }

    function test_NobodyIsAccusedOfWhatWasNotLost() public {
        (Claim memory ours, Claim memory other) = working();
        refuses(1, ours, abi.encodePacked(ICrews.WrongClaim.selector));
        convictByGame(other);
        refuses(1, other, abi.encodePacked(ICrews.WrongClaim.selector));
    }

    /// @notice An account may take code later (EIP-7702) that denies its signatures.
    function test_WhoHasSignedIsAccusedWhateverCodeItsAccountHasTaken() public {
        Claim memory claim = convicted();
        vm.etch(account(1), hex"5f5ffd"); // reverts, whatever it is asked
        assertGt(accuse(1, claim), 0);
    }

    function test_NobodyIsAccusedOfWhatItDidNotSign() public {
        Claim memory claim = convicted();
        (Transcript memory t, Said memory said) = transcript(1, claim);
        bytes memory another = signature(2, crews.digestOf(t));
        vm.prank(account(0));
        vm.expectRevert(abi.encodeWithSelector(ICrews.WrongSignature.selector, account(1)));
        crews.accuse(invited, claim, t, another, said);
        vm.prank(account(2));
        vm.expectRevert(abi.encodeWithSelector(ICrews.NotLeader.selector, account(0)));
        crews.accuse(invited, claim, t, another, said);
        said.outRoot = "another";
        accuse(claim, t, said, abi.encodePacked(ICrews.BadProof.selector));
        t.crew = address(this);
        accuse(claim, t, said, abi.encodePacked(ICrews.WrongClaim.selector));
    }

    function test_NobodyIsPaidOutBeforeAnAccusationIsDecided() public {
        uint256 gameId = accuse(1, convicted());
        dissolve();
        vm.expectRevert(abi.encodeWithSelector(ICrew.GamesOpen.selector, 1));
        crew.finish(invited);
        ownCourt.decide(gameId, true);
        assertRefunds(STAKE - 50 ether + BOND, STAKE - 100 ether, STAKE);
    }

    /// @notice A leader loses a game to its own puppet, or commits what it knows to be wrong and convicts that first, and lets a
    /// member pay. What the two of them have is what they had, less what the accusation's bond risks.
    function test_ALeaderGainsNothingByItsOwnConviction() public {
        uint256 had = token.balanceOf(account(0)) + free(account(0)) + free(whistle);
        Claim memory claim = convicted();
        uint256 supply = token.totalSupply();
        ownCourt.decide(accuse(1, claim), true);
        dissolve();
        crew.finish(invited);
        uint256 reward = free(whistle) + token.balanceOf(account(0)) + free(account(0)) - had;
        assertEq(reward, 0, "the finder's half is what the leader bears");
        assertEq(supply - token.totalSupply(), 50 ether, "burnt");
    }

    function test_OnlyItsCourtJudges() public {
        Claim memory claim = convicted();
        uint256 gameId = accuse(1, claim);
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
        assertEq(game.params.claimId, idOf(claim));
        assertEq(crews.accused(idOf(claim), 1), true);
        assertEq(crews.accused(idOf(claim), 2), false);
    }

    // Gas

    /// @dev As at the beginning of a transaction.
    function cold() private {
        vm.cool(address(crews));
        if (address(crew) != address(0)) vm.cool(address(crew));
        vm.cool(address(token));
        chill();
    }

    /// @dev Of a market whose first crew was formed before.
    function test_GasOfForming() public {
        vm.prank(address(crews));
        token.approve(address(vault), type(uint256).max);
        uint256 snapshot = vm.snapshotState();
        forms("form, 3 members");
        vm.revertToState(snapshot);
        for (uint256 i = 3; i < 8; ++i) {
            privateKeys.push(0xA11CE + i);
            address who = vm.addr(privateKeys[i]);
            invited.members.push(Member(who, 0, ProgramRef(bytes32(i + 1), 20, 3, 2)));
            token.transfer(who, 1000 ether);
            vm.prank(who);
            token.approve(address(crews), STAKE);
        }
        forms("form, 8 members");
        vm.prank(solvers[1]);
        cold();
        uint256 before = gasleft();
        tasks.takeShard(jobId, 1, 0);
        vm.snapshotValue("crew", "take, without a crew", before - gasleft());
    }

    function forms(string memory name) private {
        bytes[] memory signatures = consents();
        vm.prank(account(0));
        cold();
        uint256 before = gasleft();
        crews.form(invited, signatures);
        vm.snapshotValue("crew", name, before - gasleft());
    }

    function test_GasOfATask() public {
        form();
        Claim memory claim = draft(Kind.TASK, 0, 0);
        bytes32[] memory ends = segmentEnds(claim);
        uint256 snapshot = vm.snapshotState();
        vm.prank(account(0));
        cold();
        uint256 before = gasleft();
        crew.commit(claim, ends);
        vm.snapshotValue("crew", "commit", before - gasleft());
        vm.revertToState(snapshot);
        vm.prank(solvers[1]);
        tasks.takeShard(jobId, 1, 0);
        claim = draft(Kind.TASK, 0, 1);
        ends = segmentEnds(claim);
        vm.prank(solvers[1]);
        cold();
        before = gasleft();
        tasks.commit(claim, ends);
        vm.snapshotValue("crew", "commit, without a crew", before - gasleft());
    }

    function test_GasOfACharge() public {
        uint256 gameId = accuse(1, convicted());
        Game memory game = ownCourt.game(gameId);
        vm.prank(address(ownCourt));
        cold();
        uint256 before = gasleft();
        crews.resolve(gameId, game, true);
        vm.snapshotValue("crew", "charge", before - gasleft());
    }
}
