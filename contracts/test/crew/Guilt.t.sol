// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {Crew} from "../../src/crew/Crew.sol";
import {Crews} from "../../src/crew/Crews.sol";
import {Court} from "../../src/dispute/Court.sol";
import {Game, GamePhase, ICourt, Opening} from "../../src/interfaces/ICourt.sol";
import {ICrews, Invitation, Member, Said, Transcript} from "../../src/interfaces/ICrews.sol";
import {IJobs} from "../../src/interfaces/IJobs.sol";
import {IStakes} from "../../src/interfaces/IStakes.sol";
import {ITasks} from "../../src/interfaces/ITasks.sol";
import {IVault} from "../../src/interfaces/IVault.sol";
import {Claim, ClaimStatus, Phase, ProgramRef, Terms} from "../../src/interfaces/Types.sol";
import {Merkle} from "../../src/libraries/Merkle.sol";
import {TermsStore} from "../../src/libraries/TermsStore.sol";
import {AssayToken} from "../../src/token/AssayToken.sol";
import {Vm} from "../Vm.sol";
import {CourtGame} from "../dispute/CourtGame.sol";
import {Tree, Trees} from "../dispute/Trees.sol";

/// @notice Keeps terms as Jobs does.
contract JobsFake {
    function write(bytes32 jobId, Terms calldata terms) external {
        TermsStore.write(jobId, terms);
    }
}

/// @notice Says that every claim was convicted just now.
contract TasksFake {
    function status(bytes32) external view returns (ClaimStatus memory s) {
        (s.phase, s.since) = (Phase.CONVICTED, uint64(block.timestamp));
    }
}

