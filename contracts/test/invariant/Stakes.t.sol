// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {Role} from "../../src/interfaces/Types.sol";
import {Actions} from "./Actions.sol";
import {StakesHandler} from "./StakesHandler.sol";

/// @notice The handler with what is true of it at any time, numbered as in docs/invariants.md.
contract CheckedStakes is StakesHandler {
    /// @dev Shares are the contract's own affair; what they are worth is not.
    function check9_sharesAreWorthWhatIsThere() external view {
        for (uint256 i; i < accounts.length; ++i) {
            for (uint8 r; r < 2; ++r) {
                (address account, Role role) = (accounts[i], Role(r));
                uint256 pool = stakes.unbonding(account, role);
                (uint256 worth, uint256 live) = _requests(account, role);
                assertLe(worth, pool, "nothing is promised twice");
                assertLe(pool - worth, live, "less than a unit a request is lost to rounding");
                assertTrue(live > 0 || pool == 0, "nothing stays behind");
                uint256 held =
                    activeOf(account, role) + pool + tookOut[account][role] + slashed[account][role];
                assertEq(held, putIn[account][role], "in = there + out + slashed");
            }
        }
    }

    function _requests(address account, Role role) private view returns (uint256 worth, uint256 live) {
        for (uint256 i; i < asked.length; ++i) {
            if (asked[i].account != account || asked[i].role != role || asked[i].done) continue;
            (uint256 one,) = stakes.request(account, role, asked[i].index);
            assertLe(one, asked[i].amount + dust(), "no request grows");
            worth += one;
            ++live;
        }
    }

    function check19_everyConsentCountsOnce() external view {
        assertEq(keys.nonces(operator), consents);
    }
}

/// forge-config: default.invariant.runs = 8
/// forge-config: default.invariant.depth = 80
/// forge-config: nightly.invariant.runs = 256
/// forge-config: nightly.invariant.depth = 256
contract StakesInvariantTest is Actions {
    CheckedStakes private market;

    function renew() internal override returns (address) {
        market = new CheckedStakes();
        return address(market);
    }

    function setUp() external {
        handler = renew();
        act(market.stake.selector, 2);
        act(market.unbond.selector, 2);
        act(market.finish.selector, 1);
        act(market.lock.selector, 1);
        act(market.unlock.selector, 1);
        act(market.slash.selector, 1);
        act(market.bind.selector, 1);
        act(market.unbindAndRevoke.selector, 1);
    }

    function invariant_stakesKeepTheirBooks() external view {
        check();
    }

    function check() internal view override {
        market.check9_sharesAreWorthWhatIsThere();
        market.check19_everyConsentCountsOnce();
    }

    /// @dev Every action succeeded at least once: what chance has left out is done now.
    function afterInvariant() external {
        for (uint256 i; i < 3; ++i) {
            market.stake(i, 10);
            market.unbond(i, 3);
            market.lock(i, 2);
            market.unlock(i);
            market.slash(i, 1);
            market.bind(i);
        }
        market.unbindAndRevoke(0);
        for (uint256 i; market.calls("finish") == 0; ++i) {
            market.finish(i);
        }
        check();
        string[] memory needed = vm.split("stake, unbond, finish, lock, unlock, slash, bind, revoke", ", ");
        assertEq(neverDone(needed).length, 0, "not every action did something");
    }
}
