// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {IChallenges} from "../../src/interfaces/IChallenges.sol";
import {IClasses} from "../../src/interfaces/IClasses.sol";
import {IGuardian} from "../../src/interfaces/IGuardian.sol";
import {IJobs} from "../../src/interfaces/IJobs.sol";
import {IStakes} from "../../src/interfaces/IStakes.sol";
import {ITasks} from "../../src/interfaces/ITasks.sol";
import {IVault} from "../../src/interfaces/IVault.sol";
import {Claim, Conditions, Found, INPUT, Kind, Role, Terms} from "../../src/interfaces/Types.sol";
import {accountKey} from "../../src/libraries/AccountKey.sol";
import {Vm} from "../Vm.sol";
import {FindingsMarket} from "./FindingsMarket.sol";

/// @notice What the market's events say, word for word: whoever follows a market has nothing else.
contract EventsTest is FindingsMarket {
    function setUp() external {
        setUpClaim();
    }

    /// @dev The next call emits this one, after those expected before.
    function from(address emitter) private {
        vm.expectEmit(emitter);
    }

    function moved(IVault.Bucket source, bytes32 key, IVault.Bucket to, bytes32 toKey, uint256 amount)
        private
    {
        from(address(vault));
        emit IVault.Transfer(source, key, to, toKey, amount);
    }

    function slashed(address account, Role role, uint256 amount) private {
        from(address(stakes));
        emit IStakes.Slashed(account, role, amount, amount);
    }

    // Jobs

    function test_aJobSaysItsBeginningAndItsEnd() external {
        Terms memory t = aTerms();
        t.nonce = 1;
        uint256 budget = jobs.worstCase(t);
        bytes32 id = jobs.jobIdOf(t);
        from(address(jobs));
        emit IJobs.JobPosted(id, client, budget, t);
        from(address(jobs));
        emit IJobs.RoundStarted(id, 0);
        moved(IVault.Bucket.FREE, accountKey(client), IVault.Bucket.ESCROW, id, budget);
        vm.startPrank(client);
        jobs.post(t, budget);
        from(address(jobs));
        emit IJobs.JobFunded(id, 3 ether);
        jobs.topUp(id, 3 ether);
        from(address(jobs));
        emit IJobs.JobHalted(id, 0);
        jobs.halt(id);
        skip(t.taskTime + 1);
        from(address(jobs));
        emit IJobs.JobClosed(id, budget + 3 ether);
        moved(IVault.Bucket.ESCROW, id, IVault.Bucket.FREE, accountKey(client), budget + 3 ether);
        jobs.close(id);
    }

    function test_aRoundSaysThatItBeginsAndWhatWasMissing() external {
        Terms memory t = aTerms();
        (t.minShards, t.nonce) = (1, 1);
        postJob(t);
        holdShards();
        acceptedTask(0, 0);
        skip(t.taskTime + t.stragglerTime + 1);
        Claim memory outer = draft(Kind.OUTER, 0, 0);
        bytes32[] memory roots = segmentEnds(outer);
        (outer.claimant, outer.price) = (solvers[0], t.outerFee);
        outer.committedAt = u64(vm.getBlockTimestamp());
        from(address(jobs));
        emit IJobs.ShardsMissing(jobId, 0, 1);
        from(address(jobs));
        emit IJobs.RoundStarted(jobId, 1);
        from(address(tasks));
        emit ITasks.Committed(idOf(outer), jobId, solvers[0], outer, roots, 0);
        from(address(tasks));
        emit ITasks.Accepted(idOf(outer), outer.committedAt + t.challengeWindow);
        vm.prank(solvers[0]);
        tasks.commit(outer, roots);
    }

    // Shards, votes, payment

    function test_aShardSaysWhoHoldsItAndWhyNoLonger() external {
        from(address(tasks));
        emit ITasks.ShardReleased(jobId, 1, solvers[1], "released");
        slashed(solvers[1], Role.SOLVER, 7 ether);
        releaseAs(solvers[1], 1);
        from(address(tasks));
        emit ITasks.ShardAssigned(jobId, 1, solvers[1], 10 ether);
        takeAs(solvers[1], 1);
        skip(1001);
        from(address(tasks));
        emit ITasks.ShardReleased(jobId, 1, solvers[1], "deadline missed");
        tasks.expire(jobId, 1);
    }

    /// @dev Of the three drawn one votes, one is silent, one abstains.
    function test_aClaimSaysWhoIsDrawnAndWhatEachDoes() external {
        bytes32 id = idOf(fallen);
        uint256 snapshot = vm.snapshotState();
        address[] memory drawn = seedFor(fallen);
        bytes32 seed = statusOf(fallen).seed;
        vm.revertToState(snapshot);
        vm.roll(statusOf(fallen).seedBlock + 1);
        bytes memory header = mineHeader(
            statusOf(fallen).seedBlock, keccak256(abi.encode("randao", statusOf(fallen).seedBlock))
        );
        from(address(tasks));
        emit ITasks.SeedRecorded(id, seed, drawn);
        tasks.recordSeed(fallen, header);
        from(address(tasks));
        emit ITasks.VoteShown(id, drawn[0], true, tracesOf(drawn[0]));
        voteAs(drawn[0], fallen, true);
        from(address(tasks));
        emit ITasks.VoteAbstained(id, drawn[2]);
        abstainAs(drawn[2], fallen);
        skip(75);
        snapshot = vm.snapshotState();
        tasks.tally(fallen);
        address[] memory called = new address[](2);
        (called[0], called[1]) = (drawnOf(fallen)[3], drawnOf(fallen)[4]);
        vm.revertToState(snapshot);
        from(address(tasks));
        emit ITasks.VoteFined(id, drawn[1], 7 ether);
        slashed(drawn[1], Role.VERIFIER, 7 ether);
        from(address(vault));
        emit IVault.Burnt(IVault.Bucket.FREE, accountKey(address(tasks)), 7 ether);
        from(address(tasks));
        emit ITasks.Called(id, called);
        tasks.tally(fallen);
        voteAs(called[0], fallen, true);
        voteAs(called[1], fallen, true);
        from(address(tasks));
        emit ITasks.Accepted(id, u64(vm.getBlockTimestamp()) + 500);
        tasks.tally(fallen);
        address[] memory paid = new address[](4);
        (paid[0], paid[1], paid[2], paid[3]) = (solvers[0], drawn[0], called[0], called[1]);
        skip(501);
        from(address(tasks));
        emit ITasks.Settled(id, solvers[0], 10 ether);
        from(address(vault));
        emit IVault.Paid(IVault.Bucket.ESCROW, jobId, paid, 10 ether, 1 ether);
        tasks.settle(fallen);
    }

    function test_aSeedThatCannotBeHadAnyMoreIsDrawnAnew() external {
        vm.roll(vm.getBlockNumber() + 10_000);
        from(address(tasks));
        emit ITasks.Redrawn(idOf(fallen), u64(vm.getBlockNumber()) + 2);
        tasks.recordSeed(fallen, "");
    }

    // Falls

    function test_aFallSaysWhoPaysWhom() external {
        bytes32 id = idOf(fallen);
        address[] memory drawn = accept(fallen);
        uint64 here = u64(vm.getBlockNumber());
        bytes32 salt = newSalt();
        bytes32 commitment = keccak256(abi.encode(whistle, id, uint32(1), address(0), TRUTH, salt));
        from(address(challenges));
        emit IChallenges.Announced(whistle, commitment);
        vm.prank(whistle);
        challenges.announce(commitment);
        vm.roll(here + 1);
        from(address(challenges));
        emit IChallenges.FindingShown(id, Found(whistle, 1, here, here + 1, TRUTH, false));
        from(address(challenges));
        emit IChallenges.Challenged(1, id, whistle, 1, address(0));
        moved(IVault.Bucket.FREE, accountKey(whistle), IVault.Bucket.BOND, bytes32(uint256(1)), 30 ether);
        uint256 game = showAs(whistle, 1, TRUTH, salt);
        slashed(solvers[0], Role.SOLVER, 100 ether);
        from(address(tasks));
        emit ITasks.ShardReleased(jobId, 0, solvers[0], "convicted");
        from(address(jobs));
        emit IJobs.Rewound(jobId, 1, 0, 0);
        from(address(tasks));
        emit ITasks.Convicted(id, solvers[0], whistle, 100 ether, 50 ether, 47 ether);
        from(address(challenges));
        emit IChallenges.Resolved(game, id, true, 0, 30 ether);
        court.decide(game, true);
        fallOfAVote(drawn[0]);
        address[] memory left = new address[](2);
        (left[0], left[1]) = (drawn[1], drawn[2]);
        skip(501);
        from(address(tasks));
        emit ITasks.SeatsFreed(id, left, 1 ether);
        tasks.freeSeats(fallen);
    }

    function fallOfAVote(address verifier) private {
        bytes32 id = idOf(fallen);
        uint256 game = openVoteAs(whistle, fallen, verifier, 0);
        slashed(verifier, Role.VERIFIER, 30 ether);
        from(address(tasks));
        emit ITasks.VoteConvicted(id, verifier, whistle, 30 ether, 15 ether);
        from(address(challenges));
        emit IChallenges.Resolved(game, id, true, 0, 30 ether);
        court.decide(game, true);
    }

    function test_aGameOnAVoteSaysWhoseItIs() external {
        address verifier = accept(fallen)[1];
        bytes32[] memory traces = tracesOf(verifier);
        uint256 segment = sampleOf(statusOf(fallen).seed, verifier, 1, SEGMENTS);
        bytes32 salt = announceAs(whistle, idOf(fallen), 1, verifier);
        bytes32[] memory proof = memberProof(fallenRoots, segment);
        bytes32[] memory way = memberProof(traces, 1);
        from(address(challenges));
        emit IChallenges.Challenged(1, idOf(fallen), whistle, u32(segment), verifier);
        vm.prank(whistle);
        challenges.openVote(fallen, verifier, 1, fallenRoots[segment], proof, traces[1], way, salt);
    }

    function test_aRewindSaysWhatItWastesAndAVoidWhatItPays() external {
        Claim[] memory first = new Claim[](3);
        accept(fallen);
        (first[0], first[1]) = (fallen, acceptedTask(0, 1));
        commitOuter(0);
        Claim[] memory second = playRound(1);
        uint256 game = challengeAs(whistle, first[0], 0);
        from(address(jobs));
        emit IJobs.Rewound(jobId, 1, 0, 36 ether);
        court.decide(game, true);
        from(address(tasks));
        emit ITasks.Voided(idOf(second[1]), solvers[1], 10 ether);
        tasks.void(second[1]);
    }

    function test_aRewardThatWaitsSaysForWhatAndWhoGetsIt() external {
        bytes32 id = idOf(fallen);
        (uint256 game, Found memory a) = looked(whistle, 1, TRUTH);
        (uint256 other, Found memory b) = looked(stranger, 1, TRUTH);
        from(address(tasks));
        emit ITasks.RewardKept(id, whistle, REWARD, false);
        from(address(challenges));
        emit IChallenges.FindingKept(id, keccak256(abi.encode(lost(copy(a)))), true);
        court.decide(game, true);
        from(address(challenges));
        emit IChallenges.FindingKept(id, keccak256(abi.encode(lost(copy(b)))), false);
        court.decide(other, false);
        address[] memory finders = new address[](1);
        finders[0] = whistle; // the other came later
        b.won = false;
        from(address(tasks));
        emit ITasks.RewardShared(id, finders, REWARD);
        challenges.shareAlike(id, list(a, b));
    }

    function copy(Found memory f) private pure returns (Found memory) {
        return Found(f.finder, f.segment, f.announced, f.shown, f.root, f.won);
    }

    function test_aBindingSaysWhichSlotConvictsAndWhatWasFound() external {
        accept(fallen);
        acceptedTask(0, 1);
        settled = commitOuter(0);
        fallen = commitTask(1, 0);
        bytes32[] memory input = stateSlots(string.concat("in", vm.toString(fallen.manifest)), SLOTS);
        bytes32[] memory source =
            stateSlots(string.concat("out", vm.toString(settled.manifest)), (2 + SHARDS) * PARAMS);
        bytes32 salt = announceAs(stranger, idOf(fallen), INPUT, address(0));
        vm.prank(stranger);
        challenges.openInput(fallen, TRUTH, salt);
        uint64 here = u64(vm.getBlockNumber());
        Found memory found = Found(whistle, INPUT, here, here + 1, TRUTH, false);
        salt = announceSlot(whistle, idOf(fallen), 1, input[1]);
        (bytes32[] memory proof, bytes32[] memory way) = (memberProof(input, 1), memberProof(source, 1));
        from(address(challenges));
        emit IChallenges.BindingConvicted(idOf(fallen), 1, whistle);
        from(address(challenges));
        emit IChallenges.FindingShown(idOf(fallen), found);
        from(address(challenges));
        emit IChallenges.FindingKept(idOf(fallen), keccak256(abi.encode(found)), true);
        vm.prank(whistle);
        challenges.proveBinding(fallen, 1, input[1], proof, settled, source[1], way, TRUTH, salt);
    }

    // Stakes, ledger, classes, pauses

    function test_stakesSayWhatIsStakedUnbondedAndAllowed() external {
        vm.startPrank(whistle);
        from(address(stakes));
        emit IStakes.Staked(whistle, Role.VERIFIER, 10 ether);
        stakes.stake(Role.VERIFIER, 10 ether);
        from(address(stakes));
        emit IStakes.Subscribed(whistle, "class");
        stakes.subscribe("class");
        from(address(stakes));
        emit IStakes.Capped(whistle, Role.VERIFIER, 5 ether, 2 ether);
        stakes.cap(whistle, Role.VERIFIER, 5 ether, 2 ether);
        from(address(stakes));
        emit IStakes.ClientCapped(whistle, Role.VERIFIER, client, 1 ether);
        stakes.capClient(whistle, Role.VERIFIER, client, 1 ether);
        from(address(stakes));
        emit IStakes.Endpoint(whistle, "https://example.org");
        stakes.setEndpoint("https://example.org");
        uint64 due = u64(vm.getBlockTimestamp()) + UNBOND_DELAY;
        from(address(stakes));
        emit IStakes.UnbondStarted(whistle, Role.VERIFIER, 0, 4 ether, due);
        moved(IVault.Bucket.STAKE, 0, IVault.Bucket.UNBONDING, 0, 4 ether);
        stakes.startUnbond(Role.VERIFIER, 4 ether);
        vm.warp(due);
        from(address(stakes));
        emit IStakes.UnbondFinished(whistle, Role.VERIFIER, 0, 4 ether);
        stakes.finishUnbond(Role.VERIFIER, 0);
    }

    function test_theLedgerSaysWhatComesGoesAndIsDestroyed() external {
        from(address(vault));
        emit IVault.PermitFailed(
            address(this), abi.encodeWithSignature("ERC2612ExpiredSignature(uint256)", 0)
        );
        from(address(vault));
        emit IVault.Deposited(address(this), stranger, 5 ether);
        vault.depositWithPermit(stranger, 5 ether, 0, 0, 0, 0);
        vm.startPrank(stranger);
        from(address(vault));
        emit IVault.Withdrawn(stranger, client, 2 ether);
        vault.withdraw(client, 2 ether);
        from(address(vault));
        emit IVault.Allowed(stranger, 3 ether);
        vault.allow(stranger, 3 ether);
        vm.stopPrank();
        convictByGame(fallen);
        from(address(vault));
        emit IVault.Destroyed(50 ether);
        vault.destroy();
    }

    function test_aClassSaysItsConditionsAndItsAuthor() external {
        Conditions memory c = conditionsOf(aTerms());
        c.samples = 1;
        from(address(classes));
        emit IClasses.ClassRegistered(keccak256(abi.encode(c)), stranger, c);
        vm.prank(stranger);
        classes.register(c);
    }

    function test_aPauseSaysWhatItStopsAndWhoDecides() external {
        vm.recordLogs();
        emit IGuardian.PauserChanged(address(0), pauser);
        deployed("Guardian", abi.encode(pauser));
        (bytes32[] memory said, bytes32[] memory expected) = lastTwo();
        assertEq(keccak256(abi.encode(said)), keccak256(abi.encode(expected)), "at its beginning");
        vm.startPrank(pauser);
        from(address(guardian));
        emit IGuardian.PauseChanged(IGuardian.Business.SHARDS, true);
        guardian.setPaused(IGuardian.Business.SHARDS, true);
        from(address(guardian));
        emit IGuardian.PauserChanged(pauser, stranger);
        guardian.handOver(stranger);
    }

    function lastTwo() private returns (bytes32[] memory said, bytes32[] memory expected) {
        Vm.Log[] memory logs = vm.getRecordedLogs();
        assertEq(logs.length, 2);
        return (logs[1].topics, logs[0].topics);
    }
}
