// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {IClock} from "../../src/interfaces/IClock.sol";
import {IJobs} from "../../src/interfaces/IJobs.sol";
import {IStakes} from "../../src/interfaces/IStakes.sol";
import {IVault} from "../../src/interfaces/IVault.sol";
import {Accused, Kind, Loop, Phase, Role, Terms} from "../../src/interfaces/Types.sol";
import {TasksExtension} from "../../src/market/TasksExtension.sol";
import {LedgerFake} from "./LedgerFake.sol";
import {TermsFake} from "./TermsFake.sol";

/// @dev The deployed module of convictions, with a claim on which games are open: `findings` of them with a root of their
/// challengers' own.
contract ConvictionsBooks is TasksExtension {
    constructor(IVault vault, IStakes stakes, IJobs jobs)
        TasksExtension(vault, stakes, jobs, msg.sender, address(0), IClock(address(0)))
    {}

    function set(bytes32 claimId, Phase phase, uint16 openGames, uint16 findings) external {
        Status memory st;
        (st.phase, st.openGames, st.findings) = (phase, openGames, findings);
        _setStatus(claimId, st);
    }

    function setVote(bytes32 claimId, uint64 ballot, address verifier) external {
        (accountCount, numberOf[verifier], accountOf[1]) = (1, 1, verifier);
        draws[claimId] = uint256(1) << 32 * (ballot - 1);
        statuses[claimId].drawn = 1;
    }
}

/// @dev Takes as much as it is told, of what it is asked for, and brings it to the Tasks module's free balance.
contract SlashesFake {
    LedgerFake private immutable LEDGER;
    uint256 private all;
    uint256 public askedOfClaimant;

    constructor(LedgerFake ledger) {
        LEDGER = ledger;
    }

    function set(uint256 all_) external {
        all = all_;
    }

    function unlock(address, Role, uint256, address) external {}

    function slash(address, Role, uint256, address) external returns (uint256) {
        _bring();
        return all;
    }

    function seize(address, uint256 asked, address[] calldata, address[] calldata, uint256, address)
        external
        returns (uint256)
    {
        askedOfClaimant = asked;
        LEDGER.put(IVault.Bucket.STAKE, 0, all);
        return all;
    }

    function _bring() private {
        LEDGER.put(IVault.Bucket.FREE, bytes32(uint256(uint160(msg.sender))), all);
    }
}

/// @dev Sets as much apart as it is told, at most the pool.
contract RewindsFake {
    LedgerFake private immutable LEDGER;
    uint256 public apart;

    constructor(LedgerFake ledger) {
        LEDGER = ledger;
    }

    function set(uint256 apart_) external {
        apart = apart_;
    }

    function overtaken(bytes32, Kind, uint32, uint32, bool) external pure returns (bool) {
        return false;
    }

    function disputeClosed(bytes32) external {}

    function rewind(Accused calldata, uint256, bool, bool inGame) external returns (uint256) {
        assert(inGame);
        LEDGER.move(IVault.Bucket.STAKE, 0, IVault.Bucket.COMPENSATION, 0, apart);
        return apart;
    }
}

