// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {ITasks} from "../../src/interfaces/ITasks.sol";
import {Claim, Found, Kind} from "../../src/interfaces/Types.sol";
import {Vm} from "../Vm.sol";
import {Market} from "./Market.sol";

/// @notice A claim that several have found something about, and the claim that is settled at its place.
abstract contract FindingsMarket is Market {
    uint256 internal constant REWARD = 50 ether; // half of the stake of a claim that nobody has voted on

    Claim internal fallen;
    bytes32[] internal fallenRoots;
    Claim internal settled;
    bytes32[] internal settledRoots;
    Claim internal beside; // the round's other task

    function setUpClaim() internal {
        setUpMarket();
        postJob(aTerms());
        holdShards();
        fund(stranger, 1000 ether);
        fund(client, 1000 ether);
        fallen = commitTask(0, 0);
        fallenRoots = segmentEnds(fallen);
    }

    // ---- what happens on the way

    /// @dev The states of the claim that will be paid at this place: right up to segment `wrong`, where the fallen one is not.
    function truth(uint32 wrong) internal view returns (bytes32[] memory roots) {
        roots = segmentEnds(fallen);
        for (uint256 i = uint256(wrong) + 1; i < roots.length; ++i) {
            roots[i] = keccak256(abi.encode("true state", i));
        }
    }

    /// @dev Its game was lost.
    function lost(Found memory f) internal pure returns (Found memory) {
        f.won = false;
        return f;
    }

    function showAs(address who, uint32 segment, bytes32 root, bytes32 salt) internal returns (uint256) {
        bytes32[] memory from = memberProof(fallenRoots, segment);
        bytes32[] memory to = memberProof(fallenRoots, segment + 1);
        vm.prank(who);
        return challenges.open(
            fallen, segment, fallenRoots[segment], from, fallenRoots[segment + 1], to, root, salt
        );
    }

    function looked(address who, uint32 segment, bytes32 root)
        internal
        returns (uint256 game, Found memory f)
    {
        f = Found(who, segment, u64(vm.getBlockNumber()), 0, root, true);
        bytes32 salt = announceRoot(who, idOf(fallen), segment, address(0), root);
        f.shown = u64(vm.getBlockNumber());
        game = showAs(who, segment, root, salt);
    }

    /// @dev The shard's next holder commits these states at the place, and they are paid.
    function settle(bytes32[] memory roots) internal {
        takeAs(solvers[0], 0);
        Claim memory draft_ = draft(Kind.TASK, 0, 0);
        draft_.outputRoot = roots[roots.length - 1];
        (settled, settledRoots) = commitAs(solvers[0], draft_, roots);
        accept(settled);
        beside = acceptedTask(0, 1);
        skip(501);
        tasks.settle(settled);
    }

    function commitAs(address who, Claim memory claim, bytes32[] memory roots)
        internal
        returns (Claim memory, bytes32[] memory)
    {
        vm.recordLogs();
        vm.prank(who);
        tasks.commit(claim, roots);
        Vm.Log[] memory logs = vm.getRecordedLogs();
        for (uint256 i; i < logs.length; ++i) {
            if (logs[i].topics[0] == ITasks.Committed.selector) {
                (claim,,) = abi.decode(logs[i].data, (Claim, bytes32[], uint64));
            }
        }
        return (claim, roots);
    }

    function share(Found[] memory found) internal {
        challenges.share(fallen, fallenRoots, settled, settledRoots, found);
    }

    function list(Found memory a, Found memory b) internal pure returns (Found[] memory found) {
        found = new Found[](2);
        (found[0], found[1]) = (a, b);
    }

    function oneOf(Found memory a) internal pure returns (Found[] memory found) {
        found = new Found[](1);
        found[0] = a;
    }
}
