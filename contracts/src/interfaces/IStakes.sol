// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {IBatch} from "./IBatch.sol";
import {Role} from "./Types.sol";

/// @title Stakes: deposits, locks, unbonding, slashing, and the stake-weighted draw
interface IStakes is IBatch {
    error NotModule(address caller);
    error ZeroAmount();
    error InsufficientStake(address account, Role role, uint256 asked, uint256 unlocked);
    error Underlocked(address account, Role role, uint256 asked, uint256 locked);
    error NotDue(uint64 due);
    error NoSuchRequest(uint256 index);
    error NotOwner(address owner);
    error BeyondCap(address account, Role role, address client, uint256 asked, uint256 room);
    error NoClient();
    error EndpointTooLong(uint256 most);

    event Staked(address indexed account, Role indexed role, uint256 amount);
    event UnbondStarted(
        address indexed account, Role indexed role, uint256 indexed index, uint256 shares, uint64 due
    );
    event UnbondFinished(address indexed account, Role indexed role, uint256 indexed index, uint256 amount);
    event Slashed(address indexed account, Role indexed role, uint256 asked, uint256 taken);
    /// @dev From two epochs later on the account is drawn for this class's jobs, and for no other's. 0: for none.
    event Subscribed(address indexed account, bytes32 indexed class);
    event Capped(address indexed account, Role indexed role, uint256 all, uint256 others);
    event ClientCapped(address indexed account, Role indexed role, address indexed client, uint256 most);
    event Endpoint(address indexed account, string url);

    function stake(Role role, uint256 amount) external; // from the caller's free balance
    function startUnbond(Role role, uint256 amount) external returns (uint256 index);
    function finishUnbond(Role role, uint256 index) external returns (uint256 amount);
    /// @notice The same three by the owner of an operator: tokens come from and go to the owner's free balance. An owner that
    /// has an owner itself stakes for nobody.
    function stakeFor(address account, Role role, uint256 amount) external;
    function startUnbondFor(address account, Role role, uint256 amount) external returns (uint256 index);
    function finishUnbondFor(address account, Role role, uint256 index) external returns (uint256 amount);
    /// @notice Agree to a class of conditions, and to no other from now on: the verifier stake counts in the draws of its
    /// jobs two epochs later. 0: be drawn for nothing. What the stake is locked for already stays.
    function subscribe(bytes32 class) external;
    /// @notice The same by the owner of an operator.
    function subscribeFor(address account, bytes32 class) external;
    /// @notice Cap what the account may lock in a role from now on, by its owner: `all` in all, `others` of it for all clients
    /// together that have no cap of their own. What is taken from it stays counted. No cap until the first call; what was
    /// locked by then counts in `all` alone. Where another than the last owner calls, all caps begin anew with its own.
    function cap(address account, Role role, uint128 all, uint120 others) external;
    /// @notice Give a client a cap of its own, beside `others`; by the owner, to whose caps it belongs.
    function capClient(address account, Role role, address client, uint120 most) external;
    /// @notice Who stakes and unbonds for the account (Keys), and may give back what it holds.
    function ownerOf(address account) external view returns (address);
    /// @notice Announce where the caller serves its blocks ("http://host:port").
    function setEndpoint(string calldata url) external;
    /// @notice Lock stake for a job of `client`, within the owner's caps. So do all of these: `client` is the job's.
    function lock(address account, Role role, uint256 amount, address client) external; // modules
    function unlock(address account, Role role, uint256 amount, address client) external; // modules
    /// @notice Unlock `amount` for each of the accounts.
    function unlockEach(address[] calldata accounts, Role role, uint256 amount, address client) external; // modules
    /// @notice A settled claim's locks: the first account's as a solver, the others' as verifiers.
    function release(address[] calldata accounts, uint256 solverStake, uint256 verifierStake, address client)
        external; // modules
    /// @notice Verifiers for empty seats, drawn among the class's subscribers as in `draw`, each with `amount` locked for
    /// it: accounts without so much room (`room`), and `others`, are passed over, a few at most. Fewer if there are fewer.
    function seat(
        bytes32 class,
        bytes32 seed,
        uint256 count,
        uint256 amount,
        address[] calldata others,
        address client
    ) external returns (address[] memory seated); // modules
    /// @notice Unlock `held` of each account and take `amount` of it into the free balance of the calling module.
    function fine(address[] calldata accounts, Role role, uint256 held, uint256 amount, address client)
        external
        returns (uint256 taken); // modules
    /// @notice Take min(asked, active - locked + unbonding) into the free balance of the calling module; what is locked
    /// stays behind the claims and votes that it is locked for (a conviction unlocks its own first). Never reverts on shortage.
    function slash(address account, Role role, uint256 asked, address client) external returns (uint256 taken); // modules
    /// @notice What a conviction does to the stakes: free the locks of the claimant and of all voters, and take solverStake of
    /// the claimant and verifierStake of each of the guilty off the books. All of it (`taken`) is in the Vault's entry of
    /// stakes still; the caller moves it on at once.
    function seize(
        address claimant,
        uint256 solverStake,
        address[] calldata voters,
        address[] calldata guilty,
        uint256 verifierStake,
        address client
    ) external returns (uint256 taken); // modules
    function active(address account, Role role) external view returns (uint256);
    function locked(address account, Role role) external view returns (uint256);
    function unbonding(address account, Role role) external view returns (uint256);
    /// @notice What the account can still lock for this client's jobs: its unlocked stake, and no more than its caps leave.
    function room(address account, Role role, address client) external view returns (uint256);
    /// @notice Whether its owner has capped the account; what it may lock in all, and has lost since; and for this client, or
    /// for all together that have no cap of their own, what it may lock, and has locked or lost.
    function caps(address account, Role role, address client)
        external
        view
        returns (bool capped, uint256 all, uint256 lost, uint256 most, uint256 used);
    function endpoint(address account) external view returns (string memory);
    function request(address account, Role role, uint256 index)
        external
        view
        returns (uint256 amount, uint64 due);
    /// @notice The class that the account has subscribed to; 0: none.
    function classOf(address account) external view returns (bytes32);
    /// @notice What the account counts for in draws of a class in this block: its active verifier stake at the end of the
    /// epoch (of WEIGHT_EPOCH blocks) before the last, if it had subscribed to it by then.
    function drawWeight(bytes32 class, address account) external view returns (uint256);
    /// @notice All that counts in draws of a class in this block.
    function classWeight(bytes32 class) external view returns (uint256);
    /// @notice `count` distinct subscribers drawn with probability proportional to weight; fewer if there are fewer.
    function draw(bytes32 class, bytes32 seed, uint256 count) external view returns (address[] memory);
}
