// SPDX-License-Identifier: MIT
pragma solidity ^0.8.30;

import {IVault} from "../../src/interfaces/IMarket.sol";
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
/// and the only staker. Shares are divided in one pool of odd sizes; test/market/UnbondShares.t.sol goes through others.
contract StakesSymbolic is Test {
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

    /// @notice A slash takes min(asked, unlocked + unbonding), first from what is at work, and leaves locks alone.
    function check_slashTakesWhatIsThereAndNoMore(uint96 staked, uint96 leaving, uint96 locked, uint96 asked)
        external
    {
        vm.assume(staked > 0 && leaving > 0 && leaving <= staked && locked <= staked - leaving);
        stakes.stake(Role.SOLVER, staked);
        stakes.startUnbond(Role.SOLVER, leaving);
        stakes.lock(address(this), Role.SOLVER, locked);
        uint256 unlocked = uint256(staked) - leaving - locked;
        uint256 taken = stakes.slash(address(this), Role.SOLVER, asked);
        assert(taken == (asked < unlocked + leaving ? asked : unlocked + leaving));
        assert(stakes.locked(address(this), Role.SOLVER) == locked);
        uint256 fromActive = taken < unlocked ? taken : unlocked;
        assert(stakes.active(address(this), Role.SOLVER) == staked - leaving - fromActive);
        assert(stakes.unbonding(address(this), Role.SOLVER) == leaving - (taken - fromActive));
        _check();
    }

    /// @notice What is locked cannot leave.
    function check_noUnbondingOfLockedStake(uint96 staked, uint96 locked, uint96 asked) external {
        vm.assume(staked > 0 && locked <= staked && asked > 0);
        stakes.stake(Role.SOLVER, staked);
        stakes.lock(address(this), Role.SOLVER, locked);
        (bool done,) = address(stakes).call(abi.encodeCall(stakes.startUnbond, (Role.SOLVER, asked)));
        assert(done == (asked <= staked - locked));
    }

    /// @notice Two requests, a slash of any size, both brought home: nobody gains, the last takes the rest, nothing stays.
    function check_requestsShareAnySlash(uint96 slashed) external {
        (uint256 first, uint256 second) = (7, 100 ether + 3);
        stakes.stake(Role.SOLVER, first + second);
        stakes.startUnbond(Role.SOLVER, first);
        stakes.startUnbond(Role.SOLVER, second);
        uint256 taken = stakes.slash(address(this), Role.SOLVER, slashed);
        vm.warp(block.timestamp + DELAY);
        uint256 a = stakes.finishUnbond(Role.SOLVER, 0);
        uint256 b = stakes.finishUnbond(Role.SOLVER, 1);
        assert(a <= first && b <= second);
        assert(a + b + taken == first + second);
        _check();
    }
}
