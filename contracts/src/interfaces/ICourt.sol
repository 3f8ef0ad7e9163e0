// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {Accused, ProgramRef} from "./Types.sol";

/// @dev Whose move it is and what the move is. Odd phases are the challenger's; a pick stands before its split.
enum GamePhase {
    STEPS, // 0 defender: reveal the segment's inner state roots
    PICK_STEP, // 1 challenger: point at the first wrong one
    TRACE, // 2 defender: commit to the disputed step's trace root and open its top
    PICK_NODE, // 3 challenger: point at a child (or prove an output mismatch)
    SPLIT_NODE, // 4 defender: open the child
    PICK_LEAF, // 5 challenger: point at a child inside the node's output tensor
    SPLIT_LEAF, // 6 defender: open the child
    PROVE, // 7 challenger: prove one element wrong
    REVEAL_LEAF, // 8 defender: reveal the disputed leaf
    PICK_OUTPUT, // 9 challenger: point at a child inside the claimed state (or prove an output mismatch)
    SPLIT_OUTPUT // 10 defender: open the child (digest: a node of outRoot's tree)
}

/// @dev Who is accused of what: the part of a game that never changes.
struct Params {
    Accused accused; // of the claim in dispute
    bytes32 claimId;
    uint64 ballot; // 0: the claim itself is in dispute; else the vote
    uint32 segment;
    bytes32 found; // keccak256 of the challenger's Found; 0 in a game on a vote
    ProgramRef program;
    bytes32 datasetRoot;
    bytes32 seed;
    uint32 records;
    uint32 recordSize;
    uint32 shard;
}

/// @dev Which steps and which node are in dispute.
struct Context {
    bytes32 key; // 0, or the prefix of every leaf of the last step's keyed trace
    uint64 step; // counter of the first step in dispute
    uint32 steps; // steps between inRoot and outRoot; 0: the game is about what outRoot, an input state's, is the root of
    bytes32 inRoot; // state root that both sides accept
    bytes32 outRoot; // disputed: a state root, or a keyed trace root if key != 0 and steps == 1
    bytes32 traceRoot;
    uint32 node; // disputed node
    uint64 size; // bytes of its output
    bytes32 nodeHash; // keccak256 of its encoding
}

/// @dev What a move within a tree needs and changes.
struct Cursor {
    address challenger;
    address defender;
    GamePhase phase;
    bytes32 digest; // the tree node now being opened
    uint32 level; // levels of the padded tree below `digest`
    uint64 index; // first leaf below `digest`
    uint64 leaves; // of the tree being opened; before there is one, of the trace tree
    bytes32 revealed; // keccak256(abi.encodePacked(digests)) of those that await a pick; in PROVE the leaf's root (see Leaves)
    uint64 moveTime; // seconds
    uint64 deadline; // seconds
}

/// @dev The whole of a game. The chain keeps only keccak256(contextHash ‖ cursor), where contextHash = keccak256(paramsHash ‖ context) and
/// paramsHash = keccak256(params). A move brings no more than it reads: within a tree contextHash and cursor, elsewhere mostly paramsHash,
/// context and cursor.
struct Game {
    Params params;
    Context context;
    Cursor cursor;
}

/// @dev A run of whole leaves of one input of the disputed node, with its way up to a root that both sides accept.
struct Opening {
    uint32 input; // ordinal among the node's inputs
    uint64 firstLeaf;
    bytes data; // the leaves' bytes, joined
    bytes32[] siblings; // range proof up to the tensor root (or the dataset root)
    bytes32[] path; // from the tensor root up to the trace root (or the agreed state root); empty for data
}

/// @title The dispute game
/// @notice Narrows a disputed claim down to one element and has the arbiter recompute it. Rules: docs/protocol.md, section 6.
interface ICourt {
    error NotChallenges();
    error WrongGame(uint256 gameId);
    error WrongPhase(GamePhase phase);
    error NotYourMove(address expected);
    error DeadlinePassed(uint64 deadline);
    error DeadlineNotPassed(uint64 deadline);
    error WrongCount(uint256 expected, uint256 given);
    error WrongChildren();
    error IndexOutOfRange(uint256 index, uint256 count);
    error BadProof();
    error NoDifference();
    error MissingInput(uint32 input, uint256 element);
    error MalformedNode();
    error UnknownOperation(uint8 op);

    event GameOpened(uint256 indexed gameId, bytes32 indexed claimId, Game game);
    /// @dev The game's new context and cursor.
    event Moved(uint256 indexed gameId, GamePhase phase, Context context, Cursor cursor, bytes32[] digests);
    /// @dev A move that changes the cursor alone. `digests`: what the defender opened, or the steps' roots.
    event Narrowed(uint256 indexed gameId, Cursor cursor, bytes32[] digests);
    event LeafRevealed(uint256 indexed gameId, Cursor cursor, bytes data);
    /// @dev `reason`: "timeout", "children", "output", "padding", "leaf" (not canonical) or "arithmetic".
    event GameDecided(uint256 indexed gameId, bytes32 indexed claimId, bool challengerWon, string reason);

