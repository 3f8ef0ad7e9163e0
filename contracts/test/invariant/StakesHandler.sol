// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {Role} from "../../src/interfaces/Types.sol";
import {consentDigest} from "../market/Bound.sol";
import {Market} from "../market/Market.sol";

/// @notice Stakes, unbonds, locks and slashes at random, binds operators, and keeps its own books. No call that the rules
/// forbid is made, but those that must fail.
contract StakesHandler is Market {
    struct Asked {
        address account;
        Role role;
        uint256 index;
        uint256 amount;
        bool done;
    }

    address[3] internal accounts;
    Asked[] internal asked;
    mapping(address account => mapping(Role role => uint256)) internal putIn; // into stake
    mapping(address account => mapping(Role role => uint256)) internal tookOut; // by finishUnbond
    mapping(address account => mapping(Role role => uint256)) internal slashed;
    mapping(string action => uint256) public calls;

    address internal operator;
    uint256 private secret;
    uint256 internal consents; // used or revoked

    constructor() {
        setUpMarket();
        for (uint256 i; i < accounts.length; ++i) {
            accounts[i] = makeAddr(string.concat("staker", vm.toString(i)));
            fund(accounts[i], 1e6 ether);
        }
        (operator, secret) = makeAddrAndKey("operator");
    }

    function _who(uint256 seed) private view returns (address account, Role role) {
        return (accounts[seed % accounts.length], (seed >> 8) % 2 == 0 ? Role.SOLVER : Role.VERIFIER);
    }

    function _unlocked(address account, Role role) private view returns (uint256) {
        return activeOf(account, role) - lockedOf(account, role);
    }

    function stake(uint256 seed, uint256 amount) external {
        (address account, Role role) = _who(seed);
        uint256 most = free(account);
        if (most == 0) return;
        amount = bound(amount, 1, seed % 4 == 0 ? most : (most < 100 ? most : 100));
        stakeAs(account, role, amount);
        putIn[account][role] += amount;
        ++calls["stake"];
    }

    function unbond(uint256 seed, uint256 amount) external {
        (address account, Role role) = _who(seed);
        uint256 most = _unlocked(account, role);
        if (most == 0) return;
        amount = bound(amount, 1, most);
        vm.prank(account);
        uint256 index = stakes.startUnbond(role, amount);
        asked.push(Asked(account, role, index, amount, false));
        (uint256 worth,) = stakes.request(account, role, index);
        assertLe(worth, amount, "nothing is gained by coming in");
        ++calls["unbond"];
    }

    function finish(uint256 seed) external {
        if (asked.length == 0) return;
        Asked storage a = asked[seed % asked.length];
        if (a.done) return;
        (uint256 worth, uint64 due) = stakes.request(a.account, a.role, a.index);
        if (block.timestamp < due) vm.warp(due);
        vm.prank(a.account);
        uint256 got = stakes.finishUnbond(a.role, a.index);
        assertEq(got, worth, "what it was worth");
        assertLe(got, a.amount + dust(), "nothing is gained by going out");
        a.done = true;
        tookOut[a.account][a.role] += got;
        vm.expectRevert();
        vm.prank(a.account);
        stakes.finishUnbond(a.role, a.index);
        ++calls["finish"];
    }

    /// @dev Shares are rounded down, and what that leaves falls to the same account's other requests: less than a unit for
    /// each that came in or went out.
    function dust() internal view returns (uint256) {
        return 2 * asked.length;
    }

    function lock(uint256 seed, uint256 amount) external {
        (address account, Role role) = _who(seed);
        amount = bound(amount, 0, _unlocked(account, role) / 2);
        vm.prank(address(tasks));
        stakes.lock(account, role, amount, client);
        ++calls["lock"];
    }

    function unlock(uint256 seed) external {
        (address account, Role role) = _who(seed);
        uint256 held = lockedOf(account, role);
        vm.prank(address(tasks));
        stakes.unlock(account, role, bound(seed, 0, held), client);
        ++calls["unlock"];
    }

    function slash(uint256 seed, uint256 amount) external {
        (address account, Role role) = _who(seed);
        uint256 there = _unlocked(account, role) + stakes.unbonding(account, role);
        amount = bound(amount, 0, seed % 3 == 0 ? there + 2 : there / 2 + 1);
        vm.prank(address(tasks));
        uint256 taken = stakes.slash(account, role, amount, client);
        assertEq(taken, amount < there ? amount : there, "a slash takes what is there");
        slashed[account][role] += taken;
        ++calls["slash"];
    }

    // ---- keys: each consent and each nonce counts once

    function bind(uint256 seed) external {
        address owner = accounts[seed % accounts.length];
        address bound_ = keys.ownerOf(operator);
        uint256 until = block.timestamp + 1 days;
        bytes memory consent = _consent(owner, keys.nonces(operator), until);
        if (bound_ != operator && bound_ != owner) {
            _cannotBind(owner, until, consent);
            return;
        }
        vm.prank(owner);
        keys.bind(operator, until, consent);
        ++consents;
        _cannotBind(owner, until, consent);
        ++calls["bind"];
    }

    function _cannotBind(address owner, uint256 until, bytes memory consent) private {
        vm.prank(owner);
        (bool done,) = address(keys).call(abi.encodeCall(keys.bind, (operator, until, consent)));
        assertFalse(done, "a consent counts once, and for its owner");
    }

    function _consent(address owner, uint256 nonce, uint256 until) private view returns (bytes memory) {
        bytes32 digest = consentDigest(address(keys), block.chainid, owner, operator, nonce, until);
        (uint8 v, bytes32 r, bytes32 s) = vm.sign(secret, digest);
        return abi.encodePacked(r, s, v);
    }

    function unbindAndRevoke(uint256 seed) external {
        address owner = keys.ownerOf(operator);
        if (owner != operator && keys.unbindsAt(operator) == 0) {
            vm.prank(owner);
            keys.unbind(operator);
            ++calls["unbind"];
        }
        if (seed % 2 == 0) {
            bytes memory consent = _consent(accounts[0], keys.nonces(operator), block.timestamp + 1 days);
            vm.prank(operator);
            keys.revokeConsents();
            ++consents;
            _cannotBind(accounts[0], block.timestamp + 1 days, consent);
            ++calls["revoke"];
        }
        skip(bound(seed, 0, 8 days));
    }
}
