// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {IClasses} from "../../src/interfaces/IClasses.sol";
import {IVault} from "../../src/interfaces/IVault.sol";
import {Accused, Kind} from "../../src/interfaces/Types.sol";
import {Guardian} from "../../src/market/Guardian.sol";
import {Jobs} from "../../src/market/Jobs.sol";
import {Test} from "../Vm.sol";
import {LedgerFake} from "./LedgerFake.sol";

/// @dev The deployed Jobs, with a job set up that is in its third round.
contract JobsBooks is Jobs {
    constructor(IVault vault, address tasks) Jobs(vault, tasks, new Guardian(tasks), IClasses(address(0))) {}

    /// @dev `kept`: worth of what was accepted when round 1 began; `accepted`: of what is now.
    function set(bytes32 jobId, uint128 kept, uint128 accepted, uint128 pending) external {
        (counts[jobId].round, counts[jobId].lastRound) = (2, 9);
        (counts[jobId].standing, counts[jobId].accepted) = (2, 2);
        worths[jobId] = Worth(accepted, pending);
        marks[jobId][1] = Mark(kept, 0, 2);
        marks[jobId][2] = Mark(kept, 0, 2);
    }
}

/// @notice Proofs, for all amounts at once (`make symbolic`), about what the deployed Jobs sets apart and pays when a job
/// goes back; this contract is its Tasks module. A job wastes at most 2^96 (Jobs.post), as do all its claims.
contract CompensationSymbolic is Test {
    bytes32 private constant JOB = keccak256("job");
    address private constant CONVICT = address(0xc0);

    LedgerFake private vault = new LedgerFake();
    JobsBooks private jobs = new JobsBooks(IVault(address(vault)), address(this));

    function _free(address account) private view returns (uint256) {
        return vault.balance(IVault.Bucket.FREE, bytes32(uint256(uint160(account))));
    }

    function _apart() private view returns (uint256) {
        return vault.balance(IVault.Bucket.COMPENSATION, keccak256(abi.encode(JOB, uint32(1))));
    }

    /// @dev The job goes back from round 2 to round 0, since a task of that, accepted at `price`, has fallen.
    function _rewind(uint128 price, uint256 pool) private returns (uint256) {
        vault.put(IVault.Bucket.FREE, bytes32(uint256(uint160(address(this)))), pool);
        Accused memory accused = Accused(JOB, CONVICT, Kind.TASK, 0, 0, price, 0);
        (bool done, bytes memory set) = address(jobs).call(abi.encodeCall(jobs.rewind, (accused, true, pool)));
        assert(done);
        return abi.decode(set, (uint256));
    }

    /// @dev A task of round 2 that the rewind has wasted.
    function _compensate(address claimant, uint128 price) private returns (uint256) {
        Accused memory claim = Accused(JOB, claimant, Kind.TASK, 2, 0, price, 0);
        (bool done, bytes memory paid) =
            address(jobs).call(abi.encodeCall(jobs.compensate, (keccak256("claim"), claim, false)));
        assert(done);
        (bool found, uint256 share) = abi.decode(paid, (bool, uint256));
        assert(found);
        return share;
    }

    /// @notice A rewind sets apart min(half the pool, what is wasted), and takes no more from the pool than that.
    function check_rewindSetsApartTheLessOfHalfThePoolAndTheWaste(
        uint96 kept,
        uint96 later,
        uint96 pending,
        uint96 price,
        uint128 pool
    ) external {
        vm.assume(price <= kept && uint256(later) + pending <= type(uint96).max);
        jobs.set(JOB, kept, uint128(kept) + later, pending);
        uint256 wasted = uint256(later) + pending;
        uint256 apart = _rewind(price, pool);
        assert(apart == (pool / 2 < wasted ? pool / 2 : wasted));
        assert(_apart() == apart);
        assert(_free(address(this)) == uint256(pool) - apart);
    }

    /// @dev Any state of a rewind's compensation: `left` of wasted prices not yet compensated, `apart` tokens for them.
    /// INVARIANT: apart <= left, which the steps below keep.
    function _state(uint96 left, uint96 apart) private {
        vm.assume(apart <= left);
        jobs.set(JOB, 1, uint128(1) + left, 0);
        assert(_rewind(1, 2 * uint256(apart)) == apart);
    }

    /// @notice One claim of what is left: it is paid no more than its price, from what is set apart alone, and leaves those
    /// that come later no worse off: what is then apart for each unit left is no less than before.
    function check_aShareIsAtMostThePriceAndHarmsNobody(uint96 left, uint96 apart, uint96 price) external {
        vm.assume(0 < price && price <= left);
        _state(left, apart);
        uint256 paid = _compensate(address(1), price);
        (uint256 all, uint256 part, uint256 rest) = (left, price, uint256(left) - price);
        assert(paid == apart * part / all);
        assert(paid <= part);
        assert(_free(address(1)) == paid);
        assert(_apart() == apart - paid);
        assert((apart - paid) * all >= apart * rest);
        // Steps on the way to the last one: what is apart is at most what is left.
        assert((apart - paid) * all < apart * rest + all);
        assert(apart * rest <= all * rest);
        assert(apart - paid <= rest);
    }

    /// @notice The last claim takes all that is left, so nothing stays apart for ever.
    function check_theLastShareIsAllThatIsLeft(uint96 left, uint96 apart) external {
        vm.assume(left > 0);
        _state(left, apart);
        assert(_compensate(address(1), left) == apart);
        assert(_apart() == 0 && _free(address(1)) == apart);
    }

    /// @notice Of two claims that are all there is, the second takes what the first has left, at any prices.
    function check_twoSharesAreTheWhole(uint96 left, uint96 apart, uint96 price) external {
        vm.assume(0 < price && price < left);
        _state(left, apart);
        uint256 first = _compensate(address(1), price);
        assert(_compensate(address(2), uint128(left) - price) == apart - first);
        assert(_apart() == 0);
    }

    /// @notice The convict's own share is burnt.
    function check_theConvictsShareIsBurnt(uint96 left, uint96 apart, uint96 price) external {
        vm.assume(0 < price && price <= left);
        _state(left, apart);
        assert(_compensate(CONVICT, price) == 0);
        uint256 share = uint256(apart) * price / left;
        assert(vault.burnt() == share && _free(CONVICT) == 0);
        assert(_apart() == apart - share);
    }
}
