// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {IStakes} from "../../src/interfaces/IStakes.sol";
import {Role} from "../../src/interfaces/Types.sol";
import {Bound} from "../market/Bound.sol";
import {Market} from "../market/Market.sol";

/// @notice Two owners, two operators that go from one to the other, and the market's own moves under their caps: locks, ends
/// of locks, fines and convictions, for four clients. Keeps its own books; every lock is asked for on both sides of what
/// these say there is room for.
contract CapsHandler is Market, Bound {
    /// @dev What an account has done in a role under its present caps (a tenure).
    struct Books {
        bool capped;
        uint256 all;
        uint256 others;
        uint256 lost; // by fines and convictions in this tenure
        uint256 before; // locked when it began
    }

    address[2] internal owners;
    string[2] private names = ["first operator", "second operator"];
    address[2] internal operators;
    address[4] internal clients;
    mapping(address account => address) private capper; // of both roles, as handlers cap both
    mapping(address account => mapping(Role role => uint256)) internal tenure;
    mapping(bytes32 tenure => Books) internal books;
    mapping(address account => mapping(Role role => mapping(address client => uint256))) internal lockedFor;
    mapping(bytes32 tenure => mapping(address client => uint256)) internal most;
    mapping(bytes32 tenure => mapping(address client => bool)) internal named;
    mapping(bytes32 tenure => mapping(address client => uint256)) internal lostFor;
    mapping(bytes32 tenure => mapping(address client => uint256)) internal beforeFor;
    mapping(string action => uint256) public calls;

    constructor() {
        setUpMarket();
        for (uint256 i; i < 2; ++i) {
            owners[i] = makeAddr(string.concat("owner", vm.toString(i)));
            fund(owners[i], 1e6 ether);
            operators[i] = bindTo(keys, owners[i], names[i]);
            for (uint8 r; r < 2; ++r) {
                vm.prank(owners[i]);
                stakes.stakeFor(operators[i], Role(r), 1000 ether);
            }
        }
        for (uint256 i; i < clients.length; ++i) {
            clients[i] = makeAddr(string.concat("client", vm.toString(i)));
        }
    }

    function _who(uint256 seed) internal view returns (address account, Role role, address of_) {
        account = operators[seed % 2];
        role = (seed >> 8) % 2 == 0 ? Role.SOLVER : Role.VERIFIER;
        of_ = clients[(seed >> 16) % clients.length];
    }

    /// @dev Of the caps that are in force.
    function key(address account, Role role) internal view returns (bytes32) {
        return keccak256(abi.encode(account, role, tenure[account][role]));
    }

    /// @dev What a client has: its locks of now and its losses of the tenure, but for what was locked when that began.
    function countedAtLeast(address account, Role role, address of_) internal view returns (uint256) {
        bytes32 k = key(account, role);
        uint256 has = lockedFor[account][role][of_] + lostFor[k][of_];
        return has > beforeFor[k][of_] ? has - beforeFor[k][of_] : 0;
    }

    /// @dev The same for all that share a client's cap, and how much that is.
    function purse(address account, Role role, address of_)
        internal
        view
        returns (uint256 has, uint256 at, uint256 before)
    {
        bytes32 k = key(account, role);
        if (named[k][of_]) {
            return (countedAtLeast(account, role, of_), most[k][of_], beforeFor[k][of_]);
        }
        for (uint256 i; i < clients.length; ++i) {
            if (named[k][clients[i]]) continue;
            has += countedAtLeast(account, role, clients[i]);
            before += beforeFor[k][clients[i]];
        }
        at = books[k].others;
    }

    // Owners

    function cap(uint256 seed, uint128 all, uint120 others) external {
        (address account, Role role,) = _who(seed);
        address owner = keys.ownerOf(account);
        (all, others) = (uint128(_amount(seed, all)), uint120(_amount(seed >> 32, others)));
        if (capper[account] != owner || tenure[account][role] == 0) _newTenure(account, role, owner);
        vm.prank(owner);
        stakes.cap(account, role, all, others);
        Books storage b = books[key(account, role)];
        (b.capped, b.all, b.others) = (true, all, others);
        ++calls["cap"];
    }

    /// @dev Nothing, something, all that there is, or any number.
    function _amount(uint256 seed, uint256 any) private pure returns (uint256) {
        if (seed % 8 == 0) return 0;
        return seed % 8 == 1 ? any : any % 1500 ether;
    }

    /// @dev Both roles begin one, so that what the books have of an owner is of that owner.
    function _newTenure(address account, Role, address owner) private {
        for (uint8 r; r < 2; ++r) {
            Role role = Role(r);
            ++tenure[account][role];
            bytes32 k = key(account, role);
            for (uint256 i; i < clients.length; ++i) {
                beforeFor[k][clients[i]] = lockedFor[account][role][clients[i]];
                books[k].before += beforeFor[k][clients[i]];
            }
            vm.prank(owner);
            stakes.cap(account, role, type(uint128).max, type(uint120).max);
            (books[k].capped, books[k].all, books[k].others) = (true, type(uint128).max, type(uint120).max);
        }
        capper[account] = owner;
        ++calls["tenure"];
    }

    function capClient(uint256 seed, uint120 amount) external {
        (address account, Role role, address of_) = _who(seed);
        address owner = keys.ownerOf(account);
        if (capper[account] != owner || tenure[account][role] == 0) return;
        bytes32 k = key(account, role);
        most[k][of_] = _amount(seed >> 32, amount);
        vm.prank(owner);
        stakes.capClient(account, role, of_, uint120(most[k][of_]));
        ++calls[named[k][of_] ? "cap again" : "name"];
        named[k][of_] = true;
    }

    /// @dev The operator to the other owner; what it has named between them binds nobody.
    function change(uint256 seed) external {
        uint256 i = seed % 2;
        (address operator, address owner) = (operators[i], keys.ownerOf(operators[i]));
        vm.prank(owner);
        keys.unbind(operator);
        skip(UNBIND_DELAY);
        if (seed % 3 == 0) {
            (Role role, address own) = (Role(uint8((seed >> 8) % 2)), clients[(seed >> 16) % 4]);
            vm.startPrank(operator);
            stakes.capClient(operator, role, own, type(uint120).max);
            if (seed % 6 == 0) stakes.cap(operator, role, type(uint128).max, type(uint120).max);
            vm.stopPrank();
        }
        address next = owner == owners[0] ? owners[1] : owners[0];
        bindTo(keys, next, names[i]);
        _newTenure(operator, Role.SOLVER, next);
        ++calls["change"];
    }

    // The market

    /// @dev On both sides of the room that the books know of, then some of it.
    function lock(uint256 seed, uint256 amount) external {
        (address account, Role role, address of_) = _who(seed);
        uint256 unlocked = activeOf(account, role) - lockedOf(account, role);
        uint256 room = stakes.room(account, role, of_);
        Books storage b = books[key(account, role)];
        if (!b.capped) {
            assertEq(room, unlocked, "nothing is counted without a cap");
        } else {
            assertLe(room, unlocked);
            assertLe(lockedOf(account, role) + b.lost + room, _max(b.all, lockedOf(account, role) + b.lost));
            (uint256 has, uint256 at,) = purse(account, role, of_);
            assertLe(has + room, _max(at, has), "no more than the cap");
        }
        if (room < unlocked) {
            _refused(
                account,
                role,
                of_,
                room + 1,
                abi.encodeWithSelector(IStakes.BeyondCap.selector, account, role, of_, room + 1, room)
            );
            ++calls["beyond cap"];
        }
        amount = seed % 4 == 0 ? room : bound(amount, 0, room);
        if (amount == 0) return;
        vm.prank(address(tasks));
        stakes.lock(account, role, amount, of_);
        lockedFor[account][role][of_] += amount;
        ++calls[b.capped ? "lock under a cap" : "lock"];
    }

    function _refused(address account, Role role, address of_, uint256 amount, bytes memory why) private {
        vm.expectRevert(why);
        vm.prank(address(tasks));
        stakes.lock(account, role, amount, of_);
    }

    function unlock(uint256 seed, uint256 amount) external {
        (address account, Role role, address of_) = _who(seed);
        amount = bound(amount, 0, lockedFor[account][role][of_]);
        if (amount == 0) return;
        vm.prank(address(tasks));
        stakes.unlock(account, role, amount, of_);
        lockedFor[account][role][of_] -= amount;
        ++calls["unlock"];
    }

    /// @dev A fine: part of what was locked is taken.
    function fine(uint256 seed, uint256 amount) external {
        (address account, Role role, address of_) = _who(seed);
        uint256 held = bound(amount, 0, lockedFor[account][role][of_]);
        if (held == 0) return;
        address[] memory each = new address[](1);
        each[0] = account;
        vm.prank(address(tasks));
        assertEq(stakes.fine(each, role, held, held / 2, of_), held / 2);
        lockedFor[account][role][of_] -= held;
        _lose(account, role, of_, held / 2);
        ++calls["fine"];
    }

    /// @dev A conviction takes a lock of each of the operators, the first one's as a solver.
    function convict(uint256 seed, uint256 amount) external {
        (address solver,, address of_) = _who(seed);
        address verifier = solver == operators[0] ? operators[1] : operators[0];
        uint256 s = bound(amount, 0, lockedFor[solver][Role.SOLVER][of_]);
        uint256 v = bound(amount, 0, lockedFor[verifier][Role.VERIFIER][of_]);
        if (s == 0) return;
        address[] memory voters = new address[](v > 0 ? 1 : 0);
        if (v > 0) voters[0] = verifier;
        vm.prank(address(tasks));
        assertEq(stakes.seize(solver, s, voters, voters, v, of_), s + v);
        lockedFor[solver][Role.SOLVER][of_] -= s;
        _lose(solver, Role.SOLVER, of_, s);
        if (v > 0) {
            lockedFor[verifier][Role.VERIFIER][of_] -= v;
            _lose(verifier, Role.VERIFIER, of_, v);
            ++calls["convict both"];
        }
        ++calls["convict"];
    }

    function _lose(address account, Role role, address of_, uint256 amount) private {
        bytes32 k = key(account, role);
        if (books[k].capped) {
            books[k].lost += amount;
            lostFor[k][of_] += amount;
        }
    }

    /// @dev More stake, so that caps and not stakes end what may be locked.
    function stake(uint256 seed, uint256 amount) external {
        (address account, Role role,) = _who(seed);
        address owner = keys.ownerOf(account);
        amount = bound(amount, 1, 500 ether);
        if (free(owner) < amount) fund(owner, amount);
        vm.prank(owner);
        stakes.stakeFor(account, role, amount);
        ++calls["stake"];
    }

    function _max(uint256 a, uint256 b) internal pure returns (uint256) {
        return a > b ? a : b;
    }
}
