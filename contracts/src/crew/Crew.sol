// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {ICrew, ICrews, Member} from "../interfaces/ICrews.sol";
import {IStakes} from "../interfaces/IStakes.sol";
import {IVault} from "../interfaces/IVault.sol";
import {Role} from "../interfaces/Types.sol";
import {IERC20} from "@openzeppelin/contracts/token/ERC20/IERC20.sol";
import {SafeERC20} from "@openzeppelin/contracts/token/ERC20/utils/SafeERC20.sol";
import {SafeCast} from "@openzeppelin/contracts/utils/math/SafeCast.sol";

/// @notice See ICrew. Each crew is a clone of this. INVARIANT: locked + lost <= each, so that any one member can pay all.
contract Crew is ICrew {
    using SafeERC20 for IERC20;
    using SafeCast for uint256;

    uint256 private constant WHOLE = 10_000;

    ICrews private immutable CREWS;
    IERC20 private immutable TOKEN;
    IVault private immutable VAULT;
    IStakes private immutable STAKES;
    address private immutable TASKS;
    address private immutable COURT;

    bytes32 public membersHash;
    address public leader;
    uint96 private _each;
    /// @dev One slot. `joined`: a bit for each member; `count`: members in all once they are complete, else 0.
    uint8 private _joined;
    uint8 private _count;
    uint128 private _charged;
    mapping(uint256 member => uint256) private charges;

    constructor(ICrews crews, IERC20 token, IVault vault, IStakes stakes, address tasks, address court) {
        CREWS = crews;
        TOKEN = token;
        VAULT = vault;
        STAKES = stakes;
        TASKS = tasks;
        COURT = court;
    }

    modifier onlyCrews() {
        if (msg.sender != address(CREWS)) revert NotCrews();
        _;
    }

    modifier known(Member[] calldata members) {
        if (keccak256(abi.encode(members)) != membersHash) revert WrongMembers(membersHash);
        _;
    }

    modifier complete() {
        if (_count == 0) revert Incomplete(_joined);
        _;
    }

    function begin(bytes32 members, address leader_, uint96 each) external onlyCrews {
        (membersHash, leader, _each) = (members, leader_, each);
    }

    function join(Member[] calldata members, uint256 member) external known(members) {
        _requireMember(members, member);
        uint256 bit = uint256(1) << member;
        if (_joined & bit != 0) revert AlreadyJoined(member);
        uint256 joined = _joined | bit;
        _joined = joined.toUint8();
        emit Joined(member, msg.sender);
        TOKEN.safeTransferFrom(msg.sender, address(this), _each);
        uint256 count = members.length;
        if (joined + 1 != uint256(1) << count) return;
        _count = count.toUint8();
        uint256 all = count * _each;
        TOKEN.forceApprove(address(VAULT), all);
        VAULT.deposit(address(this), all);
        STAKES.stake(Role.SOLVER, all);
    }

    function quit(Member[] calldata members, uint256 member) external known(members) {
        _requireMember(members, member);
        if (_count != 0) revert Complete();
        uint256 bit = uint256(1) << member;
        if (_joined & bit == 0) revert NotMember(member);
        _joined = (_joined ^ bit).toUint8();
        emit Left(member, msg.sender);
        TOKEN.safeTransfer(msg.sender, _each);
    }

    function relay(address target, bytes calldata data) external complete returns (bytes memory result) {
        if (msg.sender != leader) revert NotLeader(leader);
        // What is called: the rest are its arguments.
        // forge-lint: disable-next-line(unsafe-typecast)
        bytes4 selector = bytes4(data);
        bool announces = target == address(STAKES) && selector == IStakes.setEndpoint.selector;
        if (target != TASKS && target != COURT && !announces) revert NotAllowed(target, selector);
        bool done;
        (done, result) = target.call(data);
        if (!done) {
            assembly ("memory-safe") {
                revert(add(result, 0x20), mload(result))
            }
        }
        if (target != TASKS) return result;
        uint256 locked = STAKES.locked(address(this), Role.SOLVER);
        (uint256 lost,) = losses();
        if (locked + lost > _each) revert BeyondStake(locked, lost, _each);
    }

    function pay(Member[] calldata members) external known(members) complete {
        _pay(members);
    }

    function dissolve(Member[] calldata members, uint256 member) external known(members) complete {
        _requireMember(members, member);
        uint256 locked = STAKES.locked(address(this), Role.SOLVER);
        if (locked > 0) revert StillLocked(locked);
        (uint256 lost,) = losses();
        emit Dissolved(lost);
        STAKES.startUnbond(Role.SOLVER, STAKES.active(address(this), Role.SOLVER));
    }

    function finish(Member[] calldata members) external known(members) complete {
        uint256 games = CREWS.openGames(address(this));
        if (games > 0) revert GamesOpen(games);
        (uint256 lost, uint256 charged) = losses();
        _pay(members);
        _hold(STAKES.finishUnbond(Role.SOLVER, 0));
        charges[0] += lost - charged;
        // The request above cannot be finished again, so nothing is given twice.
        for (uint256 i; i < members.length; ++i) {
            uint256 amount = _each - charges[i];
            emit Refunded(i, amount);
            VAULT.deposit(members[i].account, amount);
        }
    }

    function charge(uint256 member, uint256 amount) external onlyCrews {
        (uint256 lost, uint256 charged) = losses();
        if (amount > lost - charged) amount = lost - charged;
        charges[member] += amount;
        _charged = (charged + amount).toUint128();
        emit Charged(member, amount);
    }

    function losses() public view returns (uint256 lost, uint256 charged) {
        uint256 left =
            STAKES.active(address(this), Role.SOLVER) + STAKES.unbonding(address(this), Role.SOLVER);
        return (uint256(_count) * _each - left, _charged);
    }

    /// @dev What does not divide is the leader's.
    function _pay(Member[] calldata members) private {
        uint256 amount = VAULT.free(address(this));
        if (amount == 0) return;
        emit Paid(amount);
        _hold(amount);
        uint256 rest = amount;
        for (uint256 i = members.length - 1; i > 0; --i) {
            uint256 part = amount * members[i].share / WHOLE;
            rest -= part;
            VAULT.deposit(members[i].account, part);
        }
        VAULT.deposit(members[0].account, rest);
    }

    /// @dev Out of the crew's free balance, to be put into its members': no token is sent to them, so none can hinder it.
    function _hold(uint256 amount) private {
        VAULT.withdraw(address(this), amount);
        TOKEN.forceApprove(address(VAULT), amount);
    }

    function _requireMember(Member[] calldata members, uint256 member) private view {
        if (member >= members.length || members[member].account != msg.sender) revert NotMember(member);
    }
}