/// @notice Proofs, for all amounts at once (`make symbolic`), about who gets what when a claim or a vote falls: the deployed
/// code of Tasks; this contract is its Challenges module. What is slashed at once fits 104 bits: 17 stakes of 96.
contract ConvictionsSymbolic is TermsFake {
    bytes32 private constant JOB = keccak256("job");
    bytes32 private constant CLAIM = keccak256("claim");
    address private constant SOLVER = address(0x50);
    address private constant FINDER = address(0xf1);
    address private constant EARLY = address(0xea);
    uint128 private constant STAKE = 101 ether + 1;

    LedgerFake private vault = new LedgerFake();
    SlashesFake private stakes = new SlashesFake(vault);
    RewindsFake private jobs = new RewindsFake(vault);
    ConvictionsBooks private tasks =
        new ConvictionsBooks(IVault(address(vault)), IStakes(address(stakes)), IJobs(address(jobs)));

    constructor() {
        Terms memory t;
        (t.shards, t.segments, t.solverStake) = (1, 1, STAKE);
        t.loops = new Loop[](1);
        t.loops[0] = Loop(0, 1, 1, 1, 1, 0, 1);
        _putTerms(address(jobs), JOB, t);
    }

    function _free(address account) private view returns (uint256) {
        return vault.balance(IVault.Bucket.FREE, bytes32(uint256(uint160(account))));
    }

    function _accused() private pure returns (Accused memory) {
        return Accused(JOB, SOLVER, Kind.TASK, 0, 0, 1, 0);
    }

    function _close(address challenger, bool won) private returns (bool stood, bool kept) {
        (bool done, bytes memory result) =
            address(tasks).call(abi.encodeCall(tasks.gameClosed, (CLAIM, _accused(), challenger, true, won)));
        assert(done);
        return abi.decode(result, (bool, bool));
    }

    /// @dev A claim falls to FINDER while games of this many other findings are open. Whether its reward is kept.
    function _convict(uint16 others) private returns (bool) {
        vm.assume(others < type(uint16).max);
        tasks.set(CLAIM, Phase.ACCEPTED, others + 1, others + 1);
        (bool stood, bool kept) = _close(FINDER, true);
        assert(stood);
        return kept;
    }

    /// @notice Half of what is taken is burnt, rounded up; the whistleblower gets the other half but for what the rewind sets apart.
    function check_halfIsBurntAndTheFinderGetsTheRest(uint104 taken, uint104 apart) external {
        vm.assume(apart <= taken / 2);
        stakes.set(taken);
        jobs.set(apart);
        assert(!_convict(0));
        assert(stakes.askedOfClaimant() == STAKE);
        assert(vault.burnt() == taken - taken / 2);
        assert(_free(FINDER) == taken / 2 - apart);
        assert(_free(address(tasks)) == 0);
    }

    /// @notice With other findings in dispute the whole reward stays in the module's balance, and the end of their games pays
    /// nobody.
    function check_aRewardWaitsForOtherFindings(uint104 taken, uint104 apart, uint16 others) external {
        vm.assume(apart <= taken / 2 && others > 0);
        stakes.set(taken);
        jobs.set(apart);
        assert(_convict(others));
        uint256 due = uint256(taken / 2) - apart;
        (uint256 reward, address winner) = tasks.reward(CLAIM);
        assert(reward == due && winner == FINDER);
        assert(_free(FINDER) == 0 && _free(address(tasks)) == due);
        (bool stood, bool kept) = _close(EARLY, false);
        assert(!stood && kept);
        assert(_free(EARLY) == 0 && _free(address(tasks)) == due);
    }

    /// @notice What was kept is paid in full, in equal parts, the remainder to the first, and once.
    function check_aRewardThatWaitedIsPaidOnce(uint104 taken) external {
        stakes.set(taken);
        jobs.set(0);
        assert(_convict(1));
        _close(EARLY, false);
        address[] memory finders = new address[](3);
        (finders[0], finders[1], finders[2]) = (FINDER, EARLY, address(0x3f));
        (bool done,) = address(tasks).call(abi.encodeCall(tasks.payReward, (CLAIM, finders, false)));
        assert(done);
        uint256 each = uint256(taken / 2) / 3;
        assert(_free(FINDER) == taken / 2 - each * 2);
        assert(_free(EARLY) == each && _free(finders[2]) == each);
        assert(_free(address(tasks)) == 0);
        (bool again,) = address(tasks).call(abi.encodeCall(tasks.payReward, (CLAIM, finders, false)));
        assert(!again);
    }

    /// @notice Of a convicted vote's stake the challenger gets half, and the rest is burnt.
    function check_aVotesStakeIsHalved(uint104 taken) external {
        stakes.set(taken);
        tasks.set(CLAIM, Phase.ACCEPTED, 1, 0);
        tasks.setVote(CLAIM, 1, address(0x7e));
        (bool done, bytes memory stood) =
            address(tasks).call(abi.encodeCall(tasks.voteGameClosed, (CLAIM, _accused(), 1, FINDER, true)));
        assert(done);
        assert(abi.decode(stood, (bool)));
        assert(_free(FINDER) == taken / 2);
        assert(vault.burnt() == taken - taken / 2);
        assert(_free(address(tasks)) == 0);
    }
}
