// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {Role} from "../../src/interfaces/Types.sol";
import {Market} from "./Market.sol";

/// @notice Stake on its way out is owned by shares: whatever is slashed in between, nobody gains and nothing stays behind.
contract UnbondSharesTest is Market {
    address private account;

    function setUp() external {
        setUpMarket();
        account = makeAddr("leaver");
        fund(account, 1e8 ether);
    }

    function _leave(uint256 amount) private returns (uint256 index) {
        stakeAs(account, Role.SOLVER, amount);
        vm.prank(account);
        return stakes.startUnbond(Role.SOLVER, amount);
    }

    function _slash(uint256 asked) private returns (uint256) {
        vm.prank(address(tasks));
        return stakes.slash(account, Role.SOLVER, asked, client);
    }

    function _home(uint256 index) private returns (uint256) {
        vm.prank(account);
        return stakes.finishUnbond(Role.SOLVER, index);
    }

    function _share(uint256 first, uint256 second, uint256 early, uint256 late) private {
        uint256 a = _leave(first);
        uint256 taken = _slash(early);
        uint256 b = _leave(second);
        taken += _slash(late);
        skip(UNBOND_DELAY);
        uint256 fromA = _home(a);
        uint256 fromB = _home(b);
        assertLe(fromA, first, "the first gains nothing");
        assertLe(fromB, second, "joining after a slash gains nothing");
        assertEq(fromA + fromB + taken, first + second, "nothing is made, nothing stays");
        assertEq(stakes.unbonding(account, Role.SOLVER), 0);
    }

    /// @notice Every pool of two requests of up to five tokens with two slashes of up to five.
    function test_smallPoolsExhaustively() external {
        for (uint256 first = 1; first <= 5; ++first) {
            for (uint256 second = 1; second <= 5; ++second) {
                for (uint256 early; early <= 5; ++early) {
                    for (uint256 late; late <= 5; ++late) {
                        _share(first, second, early, late);
                    }
                }
            }
        }
    }

    function testFuzz_largePools(uint256 first, uint256 second, uint256 early, uint256 late) external {
        first = bound(first, 1, 1e7 ether);
        second = bound(second, 1, 1e7 ether);
        _share(first, second, bound(early, 0, 2e7 ether), bound(late, 0, 2e7 ether));
    }

    /// @notice Invariant 18: slashes that leave a single unit, again and again, make shares astronomically many, and still
    /// each request comes out when it is due.
    function test_everyRequestComesOutAfterSlashesToASliver() external {
        uint256 a = _leave(1e6 ether);
        _slash(1e6 ether - 1);
        uint256 b = _leave(1e6 ether);
        _slash(1e6 ether);
        uint256 c = _leave(1e6 ether);
        skip(UNBOND_DELAY);
        uint256 got = _home(a) + _home(b) + _home(c);
        assertEq(got, 1e6 ether + 1, "what was left");
        assertEq(stakes.unbonding(account, Role.SOLVER), 0);
    }
}
