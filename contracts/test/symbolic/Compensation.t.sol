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
    function set(bytes32 jobId, uint96 kept, uint96 accepted, uint96 pending) external {
        (counts[jobId].round, counts[jobId].lastRound) = (2, 9);
        (counts[jobId].standing, counts[jobId].accepted) = (2, 2);
        worths[jobId] = Worth(accepted, pending, 0, 0);
        marks[jobId][1] = Mark(kept, 0, 2, 0, 1);
        marks[jobId][2] = Mark(kept, 0, 2, 0, 1);
    }
}

/// @notice Proofs, for all amounts at once (`make symbolic`), about what the deployed Jobs sets apart and pays when a job
/// goes back; this contract is its Tasks module. A job wastes at most 2^96 (Jobs.post), as do all its claims.
contract CompensationSymbolic is Test {
    bytes32 private constant JOB = keccak256("job");
    address private constant CONVICT = address(0xc0);
    address private constant VOTER = address(0x7e);

    LedgerFake private vault = new LedgerFake();
    JobsBooks private jobs = new JobsBooks(IVault(address(vault)), address(this));

    function _free(address account) private view returns (uint256) {
        return vault.balance(IVault.Bucket.FREE, bytes32(uint256(uint160(account))));
    }

    function _apart() private view returns (uint256) {
        return vault.balance(IVault.Bucket.COMPENSATION, keccak256(abi.encode(JOB, uint32(1))));
    }

    /// @dev The job goes back from round 2 to round 0, since a task of that, accepted at `worth`, has fallen.
    function _rewind(uint96 worth) private returns (uint256) {
        Accused memory accused = Accused(JOB, CONVICT, Kind.TASK, 0, 0, worth, 0);
        (bool done, bytes memory set) =
            address(jobs).call(abi.encodeCall(jobs.rewind, (accused, worth, true, false)));
        assert(done);
        return abi.decode(set, (uint256));
    }

    /// @dev A task of round 2 that the rewind has wasted, with one valid vote of two.
    function _compensate(address claimant, uint96 price, uint96 fee) private returns (uint256) {
        Accused memory claim = Accused(JOB, claimant, Kind.TASK, 2, 0, price, 0);
        address[] memory payees = new address[](2);
        (payees[0], payees[1]) = (claimant, VOTER);
        uint256 worth = uint256(price) + 2 * uint256(fee);
        bytes memory data =
            abi.encodeCall(jobs.compensate, (keccak256("claim"), claim, false, payees, fee, worth));
        (bool done, bytes memory paid) = address(jobs).call(data);
        assert(done);
        (bool found, uint256 share) = abi.decode(paid, (bool, uint256));
        assert(found);
        return share;
    }

    /// @notice A rewind sets apart all that is wasted, and takes no more than that.
    function check_rewindSetsApartAllThatIsWasted(
        uint96 kept,
        uint96 later,
        uint96 pending,
        uint96 worth,
        uint128 pool
    ) external {
        vm.assume(worth <= kept && uint256(kept) + later <= type(uint96).max);
        uint256 wasted = uint256(later) + pending;
        vm.assume(wasted <= type(uint96).max && wasted <= pool);
        jobs.set(JOB, kept, kept + later, pending);
        vault.put(IVault.Bucket.STAKE, 0, pool);
        assert(_rewind(worth) == wasted);
        assert(_apart() == wasted);
        assert(vault.balance(IVault.Bucket.STAKE, 0) == uint256(pool) - wasted);
    }

    /// @notice Each claim takes what was set apart for it, to the last unit: its price and its vote's fee are paid, the fee of
    /// the vote that there was not is burnt; and of the convict's own the price is burnt.
    function check_aWastedClaimIsPaidInFull(uint96 price, uint96 fee, uint96 others, bool own) external {
        uint256 worth = uint256(price) + 2 * uint256(fee);
        vm.assume(worth + others < type(uint96).max);
        vault.put(IVault.Bucket.STAKE, 0, worth + others);
        // forge-lint: disable-next-line(unsafe-typecast)
        jobs.set(JOB, 1, 1, uint96(worth + others));
        assert(_rewind(1) == worth + others);
        address claimant = own ? CONVICT : address(1);
        assert(_compensate(claimant, price, fee) == (own ? 0 : price));
        assert(_free(claimant) == (own ? 0 : price));
        assert(_free(VOTER) == fee);
        assert(vault.burnt() == uint256(fee) + (own ? price : 0));
        assert(_apart() == others);
    }
}
