// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {IStakes} from "../../src/interfaces/IStakes.sol";
import {IVault} from "../../src/interfaces/IVault.sol";
import {Role} from "../../src/interfaces/Types.sol";
import {SumTree} from "../../src/libraries/SumTree.sol";
import {Vault} from "../../src/market/Vault.sol";
import {Vm} from "../Vm.sol";
import {Market} from "./Market.sol";
import {ERC20} from "@openzeppelin/contracts/token/ERC20/ERC20.sol";
import {IERC20} from "@openzeppelin/contracts/token/ERC20/IERC20.sol";
import {ReentrancyGuardTransient} from "@openzeppelin/contracts/utils/ReentrancyGuardTransient.sol";

/// @dev Keeps 1 % of every transfer, and calls back into the vault while it pays, if told to.
contract HostileToken is ERC20 {
    Vault private vault;
    bytes private callback;
    bytes public answer;

    constructor() ERC20("Hostile", "HOST") {
        _mint(msg.sender, 1000 ether);
    }

    function callBack(Vault vault_, bytes calldata data) external {
        (vault, callback) = (vault_, data);
    }

    function _update(address from, address to, uint256 value) internal override {
        super._update(from, to, value);
        if (from == address(0) || to == address(0)) return;
        super._update(to, address(0xfee), value / 100);
        // forge-lint: disable-next-line(unchecked-call)
        if (callback.length > 0) (, answer) = address(vault).call(callback);
    }
}

