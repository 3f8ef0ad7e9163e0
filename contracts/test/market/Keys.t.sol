// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {IKeys} from "../../src/interfaces/IKeys.sol";
import {IStakes} from "../../src/interfaces/IStakes.sol";
import {IVault} from "../../src/interfaces/IVault.sol";
import {Role} from "../../src/interfaces/Types.sol";
import {consentDigest} from "./Bound.sol";
import {Market} from "./Market.sol";

/// @dev An account whose consent is its own code's (ERC-1271).
contract Signer {
    bytes32 private immutable DIGEST;

    constructor(bytes32 digest) {
        DIGEST = digest;
    }

    function isValidSignature(bytes32 digest, bytes calldata) external view returns (bytes4) {
        return digest == DIGEST ? this.isValidSignature.selector : bytes4(0);
    }
}

/// @notice Owners and operators (docs/protocol.md 7.1).
contract KeysTest is Market {
    uint256 private constant DAY = 1 days;

    address private owner = makeAddr("owner");
    address private operator;
    uint256 private secret;

    function setUp() external {
        setUpMarket();
        (operator, secret) = makeAddrAndKey("operator");
        fund(owner, 1000 ether);
    }

    function signed(bytes32 digest) private view returns (bytes memory) {
        (uint8 v, bytes32 r, bytes32 s) = vm.sign(secret, digest);
        return abi.encodePacked(r, s, v);
    }

    function expiry() private view returns (uint256) {
        return vm.getBlockTimestamp() + DAY;
    }

    function consentTo(address owner_, uint256 nonce) private view returns (bytes memory) {
        return signed(consentDigest(address(keys), block.chainid, owner_, operator, nonce, expiry()));
    }

    function bindOperator() private {
        bytes memory consent = consentTo(owner, keys.nonces(operator));
        uint256 until = expiry();
        vm.prank(owner);
        keys.bind(operator, until, consent);
    }

    function refuse(address by, bytes memory consent, bytes memory refusal) private {
        uint256 until = expiry();
        vm.expectRevert(refusal);
        vm.prank(by);
        keys.bind(operator, until, consent);
    }

    function test_anUnboundAccountOwnsItself() external view {
        assertEq(keys.ownerOf(operator), operator);
        assertEq(keys.unbindsAt(operator), 0);
    }

    function test_theOwnerAloneStakesUnbondsAndWithdraws() external {
        bindOperator();
        assertEq(keys.ownerOf(operator), owner);
        vm.prank(owner);
        stakes.stakeFor(operator, Role.SOLVER, 600 ether);
        assertEq(activeOf(operator, Role.SOLVER), 600 ether, "the stake is the operator's");
        assertEq(free(owner), 400 ether, "the owner paid");
        fund(operator, 50 ether);
        bytes memory refusal = abi.encodeWithSelector(IStakes.NotOwner.selector, owner);
        vm.startPrank(operator);
        vm.expectRevert(refusal);
        stakes.stake(Role.SOLVER, 1 ether);
        vm.expectRevert(refusal);
        stakes.startUnbond(Role.SOLVER, 1 ether);
        vm.expectRevert(abi.encodeWithSelector(IVault.NotOwner.selector, owner));
        vault.withdraw(operator, 1 ether);
        vm.stopPrank();
        vm.startPrank(owner);
        uint256 index = stakes.startUnbondFor(operator, Role.SOLVER, 600 ether);
        skip(UNBOND_DELAY);
        vm.stopPrank();
        vm.expectRevert(refusal);
        vm.prank(operator);
        stakes.finishUnbond(Role.SOLVER, index);
        vm.startPrank(owner);
        assertEq(stakes.finishUnbondFor(operator, Role.SOLVER, index), 600 ether);
        vault.withdrawFor(operator, owner, 50 ether);
        vm.stopPrank();
        assertEq(free(owner), 1000 ether);
        assertEq(token.balanceOf(owner), 50 ether);
        assertEq(token.balanceOf(address(vault)), entriesSum() + free(owner) + free(operator));
    }

    function test_nobodyElseActsForAnAccount() external {
        bytes memory refusal = abi.encodeWithSelector(IStakes.NotOwner.selector, solvers[0]);
        vm.startPrank(stranger);
        vm.expectRevert(refusal);
        stakes.stakeFor(solvers[0], Role.SOLVER, 1);
        vm.expectRevert(refusal);
        stakes.startUnbondFor(solvers[0], Role.SOLVER, 1);
        vm.expectRevert(refusal);
        stakes.finishUnbondFor(solvers[0], Role.SOLVER, 0);
        vm.expectRevert(abi.encodeWithSelector(IVault.NotOwner.selector, solvers[0]));
        vault.withdrawFor(solvers[0], stranger, 1);
        vm.stopPrank();
    }

    function test_aBoundOperatorWorksAndIsSlashedAsItself() external {
        bindOperator();
        vm.prank(owner);
        stakes.stakeFor(operator, Role.SOLVER, 600 ether);
        postJob(aTerms());
        takeAs(operator, 0);
        vm.prank(address(tasks));
        stakes.slash(operator, Role.SOLVER, 100 ether, client);
        assertEq(activeOf(operator, Role.SOLVER), 500 ether);
    }

    // Invariant 19: a consent counts once, for one owner, on one chain, in one contract, until it expires.

    function test_Invariant19_aConsentIsGoodOnce() external {
        bytes memory consent = consentTo(owner, 0);
        uint256 until = vm.getBlockTimestamp() + UNBIND_DELAY + DAY;
        consent = signed(consentDigest(address(keys), block.chainid, owner, operator, 0, until));
        vm.startPrank(owner);
        keys.bind(operator, until, consent);
        keys.unbind(operator);
        skip(UNBIND_DELAY);
        assertEq(keys.ownerOf(operator), operator, "its own again");
        vm.expectRevert(abi.encodeWithSelector(IKeys.WrongConsent.selector, operator));
        keys.bind(operator, until, consent);
        vm.stopPrank();
        assertEq(keys.nonces(operator), 1);
    }

    function test_Invariant19_anExpiredConsentIsRefused() external {
        uint256 until = expiry();
        bytes memory consent = consentTo(owner, 0);
        vm.warp(until + 1);
        vm.expectRevert(abi.encodeWithSelector(IKeys.ConsentExpired.selector, until));
        vm.prank(owner);
        keys.bind(operator, until, consent);
        vm.warp(until);
        vm.prank(owner);
        keys.bind(operator, until, consent);
        assertEq(keys.ownerOf(operator), owner, "in time to the second");
    }

    function test_Invariant19_aConsentOfAnotherChainContractOwnerOrNonceIsRefused() external {
        bytes memory wrong = abi.encodeWithSelector(IKeys.WrongConsent.selector, operator);
        refuse(
            owner,
            signed(consentDigest(address(keys), block.chainid + 1, owner, operator, 0, expiry())),
            wrong
        );
        refuse(
            owner, signed(consentDigest(address(vault), block.chainid, owner, operator, 0, expiry())), wrong
        );
        refuse(
            owner, signed(consentDigest(address(keys), block.chainid, owner, operator, 1, expiry())), wrong
        );
        refuse(
            owner,
            signed(consentDigest(address(keys), block.chainid, owner, operator, 0, expiry() + 1)),
            wrong
        );
        refuse(stranger, consentTo(owner, 0), wrong);
        refuse(owner, "", wrong);
        bindOperator();
        assertEq(keys.ownerOf(operator), owner, "the right one is taken");
    }

    function test_Invariant19_aForkWithAnotherChainIdRefusesOldConsents() external {
        bytes memory consent = consentTo(owner, 0);
        vm.chainId(block.chainid + 1);
        refuse(owner, consent, abi.encodeWithSelector(IKeys.WrongConsent.selector, operator));
    }

    function test_revokedConsentsAreWorthNothing() external {
        bytes memory consent = consentTo(owner, 0);
        vm.prank(operator);
        keys.revokeConsents();
        refuse(owner, consent, abi.encodeWithSelector(IKeys.WrongConsent.selector, operator));
    }

    function test_anOwnedOperatorIsNotTakenOver() external {
        bindOperator();
        refuse(stranger, consentTo(stranger, 1), abi.encodeWithSelector(IKeys.NotOwner.selector, owner));
        vm.expectRevert(abi.encodeWithSelector(IKeys.NotOwner.selector, owner));
        vm.prank(operator);
        keys.unbind(operator);
    }

    function test_nobodyOwnsItselfTwice() external {
        vm.startPrank(operator);
        vm.expectRevert(IKeys.OwnKey.selector);
        keys.bind(operator, 0, "");
        vm.expectRevert(abi.encodeWithSelector(IKeys.NotOwner.selector, operator));
        keys.unbind(operator);
        vm.stopPrank();
    }

    function test_unbindingTakesLongerThanUnbonding() external {
        bindOperator();
        vm.startPrank(owner);
        stakes.stakeFor(operator, Role.SOLVER, 600 ether);
        keys.unbind(operator);
        uint256 index = stakes.startUnbondFor(operator, Role.SOLVER, 600 ether);
        vm.expectRevert(abi.encodeWithSelector(IKeys.AlreadyUnbinding.selector, keys.unbindsAt(operator)));
        keys.unbind(operator);
        skip(UNBIND_DELAY - 1);
        assertEq(keys.ownerOf(operator), owner);
        assertEq(stakes.finishUnbondFor(operator, Role.SOLVER, index), 600 ether, "everything is out in time");
        skip(1);
        assertEq(keys.ownerOf(operator), operator);
        vm.stopPrank();
    }

    function test_anOwnerThatBindsAgainCallsTheUnbindingOff() external {
        bindOperator();
        vm.prank(owner);
        keys.unbind(operator);
        skip(DAY);
        bindOperator();
        skip(UNBIND_DELAY);
        assertEq(keys.ownerOf(operator), owner);
    }

    function test_anAccountWithCodeConsentsByItsCode() external {
        uint256 until = expiry();
        address predicted = vm.computeCreateAddress(address(this), vm.getNonce(address(this)));
        Signer signer = new Signer(consentDigest(address(keys), block.chainid, owner, predicted, 0, until));
        assertEq(address(signer), predicted);
        vm.prank(owner);
        keys.bind(address(signer), until, "");
        assertEq(keys.ownerOf(address(signer)), owner);
    }

    function test_theEventsTellWhoOwnsWhom() external {
        bytes memory consent = consentTo(owner, 0);
        uint256 until = expiry();
        vm.expectEmit(address(keys));
        emit IKeys.OperatorBound(operator, owner, 0);
        vm.prank(owner);
        keys.bind(operator, until, consent);
        vm.expectEmit(address(keys));
        emit IKeys.ConsentsRevoked(operator, 1);
        vm.prank(operator);
        keys.revokeConsents();
        vm.expectEmit(address(keys));
        emit IKeys.UnbindStarted(operator, owner, u64(vm.getBlockTimestamp()) + UNBIND_DELAY);
        vm.prank(owner);
        keys.unbind(operator);
    }
}
