// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {Claim, Found, INPUT, Kind, Phase, Terms} from "../../src/interfaces/Types.sol";
import {FindingsMarket} from "./FindingsMarket.sol";

/// @notice Whether a finding about an input counts (docs/protocol.md 5.4): a claim fell for something else, and its place is
/// settled from another input.
contract InputFindingsTest is FindingsMarket {
    bytes32 private constant RIGHT = keccak256("the input as it should be");

    /// @dev Rounds that close with one task, and prices for whose waste a stake of 100 is enough.
    function setUp() external {
        setUpMarket();
        Terms memory t = aTerms();
        (t.minShards, t.rounds, t.maxUnsettled) = (1, 4, 4);
        (t.priceFloor, t.priceCap, t.verifierFee, t.outerFee) = (5 ether, 5 ether, 0, 1 ether);
        postJob(t);
        holdShards();
        fund(stranger, 1000 ether);
    }

    function dispute(Claim memory claim) private {
        fallen = claim;
        fallenRoots = segmentEnds(claim);
    }

    /// @dev Somebody asks for the claim's input, which it says is another one.
    function askFor(address who, bytes32 root) private returns (uint256 game, Found memory f) {
        f = Found(who, INPUT, u64(vm.getBlockNumber()), 0, root, false);
        bytes32 salt = announceRoot(who, idOf(fallen), INPUT, address(0), root);
        f.shown = u64(vm.getBlockNumber());
        vm.prank(who);
        game = challenges.openInput(fallen, root, salt);
    }

    /// @dev The claim falls to the first game that is about a segment; both findings are kept.
    function fell(address by, address asker) private returns (Found[] memory found) {
        (uint256 asked, Found memory about) = askFor(asker, RIGHT);
        (uint256 game, Found memory f) = looked(by, 0, keccak256("noise"));
        court.decide(game, true);
        assertPhase(fallen, Phase.CONVICTED);
        court.decide(asked, false);
        return list(f, about);
    }

    /// @dev The place is claimed again, from another input.
    function claimAgain(address by) private {
        Claim memory draft_ = draft(fallen.kind, fallen.round, fallen.shard);
        draft_.inputRoot = RIGHT;
        bytes32[] memory roots = segmentEnds(draft_);
        (settled, settledRoots) = commitAs(by, draft_, roots);
        if (fallen.kind == Kind.TASK) accept(settled);
    }

    function retake(uint32 shard) private {
        takeAs(solvers[shard], shard);
    }

    /// @dev Once these are settled, the reward is shared by the claim that is at the fallen one's place.
    function pay(Claim[3] memory before, Found[] memory found)
        private
        returns (uint256 asker, uint256 other)
    {
        skip(1001);
        for (uint256 i; i < before.length; ++i) {
            if (before[i].committedAt != 0) tasks.settle(before[i]);
        }
        tasks.settle(settled);
        (other, asker) = (free(found[0].finder), free(found[1].finder));
        share(found);
        assertEq(free(address(tasks)), 0);
        return (free(found[1].finder) - asker, free(found[0].finder) - other);
    }

    /// @notice T48: a claimant fells its own claim in a game of its own while an honest one about its input is open.
    function test_T48_whoFellsItsOwnClaimFirstTakesNothingOfAFindingAboutItsInput() external {
        Claim[3] memory before = [acceptedTask(0, 0), acceptedTask(0, 1), commitOuter(0)];
        dispute(commitTask(1, 0));
        Found[] memory found = fell(stranger, whistle);
        retake(0);
        claimAgain(solvers[0]);
        (uint256 finder, uint256 liar) = pay(before, found);
        assertEq(finder, REWARD);
        assertEq(liar, 0);
    }

    /// @notice The same about an outer claim.
    function test_T48_norWhereItIsAnOuterClaim() external {
        Claim[3] memory before = [acceptedTask(0, 0), acceptedTask(0, 1), fallen];
        dispute(commitOuter(0));
        Found[] memory found = fell(stranger, whistle);
        claimAgain(solvers[0]);
        (uint256 finder, uint256 liar) = pay(before, found);
        assertEq(finder, REWARD);
        assertEq(liar, 0);
    }

    /// @notice Another rewind between both claims, of what neither starts from, changes nothing for a task.
    function test_T48_aLaterRewindDoesNotMakeAnInputAnother() external {
        Claim[3] memory before = [acceptedTask(0, 0), acceptedTask(0, 1), commitOuter(0)];
        Claim memory beside = commitTask(1, 1);
        dispute(commitTask(1, 0));
        convictByGame(beside);
        Found[] memory found = fell(stranger, whistle);
        retake(0);
        claimAgain(solvers[0]);
        (uint256 finder,) = pay(before, found);
        assertEq(finder, REWARD);
    }

    /// @notice A ring fells an earlier claim, too, so that the input which it has announced is the one that is paid for: what a
    /// whistleblower has found in a segment stays its own.
    function test_T48_anInputThatCameByAnEarlierConvictionIsNoTruth() external {
        Claim[3] memory before = [acceptedTask(0, 0), acceptedTask(0, 1), commitOuter(0)];
        dispute(commitTask(1, 0));
        Found[] memory found = fell(whistle, stranger);
        convictByGame(before[1]);
        retake(0);
        retake(1);
        (before[1], before[2]) = (acceptedTask(0, 1), commitOuter(0));
        claimAgain(solvers[0]);
        (uint256 ring, uint256 finder) = pay(before, found);
        assertEq(ring, 0);
        assertEq(finder, REWARD);
    }

    /// @notice An outer claim falls, and a task comes into its round that was missing: its input is another one since.
    function test_T48_anInputThatATaskHasChangedSinceIsNoTruth() external {
        Claim[3] memory before = [acceptedTask(0, 0), fallen, fallen];
        vm.warp(jobs.progress(jobId).roundStart + 1301);
        dispute(commitOuter(0));
        Found[] memory found = fell(whistle, stranger);
        before[1] = acceptedTask(0, 1);
        claimAgain(solvers[0]);
        (uint256 ring, uint256 finder) = pay(before, found);
        assertEq(ring, 0);
        assertEq(finder, REWARD);
    }

    /// @notice Nor who fells it by its input with a root that is none: who has the right one has it all.
    function test_T48_norWhoFellsItByItsInputWithARootThatIsNone() external {
        Claim[3] memory before = [acceptedTask(0, 0), acceptedTask(0, 1), commitOuter(0)];
        dispute(commitTask(1, 0));
        (uint256 puppets, Found memory junk) = askFor(stranger, keccak256("another"));
        (uint256 honest, Found memory real) = askFor(whistle, RIGHT);
        court.decide(puppets, true);
        court.decide(honest, false);
        junk.won = true;
        retake(0);
        claimAgain(solvers[0]);
        (uint256 finder, uint256 liar) = pay(before, list(junk, real));
        assertEq(finder, REWARD);
        assertEq(liar, 0);
    }
}
