// SPDX-License-Identifier: MIT
pragma solidity ^0.8.30;

import {Game} from "../../src/interfaces/ICourt.sol";
import {Test} from "../Vm.sol";
import {GamesHandler} from "./GamesHandler.sol";

/// @dev The handler with what is true between its actions.
contract CheckedGames is GamesHandler {
    uint256 private constant FRONT_BYTES = 320;

    function check10_everyGameThatWasOpenedIsOpenOrDecidedOnce() external view {
        uint256 begun = calls["lie"] + calls["slander"];
        assertEq(begun, ended + (id == 0 ? 0 : 1));
    }

    function check12_exactlyOneClockRuns() external view {
        if (id == 0) return;
        assertEq(court.gameHash(id), _hashOf(game), "the court holds the game as it stands");
        assertEq(game.deadline, moved + MOVE_TIME, "one deadline, a move's time after the last move");
    }

    /// @dev keccak256(matter, front): the front is the last ten words of the game's encoding.
    function _hashOf(Game memory given) private pure returns (bytes32) {
        bytes memory encoded = abi.encode(given);
        uint256 split = encoded.length - FRONT_BYTES;
        bytes memory matter = new bytes(split);
        bytes memory front = new bytes(FRONT_BYTES);
        for (uint256 i; i < encoded.length; ++i) {
            if (i < split) matter[i] = encoded[i];
            else front[i - split] = encoded[i];
        }
        return keccak256(abi.encodePacked(keccak256(matter), front));
    }
}

/// forge-config: default.invariant.runs = 3
/// forge-config: default.invariant.depth = 40
/// forge-config: long.invariant.runs = 256
/// forge-config: long.invariant.depth = 256
contract GamesInvariantTest is Test {
    CheckedGames private games;

    function setUp() external {
        games = new CheckedGames();
    }

    function targetContracts() external view returns (address[] memory targets) {
        targets = new address[](1);
        targets[0] = address(games);
    }

    function targetSelectors() external view returns (FuzzSelector[] memory targets) {
        targets = new FuzzSelector[](1);
        targets[0].addr = address(games);
        targets[0].selectors = new bytes4[](4);
        for (uint256 i; i < 3; ++i) {
            targets[0].selectors[i] = games.advance.selector;
        }
        targets[0].selectors[3] = games.trespass.selector;
    }

    /// @notice Invariants 10 to 13: the handler checks at each move that the range shrinks inside what it was and that what
    /// is agreed stays, and at each end that the honest side won within the sum of the clocks.
    function invariant_theHonestSideAlwaysWins() external view {
        check();
    }

    function check() private view {
        games.check10_everyGameThatWasOpenedIsOpenOrDecidedOnce();
        games.check12_exactlyOneClockRuns();
    }

    /// @dev Every run decides a game and sees a trespasser refused: what chance has left out is done now.
    function afterInvariant() external {
        if (games.id() == 0) games.advance(2); // a lying defender, which does not forfeit by itself
        games.trespass(1);
        for (uint256 seed = 1; games.id() != 0; seed += 2) {
            games.advance(seed);
        }
        check();
        assertGt(games.ended(), 0, "ended");
        assertGt(games.calls("trespass"), 0, "trespass");
        assertGt(games.calls("timeout") + games.calls("prove"), 0, "decided");
    }
}
