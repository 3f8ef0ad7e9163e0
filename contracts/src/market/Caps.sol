// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {Role} from "../interfaces/Types.sol";

/// @title What an owner lets its operator lock, in all and for each client (docs/protocol.md 7.1)
/// @notice What is taken by a conviction or a fine stays counted as if it were locked: caps bound what a stolen key can lose,
/// however often it locks the same stake, until the owner raises them.
/// @dev Whoever inherits this keeps whether an account is capped beside what it has locked; without a cap nothing is counted.
abstract contract Caps {
    struct Total {
        uint128 all; // may be locked or lost
        uint128 lost;
    }

    /// @dev INVARIANT: the purse of OTHERS has used what those of all clients without a name have.
    struct Purse {
        uint120 most;
        uint120 used; // locked or lost
        bool named;
    }

    /// @dev Whose purse is that of all clients that the owner has not named: making another client costs nothing.
    address private constant OTHERS = address(0);

    mapping(address account => mapping(Role role => Total)) private totals;
    mapping(address account => mapping(Role role => mapping(address client => Purse))) private purses;

    function _setTotal(address account, Role role, uint128 all, uint120 others) internal {
        totals[account][role].all = all;
        purses[account][role][OTHERS].most = others;
    }

    function _setPurse(address account, Role role, address client, uint120 most) internal {
        Purse storage purse = purses[account][role][client];
        if (!purse.named) {
            purse.named = true;
            purses[account][role][OTHERS].used -= purse.used;
        }
        purse.most = most;
    }

    /// @dev What a capped account that has locked so much may still lock for this client's jobs.
    function _capRoom(address account, Role role, address client, uint256 locked)
        internal
        view
        returns (uint256)
    {
        Total storage total = totals[account][role];
        Purse storage purse = _purse(account, role, client);
        uint256 left = _left(total.all, locked + total.lost);
        uint256 leftOfPurse = _left(purse.most, purse.used);
        return left < leftOfPurse ? left : leftOfPurse;
    }

    function _use(address account, Role role, address client, uint256 amount) internal {
        mapping(address => Purse) storage each = purses[account][role];
        // What is used is stake, of 96 bits.
        // forge-lint: disable-next-line(unsafe-typecast)
        uint120 used = uint120(amount);
        each[client].used += used;
        if (!each[client].named) each[OTHERS].used += used;
    }

    /// @dev What was locked before the first cap was never counted.
    function _giveBack(address account, Role role, address client, uint256 amount) internal {
        mapping(address => Purse) storage each = purses[account][role];
        uint256 counted = each[client].used;
        // At most `counted`.
        // forge-lint: disable-next-line(unsafe-typecast)
        uint120 back = uint120(amount < counted ? amount : counted);
        each[client].used -= back;
        if (!each[client].named) each[OTHERS].used -= back;
    }

    function _lose(address account, Role role, address client, uint256 amount) internal {
        // Stake, of 96 bits.
        // forge-lint: disable-next-line(unsafe-typecast)
        totals[account][role].lost += uint128(amount);
        _use(account, role, client, amount);
    }

    function _capsOf(address account, Role role, address client)
        internal
        view
        returns (uint256 all, uint256 lost, uint256 most, uint256 used)
    {
        Total storage total = totals[account][role];
        Purse storage purse = _purse(account, role, client);
        return (total.all, total.lost, purse.most, purse.used);
    }

    function _purse(address account, Role role, address client) private view returns (Purse storage purse) {
        purse = purses[account][role][client];
        if (!purse.named) purse = purses[account][role][OTHERS];
    }

    function _left(uint256 most, uint256 taken) private pure returns (uint256) {
        return taken < most ? most - taken : 0;
    }
}
