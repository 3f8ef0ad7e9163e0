// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {IClock} from "../../src/interfaces/IClock.sol";
import {Test} from "../Vm.sol";

/// @notice Rule 7.4 by itself: when a deadline passes, whatever blocks come and whoever ticks.
contract ClockTest is Test {
    uint64 private constant LAG = 5;
    uint64 private constant BLOCK_TIME = 12;

    IClock private clock;
    uint256 private deadline;
    uint256 private over; // the first block in which the deadline is over

    function setUp() external {
        vm.warp(1_700_000_000);
        vm.roll(1000);
        clock = IClock(deployed("Clock", abi.encode(LAG)));
        deadline = vm.getBlockTimestamp() + 600;
    }

    function mine(uint256 after_) private {
        vm.warp(vm.getBlockTimestamp() + after_);
        vm.roll(vm.getBlockNumber() + 1);
        if (over == 0 && vm.getBlockTimestamp() > deadline) over = vm.getBlockNumber();
    }

    function passed() private view returns (bool) {
        return clock.time() > deadline;
    }

    function test_aDeadlinePassesLagBlocksAfterATickThatIsLater() external {
        mine(601);
        assertFalse(passed(), "nobody has ticked");
        vm.expectEmit(address(clock));
        emit IClock.Ticked(u64(deadline + 1), 1001);
        clock.tick();
        for (uint256 i; i < LAG; ++i) {
            assertFalse(passed(), "its blocks have not come");
            mine(BLOCK_TIME);
        }
        assertTrue(passed());
        (uint64 time, uint64 ticked, uint64 dueBlock) = clock.hands();
        assertEq(time, deadline + 1);
        assertEq(ticked, time, "the last tick counts");
        assertEq(dueBlock, 1001 + LAG);
    }

    /// @notice The last second is in time, ticked or not.
    function test_aTickInTheLastSecondLetsNothingPass() external {
        mine(600);
        clock.tick();
        for (uint256 i; i < 2 * LAG; ++i) {
            mine(BLOCK_TIME);
        }
        assertFalse(passed(), "a tick at the deadline is none after it");
        clock.tick();
        assertFalse(passed(), "and a new one does not count at once");
        vm.roll(vm.getBlockNumber() + LAG);
        assertFalse(passed(), "nor in blocks that come all at once");
        vm.warp(vm.getBlockTimestamp() + LAG);
        assertTrue(passed());
    }

    /// @notice The attack: whoever wants the deadline to pass at once ticks as often as it can in the first block after a halt.
    function test_ticksOfOneBlockAreOne() external {
        mine(3600);
        clock.tick();
        vm.expectRevert(abi.encodeWithSelector(IClock.TickedLately.selector, 1001 + LAG));
        clock.tick();
        assertFalse(passed());
    }

    /// @notice The attack: a tick in the last block before a halt, which has its blocks behind it soon after.
    function test_aTickBeforeAHaltDoesNotCountForIt() external {
        clock.tick();
        mine(3600);
        for (uint256 i; i < LAG; ++i) {
            assertFalse(passed());
            mine(BLOCK_TIME);
        }
        assertFalse(passed(), "it is a time before the halt");
    }

    /// @notice The attack: ticks whenever one may be, so that the one after the deadline comes late.
    function test_ticksPutADeadlineOffForTwiceLagAtMost() external {
        mine(590);
        clock.tick();
        while (over == 0) {
            mine(BLOCK_TIME);
        }
        while (!passed()) {
            _tick();
            mine(BLOCK_TIME);
        }
        assertEq(vm.getBlockNumber(), over + 2 * LAG - 1, "as late as can be, though somebody ticks in time");
    }

    /// @notice Whatever blocks come and whoever ticks: no deadline passes before LAG blocks have come since it was over, and with
    /// somebody who ticks, each passes within twice as many. What has passed stays so.
    function testFuzz_noDeadlinePassesBeforeItsBlocks(uint256 seed, bool watched) external {
        uint256 time;
        for (uint256 i; i < 40; ++i) {
            seed = uint256(keccak256(abi.encode(seed)));
            mine(1 + (seed >> 8) % (seed % 16 == 0 ? 2000 : 24));
            if (watched || seed & 0xf000000 == 0) _tick();
            if (passed()) assertGe(vm.getBlockNumber(), over + LAG, "whoever was due had its blocks");
            if (watched && over != 0 && vm.getBlockNumber() >= over + 2 * LAG) assertTrue(passed());
            assertGe(clock.time(), time, "it never goes back");
            time = clock.time();
            assertLe(time, vm.getBlockTimestamp(), "nor is it ahead");
        }
    }

    function _tick() private {
        try clock.tick() {} catch {}
    }

    function u64(uint256 small) private pure returns (uint64) {
        // forge-lint: disable-next-line(unsafe-typecast)
        return uint64(small);
    }
}
