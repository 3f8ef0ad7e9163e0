// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {IBatch} from "../../src/interfaces/IBatch.sol";
import {IStakes} from "../../src/interfaces/IStakes.sol";
import {ITasks} from "../../src/interfaces/ITasks.sol";
import {Claim, Kind, Phase, Role, Terms} from "../../src/interfaces/Types.sol";
import {Merkle} from "../../src/libraries/Merkle.sol";
import {Market} from "./Market.sol";

/// @notice Many due things in one transaction: what each costs alone and among eight, and that a batch is no more than its calls.
/// forge-config: default.isolate = true
contract BatchTest is Market {
    uint32 private constant MANY = 8;

    Claim[] private claims;
    bytes private header; // of the claims' seed block

    function setUp() external {
        setUpMarket();
        for (uint256 i; i < verifiers.length; ++i) {
            fund(verifiers[i], 1 ether);
        }
    }

    /// @dev A job of eight shards, all held by one solver, so many seats a task, and as many verifiers who are drawn for every
    /// task. Its first round is over and settled, so every account has acted before; the second's tasks are committed.
    function _begin(uint32 seats) private {
        Terms memory t = aTerms();
        (t.shards, t.minShards) = (MANY, MANY);
        shape(t, SLOTS, PARAMS, MANY);
        t.maxUnsettled = 1;
        for (uint256 i = seats; i < verifiers.length; ++i) {
            vm.startPrank(verifiers[i]);
            stakes.startUnbond(Role.VERIFIER, stakes.active(verifiers[i], Role.VERIFIER));
            vm.stopPrank();
        }
        (t.verifiers, t.verifierStake, t.challengeBond, t.missPenalty) = (seats, 10 ether, 10 ether, 5 ether);
        t.solverStake = 500 ether; // beyond 8/3 of the eight tasks' worth
        stakeAs(solvers[0], Role.SOLVER, 9000 ether);
        postJob(t);
        for (uint32 i; i < MANY; ++i) {
            takeAs(solvers[0], i);
            claims.push(acceptedTask(0, i));
        }
        Claim memory outer = commitOuter(0);
        skip(501);
        for (uint32 i; i < MANY; ++i) {
            tasks.settle(claims[i]);
        }
        tasks.settle(outer);
        for (uint32 i; i < MANY; ++i) {
            claims[i] = submit(solvers[0], draft(Kind.TASK, 1, i));
        }
        uint64 seedBlock = statusOf(claims[0]).seedBlock;
        vm.roll(seedBlock + 1);
        header = mineHeader(seedBlock, keccak256("randao"));
    }

    // ---- gas

    function test_gasOfManyInOneTransactionWithTwoSeats() external {
        uint256 commit = 125_000; // at most (Gas.t.sol)
        assertLe(_measureAll("batch", 2), MANY * (415_000 - commit), "a task, beside its commit");
    }

    function test_gasOfManyInOneTransactionWithThreeSeats() external {
        _measureAll("batch_3_seats", 3);
    }

    function _measureAll(string memory group, uint32 seats) private returns (uint256 cost) {
        _begin(seats);
        cost = _measure(group, address(this), "record_seed", _records());
        for (uint256 v; v < seats; ++v) {
            bytes[] memory calls = new bytes[](MANY);
            for (uint256 i; i < MANY; ++i) {
                bytes32[] memory traces = tracesOf(verifiers[v]);
                calls[i] =
                    abi.encodeCall(ITasks.vote, (idOf(claims[i]), statusOf(claims[i]).seed, true, traces));
            }
            cost += _measure(group, verifiers[v], "vote", calls);
        }
        cost += _measure(group, address(this), "tally", _calls(ITasks.tally.selector));
        commitOuter(1);
        skip(501);
        cost += _measure(group, address(this), "settle", _calls(ITasks.settle.selector));
        for (uint256 i; i < MANY; ++i) {
            assertPhase(claims[i], Phase.SETTLED);
        }
    }

    /// @dev The first alone, then (as if that had not been) all together; returns what all together cost.
    function _measure(string memory group, address by, string memory name, bytes[] memory calls)
        private
        returns (uint256 cost)
    {
        uint256 before = vm.snapshotState();
        vm.prank(by);
        (bool done,) = address(tasks).call(calls[0]);
        vm.snapshotGasLastCall(group, string.concat(name, "_1"));
        assertTrue(done, name);
        vm.revertToState(before);
        vm.prank(by);
        tasks.multicall(calls);
        cost = vm.snapshotGasLastCall(group, string.concat(name, "_batch_8"));
    }

    function _calls(bytes4 selector) private view returns (bytes[] memory calls) {
        calls = new bytes[](MANY);
        for (uint256 i; i < MANY; ++i) {
            calls[i] = abi.encodeWithSelector(selector, claims[i]);
        }
    }

    function _records() private view returns (bytes[] memory calls) {
        calls = new bytes[](MANY);
        for (uint256 i; i < MANY; ++i) {
            calls[i] = abi.encodeCall(ITasks.recordSeed, (claims[i], i == 0 ? header : bytes("")));
        }
    }

    // ---- no more than its calls

    function test_aBatchWithARefusedCallDoesNothingAndSaysWhy() external {
        _begin(2);
        bytes[] memory calls = _records();
        calls[MANY - 1] = calls[0];
        vm.expectRevert(abi.encodeWithSelector(ITasks.WrongPhase.selector, Phase.SEEDED));
        tasks.multicall(calls);
        assertPhase(claims[0], Phase.COMMITTED);
    }

    // ---- one header for the claims of a block

    function test_oneHeaderServesAllOfABatchAsOneForEach() external {
        _begin(2);
        uint256 before = vm.snapshotState();
        bytes32[] memory seeds = new bytes32[](MANY);
        for (uint256 i; i < MANY; ++i) {
            tasks.recordSeed(claims[i], header);
            seeds[i] = statusOf(claims[i]).seed;
        }
        vm.revertToState(before);
        tasks.multicall(_records());
        for (uint256 i; i < MANY; ++i) {
            assertEq(statusOf(claims[i]).seed, seeds[i]);
        }
        assertFalse(seeds[0] == seeds[1]);
    }

    /// @dev So nobody has the hash, for which a builder can try contents, stand in the value's place before its time.
    function test_Attack29_aHeaderServesNoOtherTransaction() external {
        _begin(2);
        uint64 seedBlock = statusOf(claims[0]).seedBlock;
        tasks.recordSeed(claims[0], header);
        vm.expectRevert(abi.encodeWithSelector(ITasks.HeaderAwaited.selector, seedBlock + 128));
        tasks.recordSeed(claims[1], "");
        assertPhase(claims[1], Phase.COMMITTED);
    }

    function test_Attack29_aHeaderServesNoOtherBlocksClaims() external {
        _begin(2);
        releaseAs(solvers[0], 7);
        postJob(aTerms());
        holdShards();
        claims[1] = commitTask(0, 0);
        uint64 seedBlock = statusOf(claims[1]).seedBlock;
        assertGt(seedBlock, statusOf(claims[0]).seedBlock);
        vm.roll(seedBlock + 1);
        mineHeader(seedBlock, keccak256("another"));
        vm.expectRevert(abi.encodeWithSelector(ITasks.HeaderAwaited.selector, seedBlock + 128));
        tasks.multicall(_records());
    }

    function test_aHeaderThatIsNotTheBlocksServesNobody() external {
        _begin(2);
        bytes[] memory calls = _records();
        calls[0] = abi.encodeCall(ITasks.recordSeed, (claims[0], bytes.concat(header, hex"00")));
        uint64 seedBlock = statusOf(claims[0]).seedBlock;
        vm.expectRevert(abi.encodeWithSelector(ITasks.WrongHeader.selector, seedBlock));
        tasks.multicall(calls);
    }

    // ---- who acts

    function test_aBatchActsAsItsCallerAlone() external {
        _begin(2);
        bytes[] memory calls = new bytes[](2);
        calls[0] = abi.encodeCall(ITasks.release, (jobId, 0)); // by the extension
        calls[1] = abi.encodeCall(ITasks.release, (jobId, 1));
        vm.expectRevert(abi.encodeWithSelector(ITasks.NotHolder.selector, solvers[0]));
        vm.prank(stranger);
        tasks.multicall(calls);
        vm.prank(solvers[0]);
        tasks.multicall(calls);
        (address holder,,) = tasks.holder(jobId, 1);
        assertEq(holder, address(0));
    }

    function test_whatOnlyModulesMayDoIsRefusedInABatchToo() external {
        bytes[] memory calls = new bytes[](1);
        calls[0] = abi.encodeCall(IStakes.unlock, (solvers[0], Role.SOLVER, 1, client));
        vm.expectRevert(abi.encodeWithSelector(IStakes.NotModule.selector, solvers[0]));
        vm.prank(solvers[0]);
        stakes.multicall(calls);
        calls[0] = abi.encodeCall(IBatch.multicall, (calls));
        vm.expectRevert(abi.encodeWithSelector(IStakes.NotModule.selector, solvers[0]));
        vm.prank(solvers[0]);
        stakes.multicall(calls);
    }

    function test_aBatchReturnsWhatItsCallsReturn() external {
        bytes[] memory calls = new bytes[](2);
        calls[0] = abi.encodeCall(IStakes.startUnbond, (Role.SOLVER, 1 ether));
        calls[1] = abi.encodeCall(IStakes.startUnbond, (Role.SOLVER, 2 ether));
        vm.prank(solvers[1]);
        bytes[] memory results = stakes.multicall(calls);
        assertEq(abi.decode(results[1], (uint256)), 1, "the second request");
        assertEq(stakes.unbonding(solvers[1], Role.SOLVER), 3 ether);
    }

    function test_severalFindingsAreAnnouncedTogether() external {
        bytes[] memory calls = new bytes[](2);
        calls[0] = abi.encodeCall(challenges.announce, (bytes32("one")));
        calls[1] = abi.encodeCall(challenges.announce, (bytes32("two")));
        challenges.multicall(calls);
        assertEq(challenges.announcedAt("one"), challenges.announcedAt("two"));
        assertEq(challenges.announcedAt("two"), vm.getBlockNumber());
    }
}
