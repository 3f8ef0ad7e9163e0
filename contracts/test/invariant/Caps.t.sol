// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {Role} from "../../src/interfaces/Types.sol";
import {Actions} from "./Actions.sol";
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
contract CapsInvariantTest is Actions {
    CheckedCaps private market;

    function renew() internal override returns (address) {
        market = new CheckedCaps();
        return address(market);
    }

    function setUp() external {
        handler = renew();
        act(market.lock.selector, 4);
        act(market.unlock.selector, 1);
        act(market.fine.selector, 1);
        act(market.convict.selector, 1);
        act(market.cap.selector, 2);
        act(market.capClient.selector, 1);
        act(market.change.selector, 1);
        act(market.stake.selector, 1);
    }

    function invariant_capsHold() external view {
        market.check20_whatIsLockedOrLostIsCountedUnderItsCap();
    }

    function check() internal view override {
        market.check20_whatIsLockedOrLostIsCountedUnderItsCap();
    }

    /// @notice Locks that are taken and locks that are refused, before a cap and under one, and everything else.
    function test_everyActionOfTheHandlerHappens() external {
        string memory locks = "lock, lock under a cap, beyond cap, unlock, fine, convict, convict both";
        assertAllHappen(string.concat(locks, ", cap, name, cap again, tenure, change"), 20, 120);
    }
}