/// @notice The vault and the stakes, each rule and each error by itself.
contract LedgerTest is Market {
    using SumTree for SumTree.Tree;

    SumTree.Tree private tree;
    address private tasks_;

    function setUp() external {
        setUpMarket();
        tasks_ = address(tasks);
    }

    function key(address account) private pure returns (bytes32) {
        return bytes32(uint256(uint160(account)));
    }

    // Vault

    function test_onlyModulesMoveEntries() external {
        bytes memory refusal = abi.encodeWithSelector(IVault.NotModule.selector, stranger);
        vm.startPrank(stranger);
        vm.expectRevert(refusal);
        vault.move(IVault.Bucket.FREE, key(client), IVault.Bucket.FREE, key(stranger), 1);
        vm.expectRevert(refusal);
        vault.burn(IVault.Bucket.FREE, key(client), 1);
        vm.expectRevert(refusal);
        vault.payEach(IVault.Bucket.FREE, key(client), new address[](0), 0, 0);
        vm.stopPrank();
    }

    function test_aPaymentIsLoggedAsTheCompilerWould() external {
        for (uint256 n = 1; n < 6; ++n) {
            address[] memory to = new address[](n);
            for (uint256 i; i < n; ++i) {
                to[i] = address(type(uint160).max - uint160(i));
            }
            (uint256 first, uint256 rest) = (0.5 ether, 0.25 ether);
            vm.recordLogs();
            emit IVault.Paid(IVault.Bucket.STAKE, key(whistle), to, first, rest);
            emit IVault.Paid(IVault.Bucket.FREE, key(client), to, first, rest);
            vm.prank(tasks_);
            vault.payEach(IVault.Bucket.FREE, key(client), to, first, rest);
            Vm.Log[] memory logs = vm.getRecordedLogs();
            assertEq(logs.length, 3);
            assertTrue(logs[2].emitter == address(vault));
            assertEq(keccak256(abi.encode(logs[2].topics)), keccak256(abi.encode(logs[1].topics)));
            assertEq(keccak256(logs[2].data), keccak256(logs[1].data));
            assertNotEq(keccak256(logs[2].data), keccak256(logs[0].data));
        }
    }

    function test_noPaymentIsLoggedToAWordThatIsNoAddress() external {
        for (uint256 amount; amount < 2; ++amount) {
            assertTrue(_pays(amount, 0, 0), "to addresses");
            for (uint256 i; i < 3; ++i) {
                assertFalse(_pays(amount, i, 1 << 160), "the lowest bit above an address");
                assertFalse(_pays(amount, i, 1 << 255), "the highest");
            }
        }
    }

    /// @dev Whether the vault pays three accounts the amount each, if the i-th has these bits too.
    function _pays(uint256 amount, uint256 i, uint256 bits) private returns (bool done) {
        uint256[] memory to = new uint256[](3);
        for (uint256 n; n < 3; ++n) {
            to[n] = uint160(solvers[0]) | (n == i ? bits : 0);
        }
        bytes memory words = abi.encode(IVault.Bucket.FREE, key(client), to, amount, amount);
        vm.prank(tasks_);
        (done,) = address(vault).call(bytes.concat(IVault.payEach.selector, words));
    }

    function test_nobodyTakesMoreThanThereIs() external {
        uint256 there = free(whistle);
        vm.expectRevert(
            abi.encodeWithSelector(
                IVault.InsufficientBalance.selector, IVault.Bucket.FREE, key(whistle), there + 1, there
            )
        );
        vm.prank(whistle);
        vault.withdraw(whistle, there + 1);
    }

    function test_depositsAreWithdrawnAgain() external {
        vault.deposit(stranger, 5 ether);
        vm.prank(stranger);
        vault.withdraw(stranger, 5 ether);
        assertEq(token.balanceOf(stranger), 5 ether);
        assertEq(free(stranger), 0);
    }

    function test_aPermitThatSomebodyElseUsedDoesNotStopTheDeposit() external {
        (address owner, uint256 secret) = makeAddrAndKey("permit owner");
        require(token.transfer(owner, 10 ether));
        uint256 deadline = vm.getBlockTimestamp() + 1;
        bytes32 permit =
            keccak256("Permit(address owner,address spender,uint256 value,uint256 nonce,uint256 deadline)");
        bytes32 content = keccak256(abi.encode(permit, owner, address(vault), 10 ether, uint256(0), deadline));
        bytes32 digest = keccak256(abi.encodePacked(hex"1901", token.DOMAIN_SEPARATOR(), content));
        (uint8 v, bytes32 r, bytes32 s) = vm.sign(secret, digest);
        vm.prank(stranger);
        token.permit(owner, address(vault), 10 ether, deadline, v, r, s);
        vm.prank(owner);
        vault.depositWithPermit(owner, 10 ether, deadline, v, r, s);
        assertEq(free(owner), 10 ether);
    }

    function test_whatIsBurntLeavesTheSupplyWhenAnybodyDestroysIt() external {
        vm.prank(tasks_);
        vault.burn(IVault.Bucket.FREE, key(whistle), 3 ether);
        assertEq(vault.burnt(), 3 ether);
        assertEq(token.totalSupply(), SUPPLY, "not yet");
        assertSolvent();
        vault.destroy();
        vault.destroy();
        assertEq(token.totalSupply(), SUPPLY - 3 ether);
        assertEq(vault.burnt(), 3 ether);
        assertSolvent();
    }

    function test_nothingIsNoMoveAndNoBurnAndOneWeiIs() external {
        vm.startPrank(tasks_);
        vm.recordLogs();
        vault.burn(IVault.Bucket.FREE, key(whistle), 0);
        vault.move(IVault.Bucket.FREE, key(whistle), IVault.Bucket.STAKE, 0, 0);
        assertEq(vm.getRecordedLogs().length, 0);
        uint256 before = free(whistle);
        vault.burn(IVault.Bucket.FREE, key(whistle), 1);
        vault.move(IVault.Bucket.FREE, key(whistle), IVault.Bucket.STAKE, 0, 1);
        assertEq(before - free(whistle), 2);
        assertEq(vault.burnt(), 1);
    }

    function test_Attack20_aReceiverThatRefusesHurtsOnlyItself() external {
        // Payments only change ledger entries; the receiver is not called and cannot refuse.
        vm.etch(solvers[0], hex"fe");
        postJob(aTerms());
        holdShards();
        uint256 before = free(solvers[0]);
        settleAll(playRound(0));
        assertEq(free(solvers[0]) - before, 15 ether);
    }

    function test_Attack22_aTokenThatCallsBackFindsTheVaultClosed() external {
        HostileToken hostile = new HostileToken();
        Vault other = new Vault(
            IERC20(address(hostile)), address(1), address(2), address(3), address(4), address(5), keys
        );
        hostile.approve(address(other), type(uint256).max);
        hostile.callBack(other, abi.encodeCall(Vault.deposit, (address(this), 1)));
        other.deposit(address(this), 100 ether);
        assertEq(
            bytes4(hostile.answer()),
            ReentrancyGuardTransient.ReentrancyGuardReentrantCall.selector,
            "deposit"
        );
        assertEq(other.free(address(this)), 99 ether, "what arrived is credited, not what was sent");
        hostile.callBack(other, abi.encodeCall(Vault.withdraw, (address(this), 1)));
        other.withdraw(address(this), 99 ether);
        assertEq(
            bytes4(hostile.answer()), ReentrancyGuardTransient.ReentrancyGuardReentrantCall.selector, "claim"
        );
        assertEq(other.free(address(this)), 0);
    }

    // Stakes

    function test_onlyTasksLocksAndSlashes() external {
        bytes memory refusal = abi.encodeWithSelector(IStakes.NotModule.selector, address(this));
        vm.expectRevert(refusal);
        stakes.lock(solvers[0], Role.SOLVER, 1, client);
        vm.expectRevert(refusal);
        stakes.unlock(solvers[0], Role.SOLVER, 1, client);
        vm.expectRevert(refusal);
        stakes.unlockEach(new address[](0), Role.SOLVER, 1, client);
        vm.expectRevert(refusal);
        stakes.slash(solvers[0], Role.SOLVER, 1, client);
        address[] memory each = new address[](1);
        vm.expectRevert(refusal);
        stakes.fine(each, Role.SOLVER, 1, 1, client);
        vm.expectRevert(refusal);
        stakes.release(each, 1, 1, client);
        vm.expectRevert(refusal);
        stakes.seize(solvers[0], 1, each, each, 1, client);
        vm.expectRevert(refusal);
        stakes.seat("class", "seed", 1, 1, each, client);
    }

    function test_stakeThatAgreesToNoClassCountsInNone() external {
        address loner = makeAddr("loner");
        fund(loner, 100 ether);
        stakeAs(loner, Role.VERIFIER, 100 ether);
        vm.roll(vm.getBlockNumber() + 2 * WEIGHT_EPOCH);
        assertEq(stakes.drawWeight(0, loner) + stakes.classWeight(0), 0);
    }

    function test_aDrawThatFindsNobodyFreeEndsWithoutASeat() external {
        moreVerifiers(5);
        bytes32 class = aTerms().classId;
        vm.prank(tasks_);
        assertEq(stakes.seat(class, "seed", 1, 1e6 ether, new address[](0), client).length, 0);
    }

    function test_noMoreIsUnlockedThanIsLocked() external {
        vm.startPrank(tasks_);
        stakes.lock(solvers[0], Role.SOLVER, 5 ether, client);
        bytes memory refusal =
            abi.encodeWithSelector(IStakes.Underlocked.selector, solvers[0], Role.SOLVER, 6 ether, 5 ether);
        vm.expectRevert(refusal);
        stakes.unlock(solvers[0], Role.SOLVER, 6 ether, client);
        stakes.unlock(solvers[0], Role.SOLVER, 5 ether, client);
        vm.stopPrank();
        assertEq(lockedOf(solvers[0], Role.SOLVER), 0);
    }

    function test_zeroIsNoStake() external {
        vm.startPrank(solvers[0]);
        vm.expectRevert(IStakes.ZeroAmount.selector);
        stakes.stake(Role.SOLVER, 0);
        vm.expectRevert(IStakes.ZeroAmount.selector);
        stakes.startUnbond(Role.SOLVER, 0);
        vm.stopPrank();
    }

    function test_lockedStakeNeitherLeavesNorLocksTwice() external {
        vm.prank(tasks_);
        stakes.lock(solvers[0], Role.SOLVER, 900 ether, client);
        bytes memory refusal = abi.encodeWithSelector(
            IStakes.InsufficientStake.selector, solvers[0], Role.SOLVER, 101 ether, 100 ether
        );
        vm.expectRevert(refusal);
        vm.prank(solvers[0]);
        stakes.startUnbond(Role.SOLVER, 101 ether);
        vm.expectRevert(refusal);
        vm.prank(tasks_);
        stakes.lock(solvers[0], Role.SOLVER, 101 ether, client);
    }

    function test_unbondingEndsOnItsOwnDate() external {
        vm.startPrank(solvers[0]);
        uint256 first = stakes.startUnbond(Role.SOLVER, 300 ether);
        skip(1 days);
        uint256 second = stakes.startUnbond(Role.SOLVER, 200 ether);
        (, uint64 due) = stakes.request(solvers[0], Role.SOLVER, first);
        vm.warp(due - 1);
        vm.expectRevert(abi.encodeWithSelector(IStakes.NotDue.selector, due));
        stakes.finishUnbond(Role.SOLVER, first);
        vm.warp(due);
        assertEq(stakes.finishUnbond(Role.SOLVER, first), 300 ether);
        vm.expectRevert(abi.encodeWithSelector(IStakes.NotDue.selector, due + 1 days));
        stakes.finishUnbond(Role.SOLVER, second);
        vm.expectRevert(abi.encodeWithSelector(IStakes.NoSuchRequest.selector, first));
        stakes.finishUnbond(Role.SOLVER, first);
        vm.expectRevert(abi.encodeWithSelector(IStakes.NoSuchRequest.selector, 2));
        stakes.finishUnbond(Role.SOLVER, 2);
        vm.stopPrank();
        vm.expectRevert(abi.encodeWithSelector(IStakes.NoSuchRequest.selector, 2));
        stakes.request(solvers[0], Role.SOLVER, 2);
    }

    function test_aSlashReachesUnbondingStakeButNotWhatIsLockedForOthers() external {
        vm.prank(solvers[0]);
        stakes.startUnbond(Role.SOLVER, 400 ether);
        vm.startPrank(tasks_);
        stakes.lock(solvers[0], Role.SOLVER, 500 ether, client);
        assertEq(
            stakes.slash(solvers[0], Role.SOLVER, 700 ether, client),
            500 ether,
            "100 unlocked + 400 unbonding"
        );
        assertEq(stakes.slash(solvers[0], Role.SOLVER, 1, client), 0, "nothing left, and no revert");
        vm.stopPrank();
        assertEq(activeOf(solvers[0], Role.SOLVER), 500 ether);
        assertEq(stakes.unbonding(solvers[0], Role.SOLVER), 0);
        skip(UNBOND_DELAY);
        vm.startPrank(solvers[0]);
        assertEq(stakes.finishUnbond(Role.SOLVER, 0), 0, "an emptied pool pays nothing, and no revert");
        vm.stopPrank();
        assertSolvent();
    }

    function test_aRequestAfterAnEmptiedPoolIsNotTouchedByOldShares() external {
        vm.prank(solvers[0]);
        stakes.startUnbond(Role.SOLVER, 400 ether);
        vm.startPrank(tasks_);
        stakes.lock(solvers[0], Role.SOLVER, 600 ether, client);
        stakes.slash(solvers[0], Role.SOLVER, 400 ether, client);
        stakes.unlock(solvers[0], Role.SOLVER, 600 ether, client);
        vm.stopPrank();
        vm.startPrank(solvers[0]);
        stakes.startUnbond(Role.SOLVER, 50 ether);
        skip(UNBOND_DELAY);
        assertEq(stakes.finishUnbond(Role.SOLVER, 0), 0, "old");
        assertEq(stakes.finishUnbond(Role.SOLVER, 1), 50 ether, "new");
        vm.stopPrank();
    }

    function test_slashedPoolsAreSharedByTheirRequests() external {
        vm.startPrank(solvers[0]);
        stakes.startUnbond(Role.SOLVER, 300 ether);
        stakes.startUnbond(Role.SOLVER, 100 ether);
        stakes.startUnbond(Role.SOLVER, 600 ether);
        vm.stopPrank();
        vm.prank(tasks_);
        stakes.slash(solvers[0], Role.SOLVER, 500 ether, client);
        skip(UNBOND_DELAY);
        vm.startPrank(solvers[0]);
        assertEq(stakes.finishUnbond(Role.SOLVER, 1), 50 ether);
        assertEq(stakes.finishUnbond(Role.SOLVER, 0), 150 ether);
        assertEq(stakes.finishUnbond(Role.SOLVER, 2), 300 ether);
        vm.stopPrank();
        assertEq(stakes.unbonding(solvers[0], Role.SOLVER), 0);
    }

    function test_endpointsAreAnnounced() external {
        vm.prank(verifiers[0]);
        stakes.setEndpoint("http://node:4001");
        assertEq(stakes.endpoint(verifiers[0]), "http://node:4001");
    }

    function test_anEndpointHas256BytesAtMost() external {
        vm.expectRevert(abi.encodeWithSelector(IStakes.EndpointTooLong.selector, 256));
        stakes.setEndpoint(string(new bytes(257)));
        stakes.setEndpoint(string(new bytes(256)));
        assertEq(bytes(stakes.endpoint(address(this))).length, 256);
    }

    // The draw

    function testFuzz_drawnAccountsAreDistinctAndStaked(bytes32 seed, uint256 count) external view {
        count = bound(count, 1, 8);
        address[] memory drawn = stakes.draw(aTerms().classId, seed, count);
        assertEq(drawn.length, count < 5 ? count : 5);
        for (uint256 i; i < drawn.length; ++i) {
            assertGt(activeOf(drawn[i], Role.VERIFIER), 0);
            for (uint256 j; j < i; ++j) {
                assertTrue(drawn[i] != drawn[j], "distinct");
            }
        }
        assertEq(
            keccak256(abi.encode(stakes.draw(aTerms().classId, seed, count))),
            keccak256(abi.encode(drawn)),
            "pure"
        );
    }

    function test_theDrawFollowsTheStake() external view {
        uint256[5] memory hits;
        for (uint256 i; i < 600; ++i) {
            address first = stakes.draw(aTerms().classId, bytes32(i), 1)[0];
            for (uint256 v; v < 5; ++v) {
                if (verifiers[v] == first) ++hits[v];
            }
        }
        // Expected 40, 80, 120, 160, 200; five standard deviations are at most 60.
        for (uint256 v; v < 5; ++v) {
            assertGt(hits[v] + 60, 40 * (v + 1));
            assertLt(hits[v], 40 * (v + 1) + 60);
        }
    }

    function test_whoHasNoActiveStakeIsNotDrawn() external {
        vm.prank(verifiers[4]);
        stakes.startUnbond(Role.VERIFIER, 1000 ether);
        assertEq(stakes.draw(aTerms().classId, 0, 5).length, 5, "not yet");
        vm.roll(vm.getBlockNumber() + 2 * WEIGHT_EPOCH);
        for (uint256 i; i < 50; ++i) {
            address[] memory drawn = stakes.draw(aTerms().classId, bytes32(i), 5);
            assertEq(drawn.length, 4);
        }
    }

    function testFuzz_theSumTreeFindsEveryPlace(uint256 places, uint256 seed) external {
        places = bound(places, 1, 40);
        uint256[] memory weights = new uint256[](places + 1);
        uint256 sum;
        for (uint256 i = 1; i <= places; ++i) {
            assertEq(tree.push(), i);
            weights[i] = uint256(keccak256(abi.encode(seed, i))) % 5;
            tree.add(i, weights[i] + 3, 7);
            tree.sub(i, 3, 7);
            sum += weights[i];
            assertEq(tree.total(9), sum, "total");
        }
        uint256 target;
        for (uint256 i = 1; i <= places; ++i) {
            for (uint256 j; j < weights[i]; ++j) {
                (uint256 place, uint256 start, uint256 weight) = tree.find(target + j, 9);
                assertEq(place, i);
                assertEq(start, target);
                assertEq(weight, weights[i]);
            }
            target += weights[i];
        }
    }

    /// @dev A tree that is asked in epoch e is compared with a plain list of what stood at the end of epoch e - 2.
    function testFuzz_theSumTreeCountsAChangeTwoEpochsLater(uint256 seed) external {
        uint256[] memory latest = new uint256[](9);
        uint256[] memory before = new uint256[](9); // at the end of the last epoch
        uint256[] memory counted = new uint256[](9); // at the end of the epoch before
        uint256 epoch = 5;
        for (uint256 step; step < 60; ++step) {
            uint256 r = uint256(keccak256(abi.encode(seed, step)));
            if (r % 3 == 0) {
                for (uint256 passed = r / 3 % 4; passed > 0; --passed) {
                    ++epoch;
                    for (uint256 i; i < 9; ++i) {
                        (counted[i], before[i]) = (before[i], latest[i]);
                    }
                }
            }
            if (tree.count < 8 && r % 5 == 0) tree.push();
            if (tree.count == 0) continue;
            uint256 place = 1 + (r >> 8) % tree.count;
            uint256 amount = (r >> 16) % 100;
            if ((r >> 32) % 2 == 0) {
                tree.add(place, amount, epoch);
                latest[place] += amount;
            } else {
                amount %= latest[place] + 1;
                tree.sub(place, amount, epoch);
                latest[place] -= amount;
            }
            _compare(counted, epoch);
        }
    }

    function _compare(uint256[] memory counted, uint256 epoch) private view {
        uint256 sum;
        for (uint256 i = 1; i <= tree.count; ++i) {
            assertEq(tree.weightOf(i, epoch), counted[i], "weight");
            if (counted[i] > 0) {
                (uint256 place, uint256 start, uint256 weight) = tree.find(sum + counted[i] - 1, epoch);
                assertEq(place, i, "place");
                assertEq(start, sum, "start");
                assertEq(weight, counted[i], "run");
            }
            sum += counted[i];
        }
        assertEq(tree.total(epoch), sum, "total");
    }
}
