// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {ArbiterContraction} from "../../src/arbiter/ArbiterContraction.sol";
import {Court} from "../../src/dispute/Court.sol";
import {Context, Cursor, Game, GamePhase, IArbiter, ICourt} from "../../src/interfaces/ICourt.sol";
import {Claim, Role} from "../../src/interfaces/Types.sol";
import {Merkle} from "../../src/libraries/Merkle.sol";
import {Vm} from "../Vm.sol";
import {Trees} from "../dispute/Trees.sol";
import {Market} from "./Market.sol";

/// @notice A market with the real Court, any number of solvers, and games that one side lets pass: what a cheat that cannot
/// defend itself does, and what a challenger does that wants to lose.
abstract contract RealCourt is Market {
    IArbiter private arbiter = new ArbiterContraction();
    mapping(uint256 gameId => Game) internal games;

    function newCourt(address challenges_) internal override returns (address) {
        return address(new Court(challenges_, arbiter, arbiter, arbiter, arbiter, clock));
    }

    /// @dev A solver with this stake.
    function newSolver(string memory name, uint256 stake) internal returns (address account) {
        account = makeAddr(name);
        fund(account, stake);
        stakeAs(account, Role.SOLVER, stake);
    }

    /// @dev A game on a segment of the claim, announced a block before.
    function openAs(address who, Claim memory claim, uint32 segment) internal returns (uint256 gameId) {
        vm.recordLogs();
        gameId = challengeAs(who, claim, segment);
        _keep(gameId);
    }

    function openOnVote(address who, Claim memory claim, address verifier, uint32 sample)
        internal
        returns (uint256 gameId)
    {
        vm.recordLogs();
        gameId = openVoteAs(who, claim, verifier, sample);
        _keep(gameId);
    }

    function _keep(uint256 gameId) private {
        Vm.Log[] memory logs = vm.getRecordedLogs();
        for (uint256 i; i < logs.length; ++i) {
            if (logs[i].topics[0] == ICourt.GameOpened.selector) {
                games[gameId] = abi.decode(logs[i].data, (Game));
            }
        }
    }

    /// @dev Whoever's move it is lets its time pass.
    function letPass(uint256 gameId) internal {
        skip(games[gameId].cursor.moveTime + 1);
        ICourt(address(court)).timeout(gameId, games[gameId]);
    }

    /// @dev The defender's first move in a game about one step: whatever trace it says there was.
    function showTrace(uint256 gameId) internal {
        Game memory game = games[gameId];
        (bytes32 paramsHash, Context memory context, Cursor memory cursor) = Trees.parts(game);
        bytes32[] memory children = stateSlots("children", 2 ** Merkle.depth(game.params.program.nodes));
        bytes32 root = Merkle.root(children);
        vm.recordLogs();
        vm.prank(game.cursor.defender);
        ICourt(address(court)).revealTrace(gameId, paramsHash, context, cursor, root, children);
        Vm.Log[] memory logs = vm.getRecordedLogs();
        (, context, cursor,) = abi.decode(logs[0].data, (GamePhase, Context, Cursor, bytes32[]));
        games[gameId] = Trees.withParts(game, context, cursor);
    }

    /// @dev Whether the game is over.
    function decided(uint256 gameId) internal view returns (bool) {
        return ICourt(address(court)).gameHash(gameId) == 0;
    }
}
