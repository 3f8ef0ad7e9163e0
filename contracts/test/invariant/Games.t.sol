// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {Game} from "../../src/interfaces/ICourt.sol";
import {Actions} from "./Actions.sol";
import {GamesHandler} from "./GamesHandler.sol";

/// @dev The handler with what is true between its actions.
contract CheckedGames is GamesHandler {
    function check10_everyGameThatWasOpenedIsOpenOrDecidedOnce() external view {
        uint256 begun = calls["lie"] + calls["slander"];
        assertEq(begun, ended + (id == 0 ? 0 : 1));
    }

    function check12_exactlyOneClockRuns() external view {
        if (id == 0) return;
        assertEq(court.gameHash(id), _hashOf(game), "the court holds the game as it stands");
        assertEq(game.cursor.deadline, moved + MOVE_TIME, "one deadline, a move's time after the last move");
    }

    /// @dev Of the 39 words of a game's encoding, paramsHash are the first 20, context the next 9, cursor the last 10.
    function _hashOf(Game memory given) private pure returns (bytes32) {
        bytes memory encoded = abi.encode(given);
        bytes32 paramsHash = keccak256(_words(encoded, 0, 20));
        bytes32 contextHash = keccak256(abi.encodePacked(paramsHash, _words(encoded, 20, 29)));
        return keccak256(abi.encodePacked(contextHash, _words(encoded, 29, 39)));
    }

    function _words(bytes memory encoded, uint256 from, uint256 to) private pure returns (bytes memory part) {
        part = new bytes(32 * (to - from));
        for (uint256 i; i < part.length; ++i) {
            part[i] = encoded[32 * from + i];
        }
    }
}

/// forge-config: default.invariant.runs = 3
/// forge-config: default.invariant.depth = 40
/// forge-config: nightly.invariant.runs = 256
/// forge-config: nightly.invariant.depth = 256
contract GamesInvariantTest is Actions {
    CheckedGames private games;

    function renew() internal override returns (address) {
        games = new CheckedGames();
        return address(games);
    }

    function setUp() external {
        handler = renew();
        act(games.advance.selector, 3);
        act(games.trespass.selector, 1);
    }

    /// @notice Invariants 10 to 13: the handler checks at each move that the range shrinks inside what it was and that what
    /// is agreed stays, and at each end that the honest side won within the sum of the clocks.
    function invariant_theHonestSideAlwaysWins() external view {
        check();
    }

    function check() internal view override {
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
