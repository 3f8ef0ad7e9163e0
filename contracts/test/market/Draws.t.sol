// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {IVault} from "../../src/interfaces/IVault.sol";
import {Role} from "../../src/interfaces/Types.sol";
import {Stakes} from "../../src/market/Stakes.sol";
import {Market} from "./Market.sol";

/// @notice Attack 29: whoever knows the seed moves stake until the draw is to its liking.
contract DrawsTest is Market {
    uint64 private constant EPOCH = 8;

    Stakes private slow; // with epochs of several blocks
    bytes32 private constant CLASS = "class";
    bytes32 private constant SEED = keccak256("the seed block's hash is out");

    function setUp() external {
        setUpMarket();
        slow = new Stakes(IVault(address(this)), address(this), keys, guardian, UNBOND_DELAY, EPOCH);
        vm.roll(100 * EPOCH);
        for (uint256 i; i < 5; ++i) {
            vm.startPrank(verifiers[i]);
            slow.subscribe(CLASS);
            slow.stake(Role.VERIFIER, (i + 1) * 100 ether);
            vm.stopPrank();
        }
    }

    function move(IVault.Bucket, bytes32, IVault.Bucket, bytes32, uint256) external {}

    function drawn() private view returns (bytes32) {
        return keccak256(abi.encode(slow.draw(CLASS, SEED, 3)));
    }

    /// @dev Every way to change one's stake, by an attacker who knows the seed.
    function meddle(uint256 i) private {
        address who = verifiers[i % 5];
        if (i % 4 == 0) {
            vm.prank(who);
            slow.startUnbond(Role.VERIFIER, 1 ether);
        } else if (i % 4 == 1) {
            vm.startPrank(makeAddr(string.concat("sybil", vm.toString(i))));
            slow.stake(Role.VERIFIER, 10_000 ether);
            slow.subscribe(CLASS);
            vm.stopPrank();
        } else if (i % 4 == 2) {
            vm.prank(who);
            slow.subscribe("another class");
        } else {
            slow.slash(who, Role.VERIFIER, 1 ether, client);
        }
    }

    function test_Attack29_stakeMovedOnceTheSeedIsKnownChangesNoDraw() external {
        vm.roll(103 * EPOCH);
        for (uint256 offset; offset < EPOCH; ++offset) {
            // The seed block is `known`; the seed is recorded up to EPOCH blocks later.
            uint256 known = vm.getBlockNumber() + offset;
            vm.roll(known);
            bytes32 honest = drawn();
            uint256 snapshot = vm.snapshotState();
            uint256 meddled;
            for (uint256 later = 1; later <= EPOCH; ++later) {
                vm.roll(known + later);
                vm.revertToState(snapshot);
                snapshot = vm.snapshotState();
                vm.roll(known + later);
                honest = drawn();
                vm.roll(known + 1);
                meddle(meddled++);
                vm.roll(known + later);
                assertEq(drawn(), honest, "the draw does not see it");
            }
            vm.revertToState(snapshot);
        }
    }

    function test_Attack29_theMeddlingWouldHaveWorkedOtherwise() external {
        vm.roll(103 * EPOCH);
        bytes32 honest = drawn();
        uint256 steered;
        for (uint256 i; i < 12; ++i) {
            uint256 snapshot = vm.snapshotState();
            meddle(i);
            vm.roll(105 * EPOCH);
            if (drawn() != honest) ++steered;
            vm.revertToState(snapshot);
        }
        assertGt(steered, 6, "two epochs later these moves do change the draw");
    }

    function test_aStakeCountsFromTheEpochAfterTheNext() external {
        address late = makeAddr("late");
        vm.roll(110 * EPOCH + 3);
        vm.startPrank(late);
        slow.stake(Role.VERIFIER, 7 ether);
        slow.subscribe(CLASS);
        vm.stopPrank();
        vm.roll(112 * EPOCH - 1);
        assertEq(slow.drawWeight(CLASS, late), 0);
        vm.roll(112 * EPOCH);
        assertEq(slow.drawWeight(CLASS, late), 7 ether);
        assertEq(slow.drawWeight(CLASS, stranger), 0, "never staked");
    }

    function test_whoHasOnlyJustStakedIsNotDrawn() external {
        slow = new Stakes(IVault(address(this)), address(this), keys, guardian, UNBOND_DELAY, EPOCH);
        vm.startPrank(verifiers[0]);
        slow.subscribe(CLASS);
        slow.stake(Role.VERIFIER, 1 ether);
        vm.stopPrank();
        assertEq(slow.draw(CLASS, SEED, 3).length, 0);
    }

    function test_whoHasNotSubscribedIsNotDrawnAndWhoLeavesIsDrawnNoMore() external {
        address aloof = makeAddr("aloof");
        vm.roll(110 * EPOCH);
        vm.prank(aloof);
        slow.stake(Role.VERIFIER, 1e6 ether);
        vm.prank(verifiers[4]);
        slow.subscribe("another class");
        vm.roll(112 * EPOCH);
        for (uint256 i; i < 50; ++i) {
            address[] memory line = slow.draw(CLASS, bytes32(i), 5);
            assertEq(line.length, 4);
            for (uint256 j; j < 4; ++j) {
                assertTrue(line[j] != aloof && line[j] != verifiers[4], "no term reaches who has not agreed");
            }
        }
        assertEq(slow.draw("another class", SEED, 5)[0], verifiers[4]);
        assertEq(slow.classWeight("another class"), 500 ether);
        vm.prank(verifiers[4]);
        slow.subscribe(0);
        vm.roll(114 * EPOCH);
        assertEq(slow.draw("another class", SEED, 5).length, 0);
        vm.prank(verifiers[4]);
        slow.subscribe(CLASS);
        vm.roll(116 * EPOCH);
        assertEq(slow.draw(CLASS, SEED, 5).length, 5, "and back at its old place");
        assertEq(slow.classWeight(CLASS), 1500 ether);
    }

    function test_R10_onlyWhoHasTheStakeFreeIsSeatedAndItIsLockedAtOnce() external {
        vm.roll(103 * EPOCH);
        slow.lock(verifiers[4], Role.VERIFIER, 480 ether, client); // 500 are active: elsewhere
        address[] memory others = new address[](1);
        others[0] = verifiers[3];
        address[] memory seated = slow.seat(CLASS, SEED, 4, 50 ether, others, client);
        assertEq(seated.length, 3);
        for (uint256 i; i < 3; ++i) {
            assertTrue(seated[i] != verifiers[4] && seated[i] != verifiers[3]);
            assertEq(slow.locked(seated[i], Role.VERIFIER), 50 ether);
        }
        assertEq(slow.locked(verifiers[4], Role.VERIFIER), 480 ether);
        assertEq(
            slow.fine(seated, Role.VERIFIER, 50 ether, 20 ether, client), 60 ether, "every fine is there"
        );
        assertEq(slow.locked(seated[0], Role.VERIFIER), 0);
    }
}
