// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {IKeys} from "../interfaces/IKeys.sol";
import {IVault} from "../interfaces/IVault.sol";
import {accountKey} from "../libraries/AccountKey.sol";
import {IERC20} from "@openzeppelin/contracts/token/ERC20/IERC20.sol";
import {ERC20Burnable} from "@openzeppelin/contracts/token/ERC20/extensions/ERC20Burnable.sol";
import {IERC20Permit} from "@openzeppelin/contracts/token/ERC20/extensions/IERC20Permit.sol";
import {SafeERC20} from "@openzeppelin/contracts/token/ERC20/utils/SafeERC20.sol";
import {ReentrancyGuardTransient} from "@openzeppelin/contracts/utils/ReentrancyGuardTransient.sol";
import {SafeCast} from "@openzeppelin/contracts/utils/math/SafeCast.sol";

/// @notice See IVault. The token is called by deposits, withdrawals and `destroy` only, never while a module works.
contract Vault is IVault, ReentrancyGuardTransient {
    using SafeERC20 for IERC20;
    using SafeCast for uint256;

    IERC20 public immutable TOKEN;
    address public immutable STAKES;
    address public immutable JOBS;
    address public immutable TASKS;
    address public immutable CHALLENGES;
    address public immutable AVAILABILITY;
    IKeys private immutable KEYS;

    mapping(Bucket bucket => mapping(bytes32 key => uint256)) private entries;
    /// @dev One slot: a burn changes both. One more than what is still to be destroyed, so that the slot is never zero and
    /// the first burn costs no more than any other.
    uint128 public burnt;
    uint128 private _undestroyed = 1;
    /// @dev What a bound operator may still put into jobs of its free balance: each owner's own word, so that what somebody
    /// else has allowed before who owned the operator, itself for one, counts for nothing.
    mapping(address owner => mapping(address operator => uint256)) private allowances;

    constructor(
        IERC20 token,
        address stakes,
        address jobs,
        address tasks,
        address challenges,
        address availability,
        IKeys keys
    ) {
        TOKEN = token;
        STAKES = stakes;
        JOBS = jobs;
        TASKS = tasks;
        CHALLENGES = challenges;
        AVAILABILITY = availability;
        KEYS = keys;
    }

    modifier onlyModule() {
        if (msg.sender != TASKS && msg.sender != STAKES && msg.sender != JOBS && !_holdsBonds(msg.sender)) {
            revert NotModule(msg.sender);
        }
        _;
    }

    function deposit(address account, uint256 amount) external nonReentrant {
        _deposit(account, amount);
    }

    function depositWithPermit(
        address account,
        uint256 amount,
        uint256 deadline,
        uint8 v,
        bytes32 r,
        bytes32 s
    ) external nonReentrant {
        // A permit that somebody else has already used has left its allowance behind: go on, the transfer decides.
        try IERC20Permit(address(TOKEN)).permit(msg.sender, address(this), amount, deadline, v, r, s) {}
        catch (bytes memory reason) {
            emit PermitFailed(msg.sender, reason);
        }
        _deposit(account, amount);
    }

    function withdraw(address to, uint256 amount) external nonReentrant {
        _withdraw(msg.sender, to, amount);
    }

    function withdrawFor(address account, address to, uint256 amount) external nonReentrant {
        _withdraw(account, to, amount);
    }

    function allow(address operator, uint256 amount) external {
        address owner = KEYS.ownerOf(operator);
        if (owner != msg.sender) revert NotOwner(owner);
        allowances[owner][operator] = amount;
        emit Allowed(operator, amount);
    }

    function destroy() external nonReentrant {
        uint256 amount = undestroyed();
        _undestroyed = 1;
        emit Destroyed(amount);
        ERC20Burnable(address(TOKEN)).burn(amount);
    }

    function move(Bucket from, bytes32 fromKey, Bucket to, bytes32 toKey, uint256 amount)
        external
        onlyModule
    {
        if (amount == 0) return;
        if (to == Bucket.ESCROW && from == Bucket.FREE) _spend(address(uint160(uint256(fromKey))), amount);
        _take(from, fromKey, amount);
        _put(to, toKey, amount);
        emit Transfer(from, fromKey, to, toKey, amount);
    }

    function payEach(Bucket from, bytes32 fromKey, address[] calldata to, uint256 first, uint256 rest)
        external
        onlyModule
    {
        if (to.length == 0) return;
        _take(from, fromKey, first + rest * (to.length - 1));
        mapping(bytes32 key => uint256) storage free_ = entries[Bucket.FREE];
        uint256 amount = first;
        for (uint256 i; i < to.length; ++i) {
            unchecked {
                // INVARIANT: all entries together are at most what was deposited, and a payment only moves between them.
                free_[accountKey(to[i])] += amount;
            }
            amount = rest;
        }
        emit Paid(from, fromKey, to, first, rest);
    }

    function burn(Bucket from, bytes32 fromKey, uint256 amount) external onlyModule {
        if (amount == 0) return;
        _take(from, fromKey, amount);
        uint128 gone = amount.toUint128();
        (burnt, _undestroyed) = (burnt + gone, _undestroyed + gone);
        emit Burnt(from, fromKey, amount);
    }

    function balance(Bucket bucket, bytes32 key) external view returns (uint256) {
        return entries[bucket][key];
    }

    function free(address account) external view returns (uint256) {
        return entries[Bucket.FREE][accountKey(account)];
    }

    function allowance(address operator) external view returns (uint256) {
        return allowances[KEYS.ownerOf(operator)][operator];
    }

    function undestroyed() public view returns (uint128) {
        return _undestroyed - 1;
    }

    /// @dev Credits what has arrived, so that a token that keeps a fee cannot leave the ledger short.
    function _deposit(address account, uint256 amount) private {
        uint256 before = TOKEN.balanceOf(address(this));
        TOKEN.safeTransferFrom(msg.sender, address(this), amount);
        uint256 received = TOKEN.balanceOf(address(this)) - before;
        _put(Bucket.FREE, accountKey(account), received);
        emit Deposited(msg.sender, account, received);
    }

    function _withdraw(address account, address to, uint256 amount) private {
        address owner = KEYS.ownerOf(account);
        if (owner != msg.sender) revert NotOwner(owner);
        _take(Bucket.FREE, accountKey(account), amount);
        emit Withdrawn(account, to, amount);
        TOKEN.safeTransfer(to, amount);
    }

    function _take(Bucket bucket, bytes32 key, uint256 amount) private {
        mapping(bytes32 key => uint256) storage held = entries[bucket];
        uint256 there = held[key];
        if (there < amount) revert InsufficientBalance(bucket, key, amount, there);
        unchecked {
            held[key] = there - amount;
        }
    }

    /// @dev An account that owns itself puts into jobs what it likes; a bound operator what its owner allows.
    function _spend(address account, uint256 amount) private {
        address owner = KEYS.ownerOf(account);
        if (owner == account) return;
        uint256 left = allowances[owner][account];
        if (left < amount) revert BeyondAllowance(account, amount, left);
        unchecked {
            allowances[owner][account] = left - amount;
        }
    }

    function _put(Bucket bucket, bytes32 key, uint256 amount) private {
        entries[bucket][key] += amount;
    }

    function _holdsBonds(address caller) private view returns (bool) {
        return caller == CHALLENGES || caller == AVAILABILITY;
    }
}
