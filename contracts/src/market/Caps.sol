// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {Role} from "../interfaces/Types.sol";

/// @title What an owner lets its operator lock, in all and for each client (docs/protocol.md 7.1)
/// @notice What is taken by a conviction or a fine stays counted as if it were locked: caps bound what a stolen key can lose,
/// however often it locks the same stake, until the owner raises them.
/// @dev Whoever inherits this keeps the tenure of the caps in force beside what the account has locked; without a cap (tenure 0)
/// nothing is counted.
abstract contract Caps {
    /// @dev Each owner that caps an account begins a tenure, in which nothing is named, used or lost yet: what somebody else has
    /// set who owned it before, itself for one, is of no use to whoever has stolen its key.
    struct Capper {
        address owner;
        uint32 tenure;
    }

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

    mapping(address account => mapping(Role role => Capper)) private cappers;
    mapping(address account => mapping(Role role => mapping(uint256 tenure => Total))) private totals;
    mapping(
        address account => mapping(Role role => mapping(uint256 tenure => mapping(address => Purse)))
    ) private purses;

    /// @dev By the account's owner. Returns the tenure, which is in force from now on.
    function _setTotal(address account, Role role, uint128 all, uint120 others)
        internal
        returns (uint32 tenure)
    {
        tenure = _tenureOf(account, role);
        totals[account][role][tenure].all = all;
        purses[account][role][tenure][OTHERS].most = others;
    }

    /// @dev By the account's owner. Its tenure is in force once it has capped the account.
    function _setPurse(address account, Role role, address client, uint120 most) internal {
        mapping(address => Purse) storage each = purses[account][role][_tenureOf(account, role)];
        Purse storage purse = each[client];
        if (!purse.named) {
            purse.named = true;
            each[OTHERS].used -= purse.used;
        }
        purse.most = most;
    }

    /// @dev What a capped account that has locked so much may still lock for this client's jobs.
    function _capRoom(address account, Role role, uint256 tenure, address client, uint256 locked)
        internal
        view
        returns (uint256)
    {
        Total storage total = totals[account][role][tenure];
        Purse storage purse = _purse(account, role, tenure, client);
        uint256 left = _left(total.all, locked + total.lost);
        uint256 leftOfPurse = _left(purse.most, purse.used);
        return left < leftOfPurse ? left : leftOfPurse;
    }

    function _use(address account, Role role, uint256 tenure, address client, uint256 amount) internal {
        mapping(address => Purse) storage each = purses[account][role][tenure];
        // What is used is stake, of 96 bits.
        // forge-lint: disable-next-line(unsafe-typecast)
        uint120 used = uint120(amount);
        each[client].used += used;
        if (!each[client].named) each[OTHERS].used += used;
    }

    /// @dev What was locked before the first cap was never counted.
    function _giveBack(address account, Role role, uint256 tenure, address client, uint256 amount) internal {
        mapping(address => Purse) storage each = purses[account][role][tenure];
        uint256 counted = each[client].used;
        // At most `counted`.
        // forge-lint: disable-next-line(unsafe-typecast)
        uint120 back = uint120(amount < counted ? amount : counted);
        each[client].used -= back;
        if (!each[client].named) each[OTHERS].used -= back;
    }

    function _lose(address account, Role role, uint256 tenure, address client, uint256 amount) internal {
        // Stake, of 96 bits.
        // forge-lint: disable-next-line(unsafe-typecast)
        totals[account][role][tenure].lost += uint128(amount);
        _use(account, role, tenure, client, amount);
    }

    function _capsOf(address account, Role role, uint256 tenure, address client)
        internal
        view
        returns (uint256 all, uint256 lost, uint256 most, uint256 used)
    {
        Total storage total = totals[account][role][tenure];
        Purse storage purse = _purse(account, role, tenure, client);
        return (total.all, total.lost, purse.most, purse.used);
    }

    /// @dev The caller's own, the account's present owner.
    function _tenureOf(address account, Role role) private returns (uint32) {
        Capper storage capper = cappers[account][role];
        if (capper.owner != msg.sender) (capper.owner, capper.tenure) = (msg.sender, capper.tenure + 1);
        return capper.tenure;
    }

    function _purse(address account, Role role, uint256 tenure, address client)
        private
        view
        returns (Purse storage purse)
    {
        purse = purses[account][role][tenure][client];
        if (!purse.named) purse = purses[account][role][tenure][OTHERS];
    }

    function _left(uint256 most, uint256 taken) private pure returns (uint256) {
        return taken < most ? most - taken : 0;
    }
}
