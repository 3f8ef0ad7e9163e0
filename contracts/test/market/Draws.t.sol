// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.28;

import {IVault} from "../../src/interfaces/IMarket.sol";
import {Role} from "../../src/interfaces/Types.sol";
import {Stakes} from "../../src/market/Stakes.sol";
import {Market} from "./Market.sol";

/// @notice Attack 29: whoever knows the seed moves stake until the draw is to its liking.
contract DrawsTest is Market {
    uint64 private constant EPOCH = 8;

    Stakes private slow; // with epochs of several blocks
    bytes32 private constant SEED = keccak256("the seed block's hash is out");

    function setUp() external {
        setUpMarket();
        slow = new Stakes(IVault(address(this)), address(this), keys, guardian, UNBOND_DELAY, EPOCH);
        vm.roll(100 * EPOCH);
        for (uint256 i; i < 5; ++i) {
            vm.prank(verifiers[i]);
            slow.stake(Role.VERIFIER, (i + 1) * 100 ether);
        }
    }

    function move(IVault.Bucket, bytes32, IVault.Bucket, bytes32, uint256) external {}

    function drawn() private view returns (bytes32) {
        return keccak256(abi.encode(slow.draw(SEED, 3)));
    }

    /// @dev Every way to change one's stake, by an attacker who knows the seed.
    function meddle(uint256 i) private {
        address who = verifiers[i % 5];
        if (i % 3 == 0) {
            vm.prank(who);
            slow.startUnbond(Role.VERIFIER, 1 ether);
        } else if (i % 3 == 1) {
            vm.prank(makeAddr(string.concat("sybil", vm.toString(i))));
            slow.stake(Role.VERIFIER, 10_000 ether);
        } else {
            slow.slash(who, Role.VERIFIER, 1 ether);
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
        vm.prank(late);
        slow.stake(Role.VERIFIER, 7 ether);
        vm.roll(112 * EPOCH - 1);
        assertEq(slow.drawWeight(late), 0);
        vm.roll(112 * EPOCH);
        assertEq(slow.drawWeight(late), 7 ether);
        assertEq(slow.drawWeight(stranger), 0, "never staked");
    }

    function test_whoHasOnlyJustStakedIsNotDrawn() external {
        slow = new Stakes(IVault(address(this)), address(this), keys, guardian, UNBOND_DELAY, EPOCH);
        vm.prank(verifiers[0]);
        slow.stake(Role.VERIFIER, 1 ether);
        assertEq(slow.draw(SEED, 3).length, 0);
    }
}
