// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {IGuardian} from "../interfaces/IGuardian.sol";
import {IKeys} from "../interfaces/IKeys.sol";
import {IStakes} from "../interfaces/IStakes.sol";
import {IVault} from "../interfaces/IVault.sol";
import {Role} from "../interfaces/Types.sol";
import {accountKey} from "../libraries/AccountKey.sol";
import {Arrays} from "../libraries/Arrays.sol";
import {Batch} from "./Batch.sol";
import {Caps} from "./Caps.sol";
import {Draws} from "./Draws.sol";
import {Math} from "@openzeppelin/contracts/utils/math/Math.sol";
import {SafeCast} from "@openzeppelin/contracts/utils/math/SafeCast.sol";

/// @notice See IStakes. Who is drawn is said in Draws, what an owner allows in Caps.
contract Stakes is Batch, Caps, Draws {
    using Arrays for address[];
    using SafeCast for uint256;

    /// @dev One slot. INVARIANT: locked <= active.
    struct Account {
        uint96 active;
        uint96 locked;
        uint32 nonce; // of the unbonding pool: shares of an earlier nonce are worth nothing
        uint32 tenure; // of its owner's caps (Caps); 0: what it locks is not counted
    }

    /// @dev Stake on its way out, owned by shares, so that one subtraction slashes every request of the account.
    /// INVARIANT: tokens <= shares, and tokens > 0 or shares == 0.
    struct Pool {
        uint128 tokens;
        uint256 shares;
    }

    struct Request {
        uint256 shares;
        uint64 due; // seconds
        uint32 nonce;
    }

    /// @dev Accounts looked at for each seat, beside those that may not have it.
    uint256 private constant TRIES = 4;
    uint256 private constant MAX_ENDPOINT = 256; // bytes
    /// @dev The one entry of STAKE, and of UNBONDING, in the Vault: whose how much of it is, is kept here alone.
    bytes32 private constant ALL = 0;

    IVault public immutable VAULT;
    address public immutable TASKS;
    /// @notice Seconds from `startUnbond` to `finishUnbond`.
    uint64 public immutable UNBOND_DELAY;
    IKeys private immutable KEYS;
    IGuardian private immutable GUARDIAN;

    mapping(address account => mapping(Role role => Account)) private accounts;
    mapping(address account => mapping(Role role => Pool)) private pools;
    mapping(address account => mapping(Role role => Request[])) private requests;
    mapping(address account => string) private endpoints;

    constructor(
        IVault vault,
        address tasks,
        IKeys keys,
        IGuardian guardian,
        uint64 unbondDelay,
        uint64 weightEpoch
    ) Draws(weightEpoch) {
        VAULT = vault;
        TASKS = tasks;
        KEYS = keys;
        GUARDIAN = guardian;
        UNBOND_DELAY = unbondDelay;
    }

    modifier onlyTasks() {
        if (msg.sender != TASKS) revert NotModule(msg.sender);
        _;
    }

    modifier onlyOwnerOf(address account) {
        _requireOwner(account);
        _;
    }

    function stake(Role role, uint256 amount) external {
        stakeFor(msg.sender, role, amount);
    }

    function startUnbond(Role role, uint256 amount) external returns (uint256 index) {
        return startUnbondFor(msg.sender, role, amount);
    }

    function finishUnbond(Role role, uint256 index) external returns (uint256 amount) {
        return finishUnbondFor(msg.sender, role, index);
    }

    function stakeFor(address account, Role role, uint256 amount) public onlyOwnerOf(account) {
        // Whoever is owned by another stakes for nobody: what it has earned is its owner's.
        if (account != msg.sender) _requireOwner(msg.sender);
        GUARDIAN.requireOpen(IGuardian.Business.STAKES);
        if (amount == 0) revert ZeroAmount();
        Account storage entry = accounts[account][role];
        entry.active = (entry.active + amount).toUint96();
        if (role == Role.VERIFIER) _enter(classOf[account], account, amount);
        emit Staked(account, role, amount);
        VAULT.move(IVault.Bucket.FREE, accountKey(msg.sender), IVault.Bucket.STAKE, ALL, amount);
    }

    function startUnbondFor(address account, Role role, uint256 amount)
        public
        onlyOwnerOf(account)
        returns (uint256 index)
    {
        if (amount == 0) revert ZeroAmount();
        Account storage entry = accounts[account][role];
        _requireUnlocked(entry, account, role, amount);
        _lower(entry, account, role, amount);
        Pool storage pool = pools[account][role];
        uint256 shares = pool.shares == 0 ? amount : amount * pool.shares / pool.tokens;
        pool.shares += shares;
        pool.tokens += amount.toUint128();
        index = requests[account][role].length;
        uint64 due = block.timestamp.toUint64() + UNBOND_DELAY;
        requests[account][role].push(Request(shares, due, entry.nonce));
        emit UnbondStarted(account, role, index, shares, due);
        VAULT.move(IVault.Bucket.STAKE, ALL, IVault.Bucket.UNBONDING, ALL, amount);
    }

    function finishUnbondFor(address account, Role role, uint256 index)
        public
        onlyOwnerOf(account)
        returns (uint256 amount)
    {
        if (index >= requests[account][role].length) revert NoSuchRequest(index);
        Request storage asked = requests[account][role][index];
        if (asked.shares == 0) revert NoSuchRequest(index);
        if (block.timestamp < asked.due) revert NotDue(asked.due);
        amount = _worth(account, role, asked);
        if (asked.nonce == accounts[account][role].nonce) {
            Pool storage pool = pools[account][role];
            pool.shares -= asked.shares;
            pool.tokens -= amount.toUint128();
        }
        asked.shares = 0;
        emit UnbondFinished(account, role, index, amount);
        VAULT.move(IVault.Bucket.UNBONDING, ALL, IVault.Bucket.FREE, accountKey(msg.sender), amount);
    }

    function subscribe(bytes32 class) external {
        subscribeFor(msg.sender, class);
    }

    function subscribeFor(address account, bytes32 class) public onlyOwnerOf(account) {
        uint256 counted = accounts[account][Role.VERIFIER].active;
        _leave(classOf[account], account, counted);
        classOf[account] = class;
        _enter(class, account, counted);
        emit Subscribed(account, class);
    }

    function cap(address account, Role role, uint128 all, uint120 others) external onlyOwnerOf(account) {
        accounts[account][role].tenure = _setTotal(account, role, all, others);
        emit Capped(account, role, all, others);
    }

    function capClient(address account, Role role, address client, uint120 most)
        external
        onlyOwnerOf(account)
    {
        if (client == address(0)) revert NoClient();
        _setPurse(account, role, client, most);
        emit ClientCapped(account, role, client, most);
    }

    function setEndpoint(string calldata url) external {
        if (bytes(url).length > MAX_ENDPOINT) revert EndpointTooLong(MAX_ENDPOINT);
        endpoints[msg.sender] = url;
        emit Endpoint(msg.sender, url);
    }

    function lock(address account, Role role, uint256 amount, address client) external onlyTasks {
        uint256 free = _lock(account, role, amount, client);
        if (free >= amount) return;
        Account storage entry = accounts[account][role];
        uint256 unlocked = entry.active - entry.locked;
        if (unlocked < amount) revert InsufficientStake(account, role, amount, unlocked);
        revert BeyondCap(account, role, client, amount, free);
    }

    function unlock(address account, Role role, uint256 amount, address client) external onlyTasks {
        _unlock(account, role, amount, client);
    }

    function unlockEach(address[] calldata each, Role role, uint256 amount, address client)
        external
        onlyTasks
    {
        for (uint256 i; i < each.length; ++i) {
            _unlock(each[i], role, amount, client);
        }
    }

    function release(address[] calldata each, uint256 solverStake, uint256 verifierStake, address client)
        external
        onlyTasks
    {
        _unlock(each[0], Role.SOLVER, solverStake, client);
        for (uint256 i = 1; i < each.length; ++i) {
            _unlock(each[i], Role.VERIFIER, verifierStake, client);
        }
    }

    function fine(address[] calldata each, Role role, uint256 held, uint256 amount, address client)
        external
        onlyTasks
        returns (uint256 taken)
    {
        uint256 fromActive;
        for (uint256 i; i < each.length; ++i) {
            _unlock(each[i], role, held, client);
            (uint256 active_, uint256 all) = _slash(each[i], role, amount, client);
            fromActive += active_;
            taken += all;
        }
        VAULT.move(IVault.Bucket.STAKE, ALL, IVault.Bucket.FREE, accountKey(msg.sender), fromActive);
    }

    function slash(address account, Role role, uint256 asked, address client)
        external
        onlyTasks
        returns (uint256 taken)
    {
        uint256 fromActive;
        (fromActive, taken) = _slash(account, role, asked, client);
        VAULT.move(IVault.Bucket.STAKE, ALL, IVault.Bucket.FREE, accountKey(msg.sender), fromActive);
    }

    function seize(
        address claimant,
        uint256 solverStake,
        address[] calldata voters,
        address[] calldata guilty,
        uint256 verifierStake,
        address client
    ) external onlyTasks returns (uint256 taken) {
        _unlock(claimant, Role.SOLVER, solverStake, client);
        for (uint256 i; i < voters.length; ++i) {
            _unlock(voters[i], Role.VERIFIER, verifierStake, client);
        }
        // What was locked is there.
        _take(claimant, Role.SOLVER, solverStake, client);
        for (uint256 i; i < guilty.length; ++i) {
            _take(guilty[i], Role.VERIFIER, verifierStake, client);
        }
        return solverStake + guilty.length * verifierStake;
    }

    function active(address account, Role role) external view returns (uint256) {
        return accounts[account][role].active;
    }

    function locked(address account, Role role) external view returns (uint256) {
        return accounts[account][role].locked;
    }

    function room(address account, Role role, address client) external view returns (uint256) {
        return _room(accounts[account][role], account, role, client);
    }

    function caps(address account, Role role, address client)
        external
        view
        returns (bool capped, uint256 all, uint256 lost, uint256 most, uint256 used)
    {
        uint256 tenure = accounts[account][role].tenure;
        (all, lost, most, used) = _capsOf(account, role, tenure, client);
        return (tenure != 0, all, lost, most, used);
    }

    function unbonding(address account, Role role) external view returns (uint256) {
        return pools[account][role].tokens;
    }

    function request(address account, Role role, uint256 index)
        external
        view
        returns (uint256 amount, uint64 due)
    {
        if (index >= requests[account][role].length) revert NoSuchRequest(index);
        Request storage asked = requests[account][role][index];
        return (_worth(account, role, asked), asked.due);
    }

    function ownerOf(address account) external view returns (address) {
        return KEYS.ownerOf(account);
    }

    function endpoint(address account) external view returns (string memory) {
        return endpoints[account];
    }

    function seat(
        bytes32 class,
        bytes32 seed,
        uint256 count,
        uint256 amount,
        address[] calldata others,
        address client
    ) external onlyTasks returns (address[] memory seated) {
        Line memory line = _line(class, TRIES * count + others.length);
        seated = new address[](count);
        uint256 n;
        while (n < count && line.rest > 0 && line.n < line.starts.length) {
            address account = _next(line, class, seed);
            if (_among(others, account) || _lock(account, Role.VERIFIER, amount, client) < amount) continue;
            seated[n++] = account;
        }
        seated.truncate(n);
    }

    function _among(address[] calldata others, address account) private pure returns (bool) {
        for (uint256 i; i < others.length; ++i) {
            if (others[i] == account) return true;
        }
        return false;
    }

    /// @dev What it could lock for the client.
    function _room(Account memory entry, address account, Role role, address client)
        private
        view
        returns (uint256 free)
    {
        free = entry.active - entry.locked;
        if (entry.tenure != 0) {
            free = _min(free, _capRoom(account, role, entry.tenure, client, entry.locked));
        }
    }

    /// @dev Locks, or does nothing where `free`, what could have been locked, is less than the amount.
    function _lock(address account, Role role, uint256 amount, address client)
        private
        returns (uint256 free)
    {
        Account storage entry = accounts[account][role];
        Account memory held = entry;
        free = _room(held, account, role, client);
        if (free < amount) return free;
        if (held.tenure != 0) _use(account, role, held.tenure, client, amount);
        entry.locked = (held.locked + amount).toUint96();
    }

    function _unlock(address account, Role role, uint256 amount, address client) private {
        Account storage entry = accounts[account][role];
        (uint96 locked_, uint32 tenure) = (entry.locked, entry.tenure);
        if (locked_ < amount) revert Underlocked(account, role, amount, locked_);
        if (tenure != 0) _giveBack(account, role, tenure, client, amount);
        unchecked {
            // forge-lint: disable-next-line(unsafe-typecast)
            entry.locked = locked_ - uint96(amount); // which is at most locked_
        }
    }

    /// @dev Takes off the books what was locked for a claim or a vote until now.
    function _take(address account, Role role, uint256 amount, address client) private {
        Account storage entry = accounts[account][role];
        _lower(entry, account, role, amount);
        if (entry.tenure != 0) _lose(account, role, entry.tenure, client, amount);
        emit Slashed(account, role, amount, amount);
    }

    /// @dev Takes off the books: `fromActive` of active stake, which is still to be moved, and the rest of `taken` of what is
    /// unbonding, which goes to the caller's free balance.
    function _slash(address account, Role role, uint256 asked, address client)
        private
        returns (uint256 fromActive, uint256 taken)
    {
        Account storage entry = accounts[account][role];
        fromActive = _min(asked, entry.active - entry.locked);
        if (fromActive > 0) _lower(entry, account, role, fromActive);
        taken = fromActive;
        if (fromActive < asked) taken += _slashPool(entry, account, role, asked - fromActive);
        if (entry.tenure != 0) _lose(account, role, entry.tenure, client, taken);
        emit Slashed(account, role, asked, taken);
    }

    function _slashPool(Account storage entry, address account, Role role, uint256 asked)
        private
        returns (uint256 taken)
    {
        Pool storage pool = pools[account][role];
        taken = _min(asked, pool.tokens);
        if (taken == 0) return 0;
        pool.tokens -= taken.toUint128();
        if (pool.tokens == 0) {
            pool.shares = 0;
            ++entry.nonce;
        }
        VAULT.move(IVault.Bucket.UNBONDING, ALL, IVault.Bucket.FREE, accountKey(msg.sender), taken);
    }

    function _requireOwner(address account) private view {
        address owner = KEYS.ownerOf(account);
        if (owner != msg.sender) revert NotOwner(owner);
    }

    function _requireUnlocked(Account storage entry, address account, Role role, uint256 amount)
        private
        view
    {
        uint256 unlocked = entry.active - entry.locked;
        if (unlocked < amount) revert InsufficientStake(account, role, amount, unlocked);
    }

    function _lower(Account storage entry, address account, Role role, uint256 amount) private {
        entry.active -= amount.toUint96();
        if (role == Role.VERIFIER) _leave(classOf[account], account, amount);
    }

    function _worth(address account, Role role, Request storage asked) private view returns (uint256) {
        if (asked.nonce != accounts[account][role].nonce) return 0;
        Pool storage pool = pools[account][role];
        return pool.shares == 0 ? 0 : Math.mulDiv(asked.shares, pool.tokens, pool.shares);
    }

    function _min(uint256 a, uint256 b) private pure returns (uint256) {
        return a < b ? a : b;
    }
}
