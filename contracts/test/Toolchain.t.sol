// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {Test} from "./Vm.sol";
import {ERC20} from "@openzeppelin/contracts/token/ERC20/ERC20.sol";
import {LibString} from "solady/utils/LibString.sol";

contract Coin is ERC20 {
    error NotEnough(uint256 asked);

    constructor() ERC20("Coin", "COIN") {
        _mint(msg.sender, 100);
    }

    function refuse(uint256 asked) external pure {
        revert NotEnough(asked);
    }
}

/// @notice What the other tests take for granted: libraries resolve, cheat codes answer, the precompiles are there.
contract ToolchainTest is Test {
    Coin private coin;

    function setUp() external {
        coin = new Coin();
    }

    function test_librariesResolve() external view {
        assertEq(coin.balanceOf(address(this)), 100);
        assertEq(LibString.toString(uint256(42)), "42");
    }

    function test_revertIsMatchedWithItsArguments() external {
        vm.expectRevert(abi.encodeWithSelector(Coin.NotEnough.selector, uint256(7)));
        coin.refuse(7);
    }

    function test_clockAndAccountsCanBeSet() external {
        address alice = makeAddr("alice");
        deal(alice, 3 ether);
        assertEq(alice.balance, 3 ether);
        vm.warp(1000);
        skip(24);
        assertEq(vm.getBlockTimestamp(), 1024);
        vm.prevrandao(bytes32(uint256(5)));
        assertEq(block.prevrandao, 5);
    }

    function test_sha256PrecompileAnswers() external pure {
        assertEq(sha256("abc"), 0xba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad);
    }

    function testFuzz_boundStaysInside(uint256 value, uint256 low, uint256 high) external pure {
        vm.assume(low <= high);
        uint256 result = bound(value, low, high);
        assertGe(result, low);
        assertLe(result, high);
    }
}
