// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {Role} from "../../src/interfaces/Types.sol";
import {Test} from "../Vm.sol";
import {CapsHandler} from "./CapsHandler.sol";

/// @notice The handler with what is true of it at any time, numbered as in docs/invariants.md.
contract CheckedCaps is CapsHandler {
    /// @dev What was taken stays counted, all of it; what is locked for a client is counted, but for what was locked when its
    /// owner's caps began; and nothing is counted twice. That no lock goes beyond what is left, `lock` asks at every call.
    function check20_whatIsLockedOrLostIsCountedUnderItsCap() external view {
        for (uint256 i; i < 2; ++i) {
            for (uint8 r; r < 2; ++r) {
                _check(operators[i], Role(r));
            }
        }
    }

    function _check(address account, Role role) private view {
        bytes32 k = key(account, role);
        uint256 locked;
        for (uint256 c; c < clients.length; ++c) {
            address of_ = clients[c];
            locked += lockedFor[account][role][of_];
            (bool capped, uint256 all, uint256 lost, uint256 cap_, uint256 used) =
                stakes.caps(account, role, of_);
            assertTrue(capped == books[k].capped, "capped");
            if (!capped) continue;
            assertEq(all, books[k].all, "all");
            assertEq(lost, books[k].lost, "what was lost stays counted");
            (uint256 has, uint256 at, uint256 before) = purse(account, role, of_);
            assertEq(cap_, at, "most");
            assertGe(used, has, "nothing that is locked or lost is left out");
            assertLe(used, has + before, "nothing is counted twice");
        }
        assertEq(locked, lockedOf(account, role), "every lock is for a client");
        assertLe(locked, activeOf(account, role));
    }
}

/// forge-config: default.invariant.runs = 6
/// forge-config: default.invariant.depth = 60
/// forge-config: nightly.invariant.runs = 256
/// forge-config: nightly.invariant.depth = 256
contract CapsInvariantTest is Test {
    uint256 private constant RUNS = 20; // at most
    uint256 private constant STEPS = 120;

    CheckedCaps private market;

    function setUp() external {
        market = new CheckedCaps();
    }

    function targetContracts() external view returns (address[] memory targets) {
        targets = new address[](1);
        targets[0] = address(market);
    }

    function targetSelectors() external view returns (FuzzSelector[] memory targets) {
        targets = new FuzzSelector[](1);
        targets[0].addr = address(market);
        targets[0].selectors = selectors();
    }

    function selectors() private view returns (bytes4[] memory targets) {
        bytes4[12] memory list = [
            market.lock.selector,
            market.lock.selector,
            market.lock.selector,
            market.lock.selector,
            market.unlock.selector,
            market.fine.selector,
            market.convict.selector,
            market.cap.selector,
            market.cap.selector,
            market.capClient.selector,
            market.change.selector,
            market.stake.selector
        ];
        targets = new bytes4[](list.length);
        for (uint256 i; i < list.length; ++i) {
            targets[i] = list[i];
        }
    }

    function invariant_capsHold() external view {
        market.check20_whatIsLockedOrLostIsCountedUnderItsCap();
    }

    /// @notice Locks that are taken and locks that are refused, before a cap and under one, and everything else that the
    /// handler can do: in some runs, the same every time, each happens.
    function test_everyActionOfTheHandlerHappens() external {
        vm.pauseGasMetering(); // it is more than a test may use
        bytes4[] memory list = selectors();
        string[12] memory needed = [
            "lock",
            "lock under a cap",
            "beyond cap",
            "unlock",
            "fine",
            "convict",
            "convict both",
            "cap",
            "name",
            "cap again",
            "tenure",
            "change"
        ];
        uint256[12] memory seen;
        for (uint256 run; run < RUNS; ++run) {
            market = new CheckedCaps();
            for (uint256 i; i < STEPS; ++i) {
                uint256 seed = uint256(keccak256(abi.encode(run, i)));
                bytes memory action =
                    abi.encodeWithSelector(list[(seed >> 128) % list.length], seed, seed >> 160, seed >> 176);
                (bool done, bytes memory reason) = address(market).call(action);
                if (!done) {
                    assembly ("memory-safe") {
                        revert(add(reason, 32), mload(reason))
                    }
                }
                market.check20_whatIsLockedOrLostIsCountedUnderItsCap();
            }
            uint256 missing;
            for (uint256 i; i < needed.length; ++i) {
                seen[i] += market.calls(needed[i]);
                if (seen[i] == 0) ++missing;
            }
            if (missing == 0) return;
        }
        for (uint256 i; i < needed.length; ++i) {
            assertGt(seen[i], 0, needed[i]);
        }
    }
}
