// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {Role} from "../../src/interfaces/Types.sol";
import {Test} from "../Vm.sol";
import {CrewsHandler} from "./CrewsHandler.sol";

/// @notice The handler with what is true of a crew at any time, numbered as in docs/invariants.md. What it pays out is checked
/// where that is done.
contract CheckedCrews is CrewsHandler {
    function check22_anyOneMemberCanPayForAll() external view {
        if (!live) return;
        assertEq(crew.lost(), lost, "lost");
        assertLe(lockedOf(address(crew), Role.SOLVER) + lost, invited.stake, "locked + lost");
        for (uint256 i; i < MEMBERS; ++i) {
            (uint256 amount, uint256 bonds_,) = crews.charged(address(crew), i);
            assertEq(amount, charged[i], "charged");
            assertTrue(i == 0 || bonds_ == won[i], "won");
        }
        assertLe(charged[0] + charged[1] + charged[2], lost, "a loss is charged once");
    }

    function check22_everyBondIsThere() external view {
        if (address(crew) == address(0)) return;
        assertEq(token.balanceOf(address(crew)), live ? bonds + given : 0);
        assertEq(token.balanceOf(address(crews)) + vault.free(address(crews)), 0, "Crews holds nothing");
    }

    function endNow() external {
        end();
    }
}

/// forge-config: default.invariant.runs = 6
/// forge-config: default.invariant.depth = 80
/// forge-config: nightly.invariant.runs = 256
/// forge-config: nightly.invariant.depth = 256
contract CrewsInvariantTest is Test {
    uint256 private constant RUNS = 20; // at most
    uint256 private constant STEPS = 120;

    CheckedCrews private market;

    function setUp() external {
        market = new CheckedCrews();
        market.form(0);
    }

    function targetContracts() external view returns (address[] memory targets) {
        targets = new address[](1);
        targets[0] = address(market);
    }

    function targetSelectors() external view returns (FuzzSelector[] memory targets) {
        targets = new FuzzSelector[](1);
        targets[0].addr = address(market);
        targets[0].selectors = selectors();
    }

    function selectors() private view returns (bytes4[] memory targets) {
        bytes4[20] memory list = [
            market.form.selector,
            market.form.selector,
            market.wholeRound.selector,
            market.wholeRound.selector,
            market.commit.selector,
            market.commitOther.selector,
            market.commitOther.selector,
            market.acceptAll.selector,
            market.acceptAll.selector,
            market.settleAll.selector,
            market.convict.selector,
            market.expire.selector,
            market.void.selector,
            market.accuse.selector,
            market.accuse.selector,
            market.judge.selector,
            market.pay.selector,
            market.release.selector,
            market.dissolve.selector,
            market.finish.selector
        ];
        targets = new bytes4[](list.length + 1);
        for (uint256 i; i < list.length; ++i) {
            targets[i] = list[i];
        }
        targets[list.length] = market.give.selector;
    }

    function invariant_crewsKeepTheirBooks() external view {
        check();
    }

    function check() private view {
        market.check22_anyOneMemberCanPayForAll();
        market.check22_everyBondIsThere();
    }

    function afterInvariant() external {
        market.endNow();
        check();
    }

    /// @notice In some runs, the same every time, each action happens.
    function test_everyActionOfTheHandlerHappens() external {
        vm.pauseGasMetering(); // it is more than a test may use
        bytes4[] memory list = selectors();
        string[16] memory needed = [
            "form",
            "commit",
            "commit outer",
            "settle",
            "convict",
            "convict another",
            "expire",
            "void",
            "accuse",
            "guilty",
            "not guilty",
            "pay",
            "release",
            "dissolve",
            "finish",
            "end"
        ];
        uint256[16] memory seen;
        for (uint256 run; run < RUNS; ++run) {
            market = new CheckedCrews();
            for (uint256 i; i < STEPS; ++i) {
                uint256 seed = uint256(keccak256(abi.encode(run, i)));
                bytes memory action = abi.encodeWithSelector(list[(seed >> 128) % list.length], seed);
                (bool done, bytes memory reason) = address(market).call(action);
                if (!done) {
                    assembly ("memory-safe") {
                        revert(add(reason, 32), mload(reason))
                    }
                }
                check();
            }
            market.endNow();
            uint256 missing;
            for (uint256 i; i < needed.length; ++i) {
                seen[i] += market.calls(needed[i]);
                if (seen[i] == 0) ++missing;
            }
            if (missing == 0) return;
        }
        for (uint256 i; i < needed.length; ++i) {
            assertGt(seen[i], 0, needed[i]);
        }
    }
}
