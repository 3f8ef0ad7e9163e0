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

    /// @dev A job of eight shards, all held by one solver, and four verifiers who are drawn for every task; one task of each shard is committed.
    function setUp() external {
        setUpMarket();
        Terms memory t = aTerms();
        (t.shards, t.minShards) = (MANY, MANY);
        shape(t, SLOTS, PARAMS, MANY);
        t.maxUnsettled = 1;
        vm.startPrank(verifiers[4]);
        stakes.startUnbond(Role.VERIFIER, 1000 ether);
        vm.stopPrank();
        (t.verifiers, t.verifierStake, t.challengeBond, t.missPenalty) = (4, 10 ether, 10 ether, 5 ether);
        postJob(t);
        for (uint256 i; i < verifiers.length; ++i) {
            fund(verifiers[i], 1 ether);
        }
        for (uint32 i; i < MANY; ++i) {
            vm.prank(solvers[0]);
            tasks.takeShard(jobId, i);
            claims.push(submit(solvers[0], draft(Kind.TASK, 0, i)));
        }
        uint64 seedBlock = statusOf(claims[0]).seedBlock;
        vm.roll(seedBlock + 1);
        header = mineHeader(seedBlock, keccak256("randao"));
    }

    // ---- gas

    function test_gasOfManyInOneTransaction() external {
        _measure(address(this), "record_seed", _records());
        for (uint256 v; v < 4; ++v) {
            bytes[] memory calls = new bytes[](MANY);
            for (uint256 i; i < MANY; ++i) {
                calls[i] =
                    abi.encodeCall(ITasks.commitVote, (claims[i], _commitment(verifiers[v], claims[i])));
            }
            _measure(verifiers[v], "commit_vote", calls);
        }
        for (uint256 v; v < 4; ++v) {
            bytes[] memory calls = new bytes[](MANY);
            for (uint256 i; i < MANY; ++i) {
                bytes32[] memory traces = tracesOf(verifiers[v]);
                calls[i] = abi.encodeCall(ITasks.revealVote, (claims[i], true, traces, VOTE_SALT));
            }
            _measure(verifiers[v], "reveal_vote", calls);
        }
        _measure(address(this), "tally", _calls(ITasks.tally.selector));
        commitOuter(0);
        skip(501);
        uint256 each = _measure(address(this), "settle", _calls(ITasks.settle.selector));
        assertLe(each, 8 * 85_000, "a settlement among eight");
        for (uint256 i; i < MANY; ++i) {
            assertPhase(claims[i], Phase.SETTLED);
        }
    }

    /// @dev The first alone, then (as if that had not been) all together; returns what all together cost.
    function _measure(address by, string memory name, bytes[] memory calls) private returns (uint256 cost) {
        uint256 before = vm.snapshotState();
        vm.prank(by);
        (bool done,) = address(tasks).call(calls[0]);
        vm.snapshotGasLastCall("batch", string.concat(name, "_1"));
        assertTrue(done, name);
        vm.revertToState(before);
        vm.prank(by);
        tasks.multicall(calls);
        cost = vm.snapshotGasLastCall("batch", string.concat(name, "_batch_8"));
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
            calls[i] = abi.encodeCall(ITasks.recordSeed, (claims[i], header));
        }
    }

    function _commitment(address verifier, Claim memory claim) private view returns (bytes32) {
        bytes32 root = Merkle.root(tracesOf(verifier));
        return keccak256(abi.encode(idOf(claim), verifier, true, root, VOTE_SALT));
    }

    // ---- no more than its calls

    function test_aBatchWithARefusedCallDoesNothingAndSaysWhy() external {
        bytes[] memory calls = _records();
        calls[MANY - 1] = calls[0];
        vm.expectRevert(abi.encodeWithSelector(ITasks.WrongPhase.selector, Phase.SEEDED));
        tasks.multicall(calls);
        assertPhase(claims[0], Phase.COMMITTED);
    }

    function test_aBatchActsAsItsCallerAlone() external {
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
