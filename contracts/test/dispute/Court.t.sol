// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {Openings} from "../../src/dispute/Openings.sol";
import {Context, Cursor, Game, GamePhase, ICourt, Opening} from "../../src/interfaces/ICourt.sol";
import {Merkle} from "../../src/libraries/Merkle.sol";
import {CourtGame} from "./CourtGame.sol";
import {Tree, Trees} from "./Trees.sol";

/// @notice Whole games, honest against liar; clocks, players, phases; the claimed output; padding. Proofs: CourtProofs.t.sol.
contract CourtTest is CourtGame {
    using Trees for Tree;

    bytes32 private constant KEY = keccak256("a verifier's key");

    function setUp() external {
        vm.warp(1_000_000);
        _load();
    }

    // ---- whole games

    /// @notice Attack 5: one bit of one element of one node is wrong. Every node in turn, so every kind of source.
    function test_liarAboutAnyNodeIsConvicted() external {
        for (uint256 node; node < ownNodes; ++node) {
            this.convict(node);
        }
    }

    /// @dev A call of its own, so that a hundred games do not share one memory.
    function convict(uint256 node) external {
        _convict(node, 0, 1, 0);
    }

    function test_liarAboutAKeyedTraceIsConvicted() external {
        for (uint256 node; node < ownNodes; node += 3) {
            _convict(node, 0, 1, KEY);
        }
    }

    function test_lieInAnInnerLeafIsFound() external {
        _convict(18, 2048 * 35 + 8, 0x40, 0); // strided, leaf 35 of 40
        _convict(17, 5116, 0x40, 0); // sub, last element
        _convict(0, 2048 + 4, 0x01, 0); // state, second leaf
    }

    function _convict(uint256 node, uint256 cursor, uint8 change, bytes32 key) private {
        bytes[] memory tensors = _lie(node, cursor, change);
        bytes32 outRoot = key == 0 ? _outState(tensors).root() : Trees.over(tensors, key).root();
        (uint256 id, Game memory game) = _open(_newGame(key, outRoot));
        game = _descend(id, game, tensors, node, cursor / Openings.LEAF_BYTES);
        game = _revealLeaf(id, game, tensors[node]);
        uint256 width = [uint256(4), 4, 2, 1, 1][uint8(s.nodes[node][1])];
        _prove(id, game, tensors, cursor / width);
        assertEq(challenges.verdicts(id), 2, "the challenger wins");
        assertEq(court.gameHash(id), 0, "nothing is kept");
    }

    /// @notice An honest defender is never convicted: no element of any node can be proven wrong, and time acquits it.
    function test_honestDefenderIsAcquitted() external {
        for (uint256 node; node < ownNodes; ++node) {
            this.acquit(node); // by a call, so that its memory is given back
        }
    }

    function acquit(uint256 node) external {
        (uint256 id, Game memory game) = _open(_newGame(0, keccak256("the challenger's fancy")));
        game = _descend(id, game, s.honest, node, 0);
        game = _revealLeaf(id, game, s.honest[node]);
        Opening[] memory openings = _openings(game, s.honest, node, 0);
        bytes memory leaf = _leafOf(game, s.honest[node]);
        vm.expectRevert(ICourt.NoDifference.selector);
        vm.prank(challenger);
        _proveAs(id, game, leaf, s.nodes[node], 0, openings);
        vm.warp(game.cursor.deadline + 1);
        court.timeout(id, game);
        assertEq(challenges.verdicts(id), 1, "the defender wins");
    }

    /// @notice Attack 41: a NaN other than the canonical one, and a bool other than 0 or 1, lose at once, without openings.
    function test_Attack41_nonCanonicalNanLoses() external {
        bytes[] memory tensors = s.honest;
        tensors[9][0] = 0x01;
        tensors[9][2] = 0xc0;
        tensors[9][3] = 0xff;
        (uint256 id, Game memory game) = _open(_newGame(0, 0));
        game = _descend(id, game, tensors, 9, 0);
        game = _revealLeaf(id, game, tensors[9]);
        vm.expectEmit(address(court));
        emit ICourt.GameDecided(id, game.params.claimId, true, "leaf");
        vm.prank(challenger);
        _proveAs(id, game, tensors[9], s.nodes[9], 0, new Opening[](0));
    }

    // ---- steps

    function _stepsGame(bytes32 key) private returns (uint256 id, Game memory game, bytes32[] memory roots) {
        Game memory start = _newGame(key, keccak256("r4"));
        start.context.steps = 4;
        (id, game) = _open(start);
        assertEq(uint8(game.cursor.phase), uint8(GamePhase.STEPS));
        roots = new bytes32[](3);
        for (uint256 i; i < 3; ++i) {
            roots[i] = keccak256(abi.encode("r", i + 1));
        }
    }

    function _revealSteps(uint256 id, Game memory game, bytes32[] memory roots)
        private
        returns (Game memory)
    {
        vm.recordLogs();
        vm.prank(defender);
        court.revealSteps(id, _basis(game), _scope(game), _front(game), roots);
        return _within(game);
    }

    function _pickStep(uint256 id, Game memory game, bytes32[] memory roots, uint32 j)
        private
        returns (Game memory)
    {
        vm.recordLogs();
        vm.prank(challenger);
        court.pickStep(id, _basis(game), _scope(game), _front(game), roots, j);
        return _after(game);
    }

    function test_everyStepCanBePicked() external {
        for (uint32 j; j < 4; ++j) {
            (uint256 id, Game memory game, bytes32[] memory roots) = _stepsGame(KEY);
            Game memory picked = _pickStep(id, _revealSteps(id, game, roots), roots, j);
            assertEq(uint8(picked.cursor.phase), uint8(GamePhase.TRACE));
            assertEq(picked.context.step, game.context.step + j);
            assertEq(picked.context.steps, 1);
            assertEq(picked.context.inRoot, j == 0 ? game.context.inRoot : roots[j - 1]);
            assertEq(picked.context.outRoot, j == 3 ? game.context.outRoot : roots[j]);
            assertEq(picked.context.key, j == 3 ? KEY : bytes32(0), "only the last step's trace is keyed");
        }
    }

    function test_wrongNumberOfStepsIsRefused() external {
        (uint256 id, Game memory game,) = _stepsGame(0);
        vm.expectRevert(abi.encodeWithSelector(ICourt.WrongCount.selector, 3, 2));
        vm.prank(defender);
        court.revealSteps(id, _basis(game), _scope(game), _front(game), new bytes32[](2));
    }

    function test_otherStepsThanRevealedAreRefused() external {
        (uint256 id, Game memory game, bytes32[] memory roots) = _stepsGame(0);
        game = _revealSteps(id, game, roots);
        roots[1] = 0;
        vm.expectRevert(ICourt.WrongChildren.selector);
        vm.prank(challenger);
        court.pickStep(id, _basis(game), _scope(game), _front(game), roots, 0);
        roots[1] = keccak256(abi.encode("r", 2));
        vm.expectRevert(abi.encodeWithSelector(ICourt.IndexOutOfRange.selector, 4, 4));
        vm.prank(challenger);
        court.pickStep(id, _basis(game), _scope(game), _front(game), roots, 4);
    }

    // ---- clocks, players, phases

    /// @notice In every phase, whoever has to move and does not loses; not before its time.
    function test_everyPhaseTimesOut() external {
        bytes[] memory tensors = _lie(18, 0, 1);
        uint256 seen;
        for (uint256 stop; stop < 9; ++stop) {
            (uint256 id, Game memory game) = _playUpTo(tensors, stop);
            seen |= 1 << uint8(game.cursor.phase);
            vm.warp(game.cursor.deadline);
            vm.expectRevert(abi.encodeWithSelector(ICourt.DeadlineNotPassed.selector, game.cursor.deadline));
            court.timeout(id, game);
            vm.warp(game.cursor.deadline + 1);
            court.timeout(id, game);
            assertEq(challenges.verdicts(id), uint8(game.cursor.phase) & 1 == 1 ? 1 : 2);
            vm.expectRevert(abi.encodeWithSelector(ICourt.WrongGame.selector, id));
            court.timeout(id, game);
        }
        assertEq(seen, (1 << 9) - 1, "every phase of the main path was reached");
    }

    /// @dev A game stopped in phase `stop` (of the main path).
    function _playUpTo(bytes[] memory tensors, uint256 stop) private returns (uint256 id, Game memory game) {
        bytes32[] memory roots;
        (id, game, roots) = _stepsGame(0);
        if (stop == 0) return (id, game);
        game = _revealSteps(id, game, roots);
        if (stop == 1) return (id, game);
        game = _pickStep(id, game, roots, 1);
        Tree memory trace = Trees.over(tensors, 0);
        Tree memory tensor = Trees.tensor(tensors[18], 0);
        if (stop == 2) return (id, game);
        game = _revealTrace(id, game, trace);
        if (stop == 3) return (id, game);
        game = _pick(id, game, trace, 18);
        if (stop == 4) return (id, game);
        game = _pick(id, _split(id, game, trace), trace, 18);
        if (stop == 6) return (id, game);
        game = _split(id, game, tensor);
        if (stop == 5) return (id, game);
        game = _pick(id, game, tensor, 0);
        if (stop == 8) return (id, game);
        game = _revealLeaf(id, game, tensors[18]);
    }

    /// @notice Attack 37: a move copied from the mempool and sent by another, or by the wrong player, is refused; so is every
    /// move that does not belong to the phase, and every move that comes too late.
    function test_Attack37_onlyTheMoverMovesInItsPhaseAndTime() external {
        bytes[] memory tensors = _lie(18, 0, 1);
        for (uint256 stop; stop < 9; ++stop) {
            (uint256 id, Game memory game) = _playUpTo(tensors, stop);
            uint256 right = stop == 6 ? 4 : stop == 5 ? 3 : stop; // split and pick serve two phases
            bool challengers = stop & 1 == 1;
            address mover = challengers ? challenger : defender;
            for (uint256 move; move < 9; ++move) {
                if (move == 5 || move == 6) continue;
                bytes memory data = _move(move, id, game);
                if (move != right) {
                    _refused(mover, data, ICourt.WrongPhase.selector);
                    continue;
                }
                _refused(challengers ? defender : challenger, data, ICourt.NotYourMove.selector);
                _refused(makeAddr("cursor-runner"), data, ICourt.NotYourMove.selector);
                uint256 now_ = vm.getBlockTimestamp();
                vm.warp(game.cursor.deadline + 1);
                _refused(mover, data, ICourt.DeadlinePassed.selector);
                vm.warp(now_);
                game.cursor.level += 1;
                _refused(mover, _move(move, id, game), ICourt.WrongGame.selector);
                game.cursor.level -= 1;
            }
        }
    }

    function _move(uint256 move, uint256 id, Game memory game) private pure returns (bytes memory) {
        bytes32[] memory none = new bytes32[](0);
        (bytes32 paramsHash, Context memory context, Cursor memory cursor) =
            (_basis(game), _scope(game), _front(game));
        if (move == 0) return abi.encodeCall(ICourt.revealSteps, (id, paramsHash, context, cursor, none));
        if (move == 1) return abi.encodeCall(ICourt.pickStep, (id, paramsHash, context, cursor, none, 0));
        if (move == 2) return abi.encodeCall(ICourt.revealTrace, (id, paramsHash, context, cursor, 0, none));
        if (move == 3) return abi.encodeCall(ICourt.pick, (id, game, 0, 0, none, "", none));
        if (move == 4) return abi.encodeCall(ICourt.split, (id, _matter(game), cursor, none));
        if (move == 7) return abi.encodeCall(ICourt.prove, (id, game, 0, none, "", 0, new Opening[](0)));
        return abi.encodeCall(ICourt.revealLeaf, (id, paramsHash, context, cursor, ""));
    }

    function _refused(address sender, bytes memory data, bytes4 error_) private {
        vm.prank(sender);
        (bool ok, bytes memory result) = address(court).call(data);
        assertFalse(ok);
        assertEq(bytes32(bytes4(result)), bytes32(error_));
    }

    function test_onlyChallengesOpensAndItsGameIsNormalised() external {
        Game memory start = _newGame(0, 0);
        vm.expectRevert(ICourt.NotChallenges.selector);
        court.open(start);
        start.cursor.phase = GamePhase.PROVE;
        start.cursor.digest = keccak256("planted");
        start.context.node = 7;
        (uint256 id, Game memory game) = _open(start);
        assertEq(uint8(game.cursor.phase), uint8(GamePhase.TRACE));
        assertEq(game.cursor.digest, 0);
        assertEq(game.context.node, 0);
        assertEq(game.cursor.deadline, vm.getBlockTimestamp() + MOVE_TIME);
        (uint256 next,) = _open(start);
        assertEq(next, id + 1, "an id is never used twice, whatever the content");
    }

    // ---- the claimed output

    function test_outputMismatchEndsTheGame() external {
        bytes[] memory other = _lie(17, 0, 1);
        Tree memory claimed = _outState(other);
        (uint256 id, Game memory game) = _open(_newGame(0, claimed.root()));
        Tree memory trace = Trees.over(s.honest, 0);
        game = _revealTrace(id, game, trace);
        _proveOutput(id, game, claimed, trace, 1, abi.encodePacked(ICourt.NoDifference.selector));
        _proveOutput(id, game, claimed, trace, 0, "");
        assertEq(challenges.verdicts(id), 2);
    }

    /// @notice The same where the program's tree has no padding: 1 + 125 + 2 leaves.
    function test_outputMismatchInAFullTreeEndsTheGame() external {
        while (s.nodes.length < 125) {
            s.nodes.push(s.nodes[FIXTURE_NODES - 1]);
            s.honest.push(new bytes(4));
        }
        _seal(1);
        Tree memory claimed = _outState(_lie(12, 0, 1));
        Tree memory trace = Trees.over(s.honest, 0);
        (uint256 id, Game memory game) = _open(_newGame(0, claimed.root()));
        game = _revealTrace(id, game, trace);
        _proveOutput(id, game, claimed, trace, 1, "");
        assertEq(challenges.verdicts(id), 2);
    }

    struct OutputProof {
        uint32 slot;
        uint32 ref;
        bytes32[] refProof;
        bytes32 stateLeaf;
        bytes32[] stateProof;
        bytes32 traceLeaf;
        bytes32[] traceProof;
    }

    function _outputProof(Tree memory state, Tree memory trace, uint32 slot)
        private
        view
        returns (OutputProof memory p)
    {
        p.slot = slot;
        p.ref = s.outputs[slot];
        p.refProof = _programTree().proof(1 + s.nodes.length + slot);
        p.stateLeaf = state.levels[0][slot];
        p.stateProof = state.proof(slot);
        p.traceLeaf = trace.levels[0][p.ref];
        p.traceProof = trace.proof(p.ref);
    }

    function _sendOutput(uint256 id, Game memory game, OutputProof memory p, bytes memory refusal) private {
        if (refusal.length != 0) vm.expectRevert(refusal);
        vm.prank(challenger);
        court.proveOutput(
            id, game, p.slot, p.ref, p.refProof, p.stateLeaf, p.stateProof, p.traceLeaf, p.traceProof
        );
    }

    function _proveOutput(
        uint256 id,
        Game memory game,
        Tree memory state,
        Tree memory trace,
        uint32 slot,
        bytes memory refusal
    ) private {
        _sendOutput(id, game, _outputProof(state, trace, slot), refusal);
    }

    /// @notice Attack 35: the trace is honest, but only the defender knows what lies under the output root it claimed. It has
    /// to open it, and what it opens convicts it; if it cannot, the clock does.
    function test_Attack35_unknownOutputStateMustBeOpened() external {
        bytes[] memory other = _lie(12, 0, 1);
        Tree memory claimed = _outState(other);
        (uint256 id, Game memory game) = _open(_newGame(0, claimed.root()));
        Tree memory trace = Trees.over(s.honest, 0);
        game = _revealTrace(id, game, trace);
        vm.recordLogs();
        vm.prank(challenger);
        court.openOutput(id, game);
        game = _after(game);
        assertEq(uint8(game.cursor.phase), uint8(GamePhase.SPLIT_OUTPUT));
        uint256 snapshot = vm.snapshotState();
        vm.warp(game.cursor.deadline + 1);
        court.timeout(id, game);
        assertEq(challenges.verdicts(id), 2, "silence loses");
        vm.revertToState(snapshot);
        game = _split(id, game, claimed);
        assertEq(uint8(game.cursor.phase), uint8(GamePhase.PICK_OUTPUT));
        bytes32[] memory children = claimed.children(1, 0);
        _lastPick(
            id, game, children, 0, abi.encodeWithSelector(ICourt.WrongPhase.selector, GamePhase.PICK_OUTPUT)
        );
        _proveOutput(id, game, claimed, trace, 1, "");
        assertEq(challenges.verdicts(id), 2);
    }

    /// @notice Attack 35: nobody but the claimant knows what its input root is the root of. The game starts with its tree, and
    /// what is opened is for `proveBinding`: this game itself is won or lost by the clock alone.
    function test_Attack35_anUnknownInputStateMustBeOpened() external {
        (Tree memory claimed, uint256 id, Game memory game) = _inputGame();
        assertEq(uint8(game.cursor.phase), uint8(GamePhase.SPLIT_OUTPUT));
        assertEq(game.cursor.digest, claimed.root());
        assertEq(game.cursor.level, 1);
        uint256 snapshot = vm.snapshotState();
        vm.warp(game.cursor.deadline + 1);
        court.timeout(id, game);
        assertEq(challenges.verdicts(id), 2, "silence loses");
        vm.revertToState(snapshot);
        vm.recordLogs();
        vm.prank(defender);
        court.split(id, _matter(game), _front(game), new bytes32[](2));
        Game memory opened = _within(abi.decode(abi.encode(game), (Game)));
        vm.prank(challenger);
        court.proveChildren(id, opened, new bytes32[](2));
        assertEq(challenges.verdicts(id), 2, "so does a false opening");
        vm.revertToState(snapshot);
        game = _split(id, game, claimed);
        assertEq(uint8(game.cursor.phase), uint8(GamePhase.PICK_OUTPUT));
        vm.warp(game.cursor.deadline + 1);
        court.timeout(id, game);
        assertEq(challenges.verdicts(id), 1, "who asked without cause loses");
    }

    function test_Attack35_noTraceIsProvenAgainstAnInputState() external {
        (Tree memory claimed, uint256 id, Game memory game) = _inputGame();
        bytes memory refusal = abi.encodeWithSelector(ICourt.WrongPhase.selector, GamePhase.SPLIT_OUTPUT);
        _proveOutput(id, game, claimed, Trees.over(s.honest, 0), 0, refusal);
        game = _split(id, game, claimed);
        refusal = abi.encodeWithSelector(ICourt.WrongPhase.selector, GamePhase.PICK_OUTPUT);
        _proveOutput(id, game, claimed, Trees.over(s.honest, 0), 0, refusal);
        vm.startPrank(challenger);
        vm.expectRevert(refusal);
        court.openOutput(id, game);
        vm.expectRevert(refusal);
        _proveAs(id, game, "", "", 0, new Opening[](0));
        vm.stopPrank();
    }

    /// @dev A trace of one node needs no proof below its root, and the root of no trace is zero.
    function test_Attack35_noTraceOfOneNodeEither() external {
        Game memory start = _newGame(0, keccak256("a state of one slot"));
        bytes32[] memory program = new bytes32[](3);
        program[2] = Merkle.leaf(abi.encodePacked(uint32(0)));
        Tree memory tree = Trees.build(program);
        (start.context.steps, start.params.program.nodes, start.params.program.slots) = (0, 1, 1);
        start.params.program.root = tree.root();
        bytes32[] memory one = new bytes32[](1);
        one[0] = start.context.outRoot;
        (uint256 id, Game memory game) = _open(start);
        game = _split(id, game, Trees.build(one));
        bytes32[] memory none = new bytes32[](0);
        vm.expectRevert(abi.encodeWithSelector(ICourt.WrongPhase.selector, GamePhase.PICK_OUTPUT));
        vm.prank(challenger);
        court.proveOutput(id, game, 0, 0, tree.proof(2), one[0], none, 0, none);
    }

    function _inputGame() private returns (Tree memory claimed, uint256 id, Game memory game) {
        claimed = _outState(_lie(12, 0, 1));
        Game memory start = _newGame(0, claimed.root());
        (start.context.steps, start.context.inRoot, start.context.traceRoot) = (0, 0, keccak256("planted"));
        (id, game) = _open(start);
        assertEq(game.context.traceRoot, 0);
    }

    function test_outputOfAKeyedTraceCannotBeDisputed() external {
        Tree memory trace = Trees.over(s.honest, KEY);
        (uint256 id, Game memory game) = _open(_newGame(KEY, trace.root()));
        game = _revealTrace(id, game, trace);
        vm.expectRevert(abi.encodeWithSelector(ICourt.WrongPhase.selector, GamePhase.PICK_NODE));
        vm.prank(challenger);
        court.openOutput(id, game);
        bytes memory refusal = abi.encodeWithSelector(ICourt.WrongPhase.selector, GamePhase.PICK_NODE);
        _proveOutput(id, game, _inState(), trace, 0, refusal);
    }

    function test_keyedTraceMustBeTheClaimedOne() external {
        (uint256 id, Game memory game) = _open(_newGame(KEY, keccak256("claimed")));
        Tree memory trace = Trees.over(s.honest, KEY);
        bytes32[] memory children = trace.children(7, 0);
        bytes32 root = trace.root();
        vm.expectRevert(ICourt.WrongChildren.selector);
        vm.prank(defender);
        court.revealTrace(id, _basis(game), _scope(game), _front(game), root, children);
    }

    function test_wrongOutputProofsAreRefused() external {
        bytes[] memory other = _lie(17, 0, 1);
        Tree memory claimed = _outState(other);
        (uint256 id, Game memory game) = _open(_newGame(0, claimed.root()));
        Tree memory trace = Trees.over(s.honest, 0);
        game = _revealTrace(id, game, trace);
        bytes memory badProof = abi.encodePacked(ICourt.BadProof.selector);
        OutputProof memory p = _outputProof(claimed, trace, 0);
        p.ref = 16; // another node than the program's output
        p.traceProof = trace.proof(16);
        p.traceLeaf = trace.levels[0][16];
        _sendOutput(id, game, p, badProof);
        p = _outputProof(claimed, trace, 0);
        p.slot = 2; // a slot that is not there
        _sendOutput(id, game, p, abi.encodeWithSelector(ICourt.IndexOutOfRange.selector, 2, 2));
        p = _outputProof(claimed, trace, 0);
        p.stateLeaf = keccak256("no leaf of the state");
        _sendOutput(id, game, p, badProof);
        p = _outputProof(claimed, trace, 0);
        p.traceLeaf = keccak256("no leaf of the trace");
        _sendOutput(id, game, p, badProof);
        p = _outputProof(claimed, trace, 0);
        p.refProof = new bytes32[](0);
        _sendOutput(id, game, p, badProof);
    }

    /// @notice A proof that would convict, by another, too late, of another game, or after the game.
    function test_onlyTheChallengerProvesTheOutputOfItsGameInTime() external {
        Tree memory claimed = _outState(_lie(17, 0, 1));
        Tree memory trace = Trees.over(s.honest, 0);
        (uint256 id, Game memory game) = _open(_newGame(0, claimed.root()));
        OutputProof memory p = _outputProof(claimed, trace, 0);
        bytes memory refusal = abi.encodeWithSelector(ICourt.WrongPhase.selector, GamePhase.TRACE);
        _sendOutput(id, game, p, refusal);
        game = _revealTrace(id, game, trace);
        vm.expectRevert(abi.encodeWithSelector(ICourt.NotYourMove.selector, challenger));
        court.proveOutput(
            id, game, p.slot, p.ref, p.refProof, p.stateLeaf, p.stateProof, p.traceLeaf, p.traceProof
        );
        game.params.shard += 1;
        _sendOutput(id, game, p, abi.encodeWithSelector(ICourt.WrongGame.selector, id));
        game.params.shard -= 1;
        vm.warp(game.cursor.deadline + 1);
        refusal = abi.encodeWithSelector(ICourt.DeadlinePassed.selector, game.cursor.deadline);
        _sendOutput(id, game, p, refusal);
        vm.warp(game.cursor.deadline);
        _sendOutput(id, game, p, "");
        assertEq(challenges.verdicts(id), 2);
        _sendOutput(id, game, p, abi.encodeWithSelector(ICourt.WrongGame.selector, id));
    }

    // ---- padding

    function test_plantedPaddingLosesAndTruePaddingConvictsNobody() external {
        bytes32[] memory roots = Trees.over(s.honest, 0).levels[0];
        roots[127] = keccak256("planted");
        Tree memory planted = Trees.build(roots);
        (uint256 id, Game memory game) = _open(_newGame(0, 0));
        game = _revealTrace(id, game, planted);
        bytes32[] memory children = planted.children(7, 0);
        _lastPick(id, game, children, 14, abi.encodePacked(ICourt.NoDifference.selector));
        vm.expectEmit(address(court));
        emit ICourt.GameDecided(id, game.params.claimId, true, "padding");
        _lastPick(id, game, children, 15, "");
    }

    function test_plantedPaddingInsideATensorLoses() external {
        Tree memory tensor = Trees.tensor(s.honest[18], 0);
        tensor.levels[0][62] = keccak256("planted"); // 40 leaves of 64 are the tensor's
        tensor = Trees.build(tensor.levels[0]);
        bytes32[] memory roots = Trees.over(s.honest, 0).levels[0];
        roots[18] = tensor.root();
        Tree memory trace = Trees.build(roots);
        (uint256 id, Game memory game) = _open(_newGame(0, 0));
        game = _revealTrace(id, game, trace);
        game = _pick(id, game, trace, 18);
        game = _pick(id, _split(id, game, trace), trace, 18);
        game = _split(id, game, tensor);
        bytes32[] memory children = tensor.children(6, 0);
        _lastPick(id, game, children, 61, abi.encodePacked(ICourt.NoDifference.selector));
        _lastPick(id, game, children, 62, "");
        assertEq(challenges.verdicts(id), 2);
    }

    // ---- verdicts

    function test_aVerdictThatIsNotTakenEndsNoGame() external {
        (uint256 id, Game memory game) = _open(_newGame(0, 0));
        challenges.setClosed(true);
        vm.warp(game.cursor.deadline + 1);
        vm.expectRevert("closed");
        court.timeout(id, game);
        challenges.setClosed(false);
        court.timeout(id, game);
        assertEq(challenges.verdicts(id), 2);
        assertEq(court.gameHash(id), 0, "the game is over");
    }
}