/// @notice A member's transcript in a game by the real Court and the real arbiter: member 1 ran the fixture's step.
contract GuiltTest is CourtGame {
    using Trees for Tree;

    bytes32 private constant JOB = keccak256("job");

    AssayToken private token = AssayToken(deployed("AssayToken", abi.encode(address(this), 1000 ether)));
    JobsFake private jobs = new JobsFake();
    Crews private crews;
    Invitation private invited;
    address private crew;
    uint256 private memberKey;

    function setUp() public {
        _load();
        address predicted = vm.computeCreateAddress(address(this), vm.getNonce(address(this)) + 7);
        court = Court(
            deployed(
                "Court",
                abi.encode(
                    predicted,
                    deployed("ArbiterElementwise", ""),
                    deployed("ArbiterTranscendental", ""),
                    deployed("ArbiterContraction", ""),
                    deployed("ArbiterIndex", ""),
                    clock
                )
            )
        );
        ITasks tasks = ITasks(address(new TasksFake()));
        IVault vault = IVault(makeAddr("vault")); // of which a verdict asks nothing
        Crew implementation = new Crew(
            ICrews(predicted),
            token,
            vault,
            IStakes(makeAddr("stakes")),
            IJobs(address(jobs)),
            tasks,
            makeAddr("court")
        );
        crews = new Crews(token, vault, address(jobs), tasks, court, address(implementation), clock);
        assertEq(address(crews), predicted);
        (defender, memberKey) = makeAddrAndKey("member 1");
        (invited.jobId, invited.shard) = (JOB, s.shard);
        invited.members.push(Member(challenger, 5000, ProgramRef(keccak256("stage 0"), 9, 2, 1)));
        invited.members.push(Member(defender, 5000, s.program));
        crew = crews.crewOf(invited);
        Terms memory t;
        t.client = makeAddr("client");
        t.datasetRoot = _datasetTree().root();
        (t.seed, t.records, t.recordSize) = (s.seed, uint32(s.records.length), s.recordSize);
        (t.moveTime, t.challengeBond, t.solverStake) = (MOVE_TIME, 30 ether, 100 ether);
        jobs.write(JOB, t);
        token.transfer(challenger, 30 ether);
    }

    /// @dev The leader accuses member 1 of a step that it says gave these outputs.
    function _accused(bytes[] memory tensors) private returns (uint256 id, Game memory game) {
        Said memory said;
        (said.inRoot, said.outRoot) = (_inState().root(), _outState(tensors).root());
        bytes32 root = Merkle.leaf(abi.encodePacked(said.inRoot, said.outRoot));
        Transcript memory t = Transcript(crew, 1, 0, 0, s.step, 1, root);
        Claim memory claim;
        (claim.jobId, claim.shard, claim.claimant) = (JOB, s.shard, crew);
        (uint8 v, bytes32 r, bytes32 rest) = vm.sign(memberKey, crews.digestOf(t));
        vm.startPrank(challenger);
        token.approve(address(crews), 30 ether);
        vm.recordLogs();
        Invitation memory all = invited;
        bytes memory signature = abi.encodePacked(r, rest, v);
        vm.cool(address(crews));
        vm.cool(address(court));
        vm.cool(address(token));
        uint256 before = gasleft();
        id = crews.accuse(all, claim, t, signature, said);
        vm.snapshotValue("crew", "accuse", before - gasleft());
        vm.stopPrank();
        Vm.Log[] memory logs = vm.getRecordedLogs();
        for (uint256 i; i < logs.length; ++i) {
            if (logs[i].topics[0] == ICourt.GameOpened.selector) game = abi.decode(logs[i].data, (Game));
        }
        (,, uint256 games) = crews.charged(crew, 1);
        assertEq(games, 1);
    }

    function _assertGuilty(uint256 id, bool guilty) private view {
        assertEq(court.gameHash(id), 0, "the game is over");
        (uint256 charged, uint256 won, uint256 games) = crews.charged(crew, 1);
        assertEq(games, 0);
        assertEq(charged, guilty ? 100 ether : 0);
        assertEq(won, guilty ? 0 : 30 ether, "the bond");
        assertEq(token.balanceOf(crew), 30 ether);
    }

    /// @dev The first node beyond the state whose output the next state holds.
    function _written() private view returns (uint256 slot, uint256 node) {
        while (s.outputs[slot] < s.program.slots) ++slot;
        node = s.outputs[slot];
    }

    function test_AWrongNodeIsItsOwners() public {
        (, uint256 node) = _written();
        bytes[] memory tensors = _lie(node, 0, 1);
        (uint256 id, Game memory game) = _accused(tensors);
        game = _descend(id, game, tensors, node, 0);
        game = _revealLeaf(id, game, tensors[node]);
        bytes memory leaf = _leafOf(game, tensors[node]);
        Opening[] memory openings = _openings(game, tensors, node, 0);
        vm.prank(challenger);
        court.prove(id, game, Trees.word(leaf, 0), Trees.wordProof(leaf, 0), s.nodes[node], 0, openings);
        _assertGuilty(id, true);
    }

    function test_AWrongSlotIsItsOwners() public {
        (uint256 slot, uint256 node) = _written();
        bytes[] memory said = _lie(node, 0, 1);
        (uint256 id, Game memory game) = _accused(said);
        game = _revealTrace(id, game, Trees.over(s.honest, 0));
        _proveOutput(id, game, said, slot, node);
        _assertGuilty(id, true);
    }

    function _proveOutput(uint256 id, Game memory game, bytes[] memory said, uint256 slot, uint256 node)
        private
    {
        bytes32 claimed = Trees.tensor(said[node], 0).root();
        bytes32 traced = Trees.tensor(s.honest[node], 0).root();
        bytes32[] memory slotProof = _outState(said).proof(slot);
        bytes32[] memory refProof = _programTree().proof(1 + s.nodes.length + slot);
        bytes32[] memory nodeProof = Trees.over(s.honest, 0).proof(node);
        vm.prank(challenger);
        court.proveOutput(
            id, game, uint32(slot), uint32(node), refProof, claimed, slotProof, traced, nodeProof
        );
    }

    function test_AMemberThatDoesNotAnswerIsGuilty() public {
        (uint256 id, Game memory game) = _accused(_lie(s.outputs[0], 0, 1));
        skip(MOVE_TIME + 1);
        court.timeout(id, game);
        _assertGuilty(id, true);
    }

    function test_AMemberWhoseStepIsRightGetsTheBond() public {
        (uint256 id, Game memory game) = _accused(s.honest);
        (, uint256 node) = _written();
        game = _descend(id, game, s.honest, node, 0);
        game = _revealLeaf(id, game, s.honest[node]);
        bytes memory leaf = _leafOf(game, s.honest[node]);
        Opening[] memory openings = _openings(game, s.honest, node, 0);
        vm.prank(challenger);
        vm.expectRevert(ICourt.NoDifference.selector);
        court.prove(id, game, Trees.word(leaf, 0), Trees.wordProof(leaf, 0), s.nodes[node], 0, openings);
        assertEq(uint256(game.cursor.phase), uint256(GamePhase.PROVE));
        skip(MOVE_TIME + 1);
        court.timeout(id, game);
        _assertGuilty(id, false);
    }
}
