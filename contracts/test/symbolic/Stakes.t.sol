// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {IVault} from "../../src/interfaces/IVault.sol";
import {Role} from "../../src/interfaces/Types.sol";
import {Guardian} from "../../src/market/Guardian.sol";
import {Keys} from "../../src/market/Keys.sol";
import {Stakes} from "../../src/market/Stakes.sol";
import {Test} from "../Vm.sol";

/// @dev Adds up what the stakes move between their buckets.
contract BucketsFake {
    mapping(IVault.Bucket bucket => uint256) public held;

    function move(IVault.Bucket from, bytes32, IVault.Bucket to, bytes32, uint256 amount) external {
        if (from != IVault.Bucket.FREE) held[from] -= amount;
        if (to != IVault.Bucket.FREE) held[to] += amount;
    }
}

/// @notice Proofs, for all amounts at once (`make symbolic`), about the deployed Stakes; this contract is its Tasks module
/// and the only staker. test/market/UnbondShares.t.sol goes through pools of more requests and slashes than here.
contract StakesSymbolic is Test {
    address private constant CLIENT = address(0xc1);
    uint64 private constant DELAY = 100;

    BucketsFake private vault = new BucketsFake();
    Stakes private stakes = new Stakes(
        IVault(address(vault)), address(this), new Keys(1), new Guardian(address(this)), DELAY, 10
    );

    function _check() private view {
        assert(vault.held(IVault.Bucket.STAKE) == stakes.active(address(this), Role.SOLVER));
        assert(vault.held(IVault.Bucket.UNBONDING) == stakes.unbonding(address(this), Role.SOLVER));
        assert(stakes.locked(address(this), Role.SOLVER) <= stakes.active(address(this), Role.SOLVER));
    }

    /// @dev Any account there can be: so much at work, so much of that locked, and so much unbonding in one request.
    function _account(uint96 active, uint96 locked, uint96 leaving) private {
        vm.assume(active > 0 && leaving > 0 && locked <= active);
        stakes.stake(Role.SOLVER, leaving);
        stakes.startUnbond(Role.SOLVER, leaving);
        stakes.stake(Role.SOLVER, active);
        stakes.lock(address(this), Role.SOLVER, locked, CLIENT);
    }

    /// @dev What it takes. A slash is never refused.
    function _slash(uint256 asked) private returns (uint256) {
        (bool done, bytes memory taken) =
            address(stakes).call(abi.encodeCall(stakes.slash, (address(this), Role.SOLVER, asked, CLIENT)));
        assert(done);
        return abi.decode(taken, (uint256));
    }

    function _checkAccount(uint256 active, uint256 locked, uint256 leaving) private view {
        assert(stakes.active(address(this), Role.SOLVER) == active);
        assert(stakes.locked(address(this), Role.SOLVER) == locked);
        assert(stakes.unbonding(address(this), Role.SOLVER) == leaving);
        assert(vault.held(IVault.Bucket.STAKE) == active);
        assert(vault.held(IVault.Bucket.UNBONDING) == leaving);
    }

    // Three cases, which together are every slash: it takes min(asked, unlocked + unbonding), first from what is at work,
    // and leaves locks alone. Each path of each case is sums and differences of what the case is given.

    function check_slashWithinTheUnlockedTakesThatAlone(
        uint96 active,
        uint96 locked,
        uint96 leaving,
        uint96 asked
    ) external {
        _account(active, locked, leaving);
        vm.assume(asked <= active - locked);
        assert(_slash(asked) == asked);
        _checkAccount(uint256(active) - asked, locked, leaving);
    }

    function check_slashBeyondTheUnlockedGoesOnWithTheUnbonding(
        uint96 active,
        uint96 locked,
        uint96 leaving,
        uint96 beyond
    ) external {
        _account(active, locked, leaving);
        vm.assume(beyond > 0 && beyond <= leaving);
        uint256 asked = uint256(active) - locked + beyond;
        assert(_slash(asked) == asked);
        _checkAccount(locked, locked, uint256(leaving) - beyond);
    }

    function check_slashBeyondAllThereIsLeavesTheLocked(
        uint96 active,
        uint96 locked,
        uint96 leaving,
        uint128 beyond
    ) external {
        _account(active, locked, leaving);
        vm.assume(beyond > 0);
        uint256 there = uint256(active) - locked + leaving;
        assert(_slash(there + beyond) == there);
        _checkAccount(locked, locked, 0);
    }

    /// @notice What is locked cannot leave.
    function check_noUnbondingOfLockedStake(uint96 staked, uint96 locked, uint96 asked) external {
        vm.assume(staked > 0 && locked <= staked && asked > 0);
        stakes.stake(Role.SOLVER, staked);
        stakes.lock(address(this), Role.SOLVER, locked, CLIENT);
        (bool done,) = address(stakes).call(abi.encodeCall(stakes.startUnbond, (Role.SOLVER, asked)));
        assert(done == (asked <= staked - locked));
    }

    function _finish(uint256 index) private returns (uint256) {
        (bool done, bytes memory amount) =
            address(stakes).call(abi.encodeCall(stakes.finishUnbond, (Role.SOLVER, index)));
        assert(done);
        return abi.decode(amount, (uint256));
    }

    /// @notice Two requests, a slash that leaves something, one brought home: it gets its part rounded down, no more than it
    /// asked for, and the other request, which is all that is left of the pool, is worth no more than it was.
    function check_aRequestSharesASlash(uint96 first, uint96 second, uint96 slashed) external {
        uint256 all = uint256(first) + second;
        vm.assume(first > 0 && second > 0 && slashed < all);
        uint256 left = all - slashed;
        stakes.stake(Role.SOLVER, first);
        stakes.startUnbond(Role.SOLVER, first);
        stakes.stake(Role.SOLVER, second);
        stakes.startUnbond(Role.SOLVER, second);
        assert(uint256(second) * first / first == second); // the second request's shares: a step on the way
        assert(_slash(slashed) == slashed);
        vm.warp(block.timestamp + DELAY);
        uint256 a = _finish(0);
        assert(a == first * left / all);
        assert(a <= first);
        // Steps on the way to the next one.
        assert(first * left < (a + 1) * all);
        assert(left * second <= all * second);
        assert(left - a <= second);
        assert(stakes.unbonding(address(this), Role.SOLVER) == left - a);
        assert(vault.held(IVault.Bucket.UNBONDING) == left - a);
    }

    /// @notice The last request of a pool takes what a slash has left of it, and nothing stays.
    function check_theLastRequestTakesWhatIsLeft(uint96 asked, uint96 slashed) external {
        vm.assume(slashed < asked);
        stakes.stake(Role.SOLVER, asked);
        stakes.startUnbond(Role.SOLVER, asked);
        assert(_slash(slashed) == slashed);
        vm.warp(block.timestamp + DELAY);
        assert(_finish(0) == asked - slashed);
        assert(stakes.unbonding(address(this), Role.SOLVER) == 0);
        assert(vault.held(IVault.Bucket.UNBONDING) == 0);
    }

    /// @notice A slash that takes all of the pool leaves its requests nothing, and they end all the same.
    function check_requestsEndAfterAWholeSlash(uint96 first, uint96 second, uint128 beyond) external {
        vm.assume(first > 0 && second > 0);
        stakes.stake(Role.SOLVER, first);
        stakes.startUnbond(Role.SOLVER, first);
        stakes.stake(Role.SOLVER, second);
        stakes.startUnbond(Role.SOLVER, second);
        assert(_slash(uint256(first) + second + beyond) == uint256(first) + second);
        vm.warp(block.timestamp + DELAY);
        assert(_finish(0) == 0 && _finish(1) == 0);
        assert(stakes.unbonding(address(this), Role.SOLVER) == 0);
        assert(vault.held(IVault.Bucket.UNBONDING) == 0);
    }
}