    /// @notice Start a game. Only the Challenges contract.
    /// @param game as the accusation makes it; the Court sets its phase, leaves and deadline
    /// @return gameId from 1 on
    function open(Game calldata game) external returns (uint256 gameId);
    /// @notice Defender: the state roots after steps 1 .. steps-1 of the disputed segment.
    /// @param paramsHash keccak256(abi.encode(game.params))
    /// @param roots state roots (1.5), one a step but the last
    function revealSteps(
        uint256 gameId,
        bytes32 paramsHash,
        Context calldata context,
        Cursor calldata cursor,
        bytes32[] calldata roots
    ) external;
    /// @notice Challenger: `j` = number of revealed roots it agrees with; step j is the disputed one.
    /// @param paramsHash keccak256(abi.encode(game.params))
    /// @param roots as the defender revealed them
    /// @param j revealed roots that the challenger agrees with, below context.steps
    function pickStep(
        uint256 gameId,
        bytes32 paramsHash,
        Context calldata context,
        Cursor calldata cursor,
        bytes32[] calldata roots,
        uint32 j
    ) external;
    /// @notice Defender: the trace root of the disputed step and its descendants, as many levels down as one move opens.
    /// @param paramsHash keccak256(abi.encode(game.params))
    /// @param traceRoot root over the step's nodes' outputs (1.5); a vote's game: the one that it committed to
    /// @param children 2^h digests below the root, left to right
    function revealTrace(
        uint256 gameId,
        bytes32 paramsHash,
        Context calldata context,
        Cursor calldata cursor,
        bytes32 traceRoot,
        bytes32[] calldata children
    ) external;
    /// @notice Defender: the descendants of the tree node in dispute, as many levels down as one move opens. That they fold to
    /// it is not checked unless the challenger asks (`proveChildren`).
    /// @param contextHash keccak256(paramsHash ‖ context)
    /// @param children 2^h digests, left to right
    function split(uint256 gameId, bytes32 contextHash, Cursor calldata cursor, bytes32[] calldata children)
        external;
    /// @notice Challenger: the first child it disagrees with, by its digest and its siblings up to the tree node in dispute,
    /// bottom-up. Not at a trace tree's leaf, and not beyond the last leaf: that takes `pick`.
    /// @param child its number among the children, from 0
    /// @param digest the child's
    /// @param siblings h digests, bottom-up
    function pickWithin(
        uint256 gameId,
        bytes32 contextHash,
        Cursor calldata cursor,
        uint32 child,
        bytes32 digest,
        bytes32[] calldata siblings
    ) external;
    /// @notice The same with the whole game. Where the child is a whole node output (the trace tree's leaf), the node's
    /// encoding and program proof come along; otherwise they are empty. A child beyond the last leaf that is not
    /// padding ends the game; one that is padding reverts with NoDifference.
    /// @param node encoding of the node (2.3)
    /// @param nodeProof its way up to the program's root, bottom-up
    function pick(
        uint256 gameId,
        Game calldata game,
        uint32 child,
        bytes32 digest,
        bytes32[] calldata siblings,
        bytes calldata node,
        bytes32[] calldata nodeProof
    ) external;
    /// @notice Challenger, where it would pick: `children`, as the defender opened them, do not fold to the tree node in
    /// dispute. Ends the game; reverts with NoDifference when they do.
    function proveChildren(uint256 gameId, Game calldata game, bytes32[] calldata children) external;
    /// @notice Challenger, in PICK_NODE: nothing is wrong in the trace, but the claimed output state is not its outputs.
    /// The defender must then open outRoot's tree (SPLIT_OUTPUT / PICK_OUTPUT), whose leaves nobody else need know.
    function openOutput(uint256 gameId, Game calldata game) external;
    /// @notice Challenger, in PICK_NODE or PICK_OUTPUT: slot `slot` of the claimed output state is not the trace's output
    /// for it. Ends the game; reverts with NoDifference when it is.
    /// @param slot of the state, from 0
    /// @param ref node whose output the program says that the slot takes
    /// @param refProof of `ref` in the program's tree
    /// @param stateLeaf tensor root that outRoot holds for the slot, with its proof
    /// @param traceLeaf tensor root that traceRoot holds for the node, with its proof
    function proveOutput(
        uint256 gameId,
        Game calldata game,
        uint32 slot,
        uint32 ref,
        bytes32[] calldata refProof,
        bytes32 stateLeaf,
        bytes32[] calldata stateProof,
        bytes32 traceLeaf,
        bytes32[] calldata traceProof
    ) external;
    /// @notice Defender: the bytes of the disputed leaf.
    /// @param paramsHash keccak256(abi.encode(game.params))
    /// @param data at most 2,048 bytes, as many as the tensor has there
    function revealLeaf(
        uint256 gameId,
        bytes32 paramsHash,
        Context calldata context,
        Cursor calldata cursor,
        bytes calldata data
    ) external;
    /// @notice Challenger: element `element` of the disputed node's output, which lies in the revealed leaf, is not
    /// what the node's definition gives. Ends the game when it differs; reverts with NoDifference when it does not.
    /// @param word the 32 bytes of the leaf that hold the element
    /// @param wordProof its siblings up to the game's `revealed`, bottom-up
    /// @param node encoding of the node in dispute (2.3)
    /// @param element row-major
    /// @param openings of what the element's definition reads, in the order of the node's inputs
    function prove(
        uint256 gameId,
        Game calldata game,
        bytes32 word,
        bytes32[] calldata wordProof,
        bytes calldata node,
        uint64 element,
        Opening[] calldata openings
    ) external;
    /// @notice Anyone, once the clock has run out: whoever had to move loses.
    function timeout(uint256 gameId, Game calldata game) external;
    /// @notice keccak256(contextHash ‖ cursor) of a game that runs; 0: there is none.
    function gameHash(uint256 gameId) external view returns (bytes32);
}

/// @title One-element arithmetic check of an operation family
interface IArbiter {
    /// @dev Bytes of one input tensor from byte `offset` on, already proven.
    struct Span {
        uint32 input;
        uint64 offset;
        bytes data;
    }

    /// @notice The bits of element `element` (row-major) of the node's output, computed from the spans alone.
    /// @param node encoding (2.3)
    /// @param spans parts of the inputs, in the order of the node's inputs
    /// @return bits of the element, at the low end
    function evaluate(bytes calldata node, uint64 element, Span[] calldata spans)
        external
        pure
        returns (uint32 bits);
}
