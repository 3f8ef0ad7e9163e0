// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {ICrew, ICrews, Invitation, Member} from "../interfaces/ICrews.sol";
import {IJobs} from "../interfaces/IJobs.sol";
import {IStakes} from "../interfaces/IStakes.sol";
import {ITasks} from "../interfaces/ITasks.sol";
import {IVault} from "../interfaces/IVault.sol";
import {Claim, Kind, Role} from "../interfaces/Types.sol";
import {IERC20} from "@openzeppelin/contracts/token/ERC20/IERC20.sol";
import {ERC20Burnable} from "@openzeppelin/contracts/token/ERC20/extensions/ERC20Burnable.sol";
import {SafeERC20} from "@openzeppelin/contracts/token/ERC20/utils/SafeERC20.sol";
import {LibClone} from "solady/utils/LibClone.sol";

/// @dev What a crew reads of its invitation itself. It stands at the end of its code: a clone writes no storage.
struct Own {
    bytes32 jobId;
    address leader;
    uint96 stake; // of each member
    uint32 shard;
    uint8 count; // members
}

using {packed} for Own global;

function packed(Own memory own) pure returns (bytes memory) {
    return abi.encodePacked(own.jobId, own.leader, own.stake, own.shard, own.count);
}

/// @notice See ICrew. Each crew is a clone of this. INVARIANT: locked + lost <= stake, so that any one member can pay all.
contract Crew is ICrew {
    using SafeERC20 for IERC20;

    uint256 private constant WHOLE = 10_000;

    ICrews private immutable CREWS;
    IERC20 private immutable TOKEN;
    IVault private immutable VAULT;
    IStakes private immutable STAKES;
    IJobs private immutable JOBS;
    ITasks private immutable TASKS;
    address private immutable COURT;

    constructor(
        ICrews crews,
        IERC20 token,
        IVault vault,
        IStakes stakes,
        IJobs jobs,
        ITasks tasks,
        address court
    ) {
        CREWS = crews;
        TOKEN = token;
        VAULT = vault;
        STAKES = stakes;
        JOBS = jobs;
        TASKS = tasks;
        COURT = court;
    }

    modifier known(Invitation calldata invitation) {
        address crew = CREWS.crewOf(invitation);
        if (crew != address(this)) revert WrongInvitation(crew);
        _;
    }

    function begin(uint128 leastPrice) external {
        if (msg.sender != address(CREWS)) revert NotCrews();
        Own memory own = _own();
        STAKES.stake(Role.SOLVER, _all(own));
        TASKS.takeShard(own.jobId, own.shard, leastPrice);
        _requireCovered(own);
    }

    function commit(Claim calldata claim, bytes32[] calldata roots) external returns (bytes32 claimId) {
        Own memory own = _onlyLeader();
        if (claim.jobId != own.jobId) revert WrongJob(own.jobId);
        claimId = TASKS.commit(claim, roots);
        // Of a task the market asks this itself. Else stakes could be locked again and again once the shard is over.
        if (claim.kind != Kind.TASK) _requireHolder(own);
        _requireCovered(own);
    }

    function move(bytes calldata data) external {
        _onlyLeader();
        (bool done, bytes memory result) = COURT.call(data);
        if (done) return;
        assembly ("memory-safe") {
            revert(add(result, 0x20), mload(result))
        }
    }

    function setEndpoint(string calldata url) external {
        _onlyLeader();
        STAKES.setEndpoint(url);
    }

    function release(Invitation calldata invitation, uint256 member) external known(invitation) {
        _requireMember(invitation, member);
        (bytes32 jobId, uint32 shard) = (invitation.jobId, invitation.shard);
        IJobs.Progress memory now_ = JOBS.progress(jobId);
        // While a task may be under way the shard stays, even where the market excuses that it is late: whoever gave it back
        // could commit the crew's work in another name.
        bool over = now_.closed || now_.round >= now_.finalRound;
        if (!over && TASKS.current(jobId, Kind.TASK, now_.round, shard) == 0) revert TaskOwed();
        TASKS.release(jobId, shard);
    }

    function pay(Invitation calldata invitation) external known(invitation) {
        _pay(invitation.members);
    }

    function dissolve(Invitation calldata invitation, uint256 member) external known(invitation) {
        _requireMember(invitation, member);
        uint256 locked = STAKES.locked(address(this), Role.SOLVER);
        if (locked > 0) revert StillLocked(locked);
        emit Dissolved(lost());
        STAKES.startUnbond(Role.SOLVER, STAKES.active(address(this), Role.SOLVER));
    }

    function finish(Invitation calldata invitation) external known(invitation) {
        Member[] calldata members = invitation.members;
        _pay(members);
        VAULT.withdraw(address(this), STAKES.finishUnbond(Role.SOLVER, 0));
        uint256 left = TOKEN.balanceOf(address(this)); // with the bonds of accusations
        TOKEN.forceApprove(address(VAULT), left);
        // That request cannot be finished again, so nothing is given twice. The leader gets what is left in the end, less half
        // of what the others are charged with: a leader that has its own crew convicted gains nothing by it.
        uint256 others;
        for (uint256 i = members.length; i > 0;) {
            --i;
            (uint256 charged, uint256 won, uint256 games) = CREWS.charged(address(this), i);
            if (games > 0) revert GamesOpen(i);
            uint256 amount = i > 0 ? invitation.stake + won - charged : left - others / 2;
            if (i > 0) others += charged;
            left -= amount;
            emit Refunded(i, amount);
            VAULT.deposit(members[i].account, amount);
        }
        if (left == 0) return;
        // What a token does not burn stays here, where nobody can move it.
        try ERC20Burnable(address(TOKEN)).burn(left) {} catch {}
    }

    function lost() public view returns (uint256) {
        uint256 left =
            STAKES.active(address(this), Role.SOLVER) + STAKES.unbonding(address(this), Role.SOLVER);
        return _all(_own()) - left;
    }

    /// @dev What does not divide is the leader's.
    function _pay(Member[] calldata members) private {
        uint256 rest = VAULT.free(address(this));
        if (rest == 0) return;
        emit Paid(rest);
        uint256 amount = rest;
        // To be put into the members' balances: no token is sent to them, so none can hinder it.
        VAULT.withdraw(address(this), amount);
        TOKEN.forceApprove(address(VAULT), amount);
        for (uint256 i = members.length - 1; i > 0; --i) {
            uint256 part = amount * members[i].share / WHOLE;
            rest -= part;
            VAULT.deposit(members[i].account, part);
        }
        VAULT.deposit(members[0].account, rest);
    }

    /// @dev As `packed` wrote it.
    function _own() private view returns (Own memory own) {
        own.jobId = bytes32(LibClone.argsOnClone(address(this), 0, 32));
        own.leader = address(bytes20(LibClone.argsOnClone(address(this), 32, 52)));
        own.stake = uint96(bytes12(LibClone.argsOnClone(address(this), 52, 64)));
        own.shard = uint32(bytes4(LibClone.argsOnClone(address(this), 64, 68)));
        own.count = uint8(bytes1(LibClone.argsOnClone(address(this), 68, 69)));
    }

    function _all(Own memory own) private pure returns (uint256) {
        return uint256(own.count) * own.stake;
    }

    function _onlyLeader() private view returns (Own memory own) {
        own = _own();
        if (msg.sender != own.leader) revert NotLeader(own.leader);
    }

    function _requireHolder(Own memory own) private view {
        (address holder,,) = TASKS.holder(own.jobId, own.shard);
        if (holder != address(this)) revert ITasks.NotHolder(holder);
    }

    function _requireCovered(Own memory own) private view {
        uint256 locked = STAKES.locked(address(this), Role.SOLVER);
        // Nothing unbonds where something can be locked.
        uint256 gone = _all(own) - STAKES.active(address(this), Role.SOLVER);
        if (locked + gone > own.stake) revert BeyondStake(locked, gone, own.stake);
    }

    function _requireMember(Invitation calldata invitation, uint256 member) private view {
        if (member >= invitation.members.length || invitation.members[member].account != msg.sender) {
            revert NotMember(member);
        }
    }
}
