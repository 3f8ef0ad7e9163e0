// SPDX-License-Identifier: MIT
pragma solidity ^0.8.28;

import {IStakes, IVault} from "../interfaces/IMarket.sol";
import {Role} from "../interfaces/Types.sol";
import {SumTree} from "../libraries/SumTree.sol";
import {SafeCast} from "@openzeppelin/contracts/utils/math/SafeCast.sol";

/// @notice See IStakes. Does not guarantee that a draw cannot be influenced by stake that comes or goes between the seed
/// block and `recordSeed`: record seeds at once.
contract Stakes is IStakes {
    using SumTree for SumTree.Tree;
    using SafeCast for uint256;

    /// @dev One slot. `place` is the account's place in the draw, 0 before its first stake as a verifier.
    /// INVARIANT: locked <= active.
    struct Account {
        uint96 active;
        uint96 locked;
        uint32 place;
        uint32 nonce; // of the unbonding pool: shares of an earlier nonce are worth nothing
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

    IVault public immutable VAULT;
    address public immutable TASKS;
    /// @notice Seconds from `startUnbond` to `finishUnbond`.
    uint64 public immutable UNBOND_DELAY;

    mapping(address account => mapping(Role role => Account)) private accounts;
    mapping(address account => mapping(Role role => Pool)) private pools;
    mapping(address account => mapping(Role role => Request[])) private requests;
    mapping(address account => string) private endpoints;
    SumTree.Tree private weights;
    mapping(uint256 place => address) private accountAt;

    constructor(IVault vault, address tasks, uint64 unbondDelay) {
        VAULT = vault;
        TASKS = tasks;
        UNBOND_DELAY = unbondDelay;
    }

    modifier onlyTasks() {
        if (msg.sender != TASKS) revert NotModule(msg.sender);
        _;
    }

    function stake(Role role, uint256 amount) external {
        if (amount == 0) revert ZeroAmount();
        Account storage account = accounts[msg.sender][role];
        account.active = (account.active + amount).toUint96();
        if (role == Role.VERIFIER) {
            if (account.place == 0) {
                uint256 place = weights.push();
                account.place = place.toUint32();
                accountAt[place] = msg.sender;
            }
            weights.add(account.place, amount);
        }
        emit Staked(msg.sender, role, amount);
        VAULT.move(IVault.Bucket.FREE, _key(msg.sender), IVault.Bucket.STAKE, _key(msg.sender, role), amount);
    }

    function startUnbond(Role role, uint256 amount) external returns (uint256 index) {
        if (amount == 0) revert ZeroAmount();
        Account storage account = accounts[msg.sender][role];
        _requireUnlocked(account, msg.sender, role, amount);
        _lower(account, role, amount);
        Pool storage pool = pools[msg.sender][role];
        uint256 shares = pool.shares == 0 ? amount : amount * pool.shares / pool.tokens;
        pool.shares += shares;
        pool.tokens += amount.toUint128();
        index = requests[msg.sender][role].length;
        uint64 due = block.timestamp.toUint64() + UNBOND_DELAY;
        requests[msg.sender][role].push(Request(shares, due, account.nonce));
        emit UnbondStarted(msg.sender, role, index, shares, due);
        bytes32 key = _key(msg.sender, role);
        VAULT.move(IVault.Bucket.STAKE, key, IVault.Bucket.UNBONDING, key, amount);
    }

    function finishUnbond(Role role, uint256 index) external returns (uint256 amount) {
        if (index >= requests[msg.sender][role].length) revert NoSuchRequest(index);
        Request storage asked = requests[msg.sender][role][index];
        if (asked.shares == 0) revert NoSuchRequest(index);
        if (block.timestamp < asked.due) revert NotDue(asked.due);
        amount = _worth(msg.sender, role, asked);
        if (asked.nonce == accounts[msg.sender][role].nonce) {
            Pool storage pool = pools[msg.sender][role];
            pool.shares -= asked.shares;
            pool.tokens -= amount.toUint128();
        }
        asked.shares = 0;
        emit UnbondFinished(msg.sender, role, index, amount);
        VAULT.move(
            IVault.Bucket.UNBONDING, _key(msg.sender, role), IVault.Bucket.FREE, _key(msg.sender), amount
        );
    }

    function setEndpoint(string calldata url) external {
        endpoints[msg.sender] = url;
        emit Endpoint(msg.sender, url);
    }

    function lock(address account, Role role, uint256 amount) external onlyTasks {
        Account storage entry = accounts[account][role];
        (uint256 all, uint256 locked_) = (entry.active, entry.locked);
        if (all - locked_ < amount) revert InsufficientStake(account, role, amount, all - locked_);
        entry.locked = (locked_ + amount).toUint96();
    }

    function unlock(address account, Role role, uint256 amount) external onlyTasks {
        _unlock(account, role, amount);
    }

    function unlockEach(address[] calldata each, Role role, uint256 amount) external onlyTasks {
        for (uint256 i; i < each.length; ++i) {
            _unlock(each[i], role, amount);
        }
    }

    function slash(address account, Role role, uint256 asked) external onlyTasks returns (uint256 taken) {
        Account storage entry = accounts[account][role];
        bytes32 key = _key(account, role);
        uint256 fromActive = _min(asked, entry.active - entry.locked);
        if (fromActive > 0) {
            _lower(entry, role, fromActive);
            VAULT.move(IVault.Bucket.STAKE, key, IVault.Bucket.FREE, _key(msg.sender), fromActive);
        }
        Pool storage pool = pools[account][role];
        uint256 fromPool = _min(asked - fromActive, pool.tokens);
        if (fromPool > 0) {
            pool.tokens -= fromPool.toUint128();
            if (pool.tokens == 0) {
                pool.shares = 0;
                ++entry.nonce;
            }
            VAULT.move(IVault.Bucket.UNBONDING, key, IVault.Bucket.FREE, _key(msg.sender), fromPool);
        }
        taken = fromActive + fromPool;
        emit Slashed(account, role, asked, taken);
    }

    function active(address account, Role role) external view returns (uint256) {
        return accounts[account][role].active;
    }

    function locked(address account, Role role) external view returns (uint256) {
        return accounts[account][role].locked;
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

    function endpoint(address account) external view returns (string memory) {
        return endpoints[account];
    }

    function verifiers() external view returns (uint256 count) {
        return weights.count;
    }

    /// @dev Each draw takes a point of what is not yet drawn and skips the runs of those already drawn, which are kept in
    /// order of their start: exact weights, no retries.
    function draw(bytes32 seed, uint256 count) external view returns (address[] memory drawn) {
        uint256[] memory starts = new uint256[](count);
        uint256[] memory lengths = new uint256[](count);
        drawn = new address[](count);
        uint256 rest = weights.total();
        uint256 n;
        for (; n < count && rest > 0; ++n) {
            uint256 target = uint256(keccak256(abi.encode(seed, n))) % rest;
            uint256 position;
            for (; position < n && target >= starts[position]; ++position) {
                target += lengths[position];
            }
            (uint256 place, uint256 start) = weights.find(target);
            address account = accountAt[place];
            uint256 weight = accounts[account][Role.VERIFIER].active;
            drawn[n] = account;
            rest -= weight;
            for (uint256 i = n; i > position; --i) {
                (starts[i], lengths[i]) = (starts[i - 1], lengths[i - 1]);
            }
            (starts[position], lengths[position]) = (start, weight);
        }
        assembly ("memory-safe") {
            mstore(drawn, n)
        }
    }

    function _unlock(address account, Role role, uint256 amount) private {
        accounts[account][role].locked -= amount.toUint96();
    }

    function _requireUnlocked(Account storage entry, address account, Role role, uint256 amount)
        private
        view
    {
        uint256 unlocked = entry.active - entry.locked;
        if (unlocked < amount) revert InsufficientStake(account, role, amount, unlocked);
    }

    function _lower(Account storage entry, Role role, uint256 amount) private {
        entry.active -= amount.toUint96();
        if (role == Role.VERIFIER) weights.sub(entry.place, amount);
    }

    function _worth(address account, Role role, Request storage asked) private view returns (uint256) {
        if (asked.nonce != accounts[account][role].nonce) return 0;
        Pool storage pool = pools[account][role];
        return pool.shares == 0 ? 0 : asked.shares * pool.tokens / pool.shares;
    }

    function _key(address account) private pure returns (bytes32) {
        return bytes32(uint256(uint160(account)));
    }

    function _key(address account, Role role) private pure returns (bytes32) {
        return bytes32(uint256(uint160(account)) | (uint256(role) << 160));
    }

    function _min(uint256 a, uint256 b) private pure returns (uint256) {
        return a < b ? a : b;
    }
}
