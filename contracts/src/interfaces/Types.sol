// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

/// @notice The words that every contract shares. Field meanings: docs/protocol.md, sections 3 to 6.

/// @dev What an account may stake for.
enum Role {
    SOLVER,
    VERIFIER
}

/// @dev A claim is either one shard's inner loops of a round, or a slice of the round's outer (aggregation) loops.
enum Kind {
    TASK,
    OUTER
}

/// @dev Where the input slots that a link covers come from (docs/protocol.md 4.4).
enum Origin {
    OWN, // the same slot of the reader's own latest output
    OUT, // a slot of another claim's output
    GENESIS, // the same slot of the reader's genesis state
    PRESENT // whether a shard has a task in that round
}

/// @dev The life of a claim. It only ever moves forward.
enum Phase {
    NONE,
    COMMITTED, // waiting for its seed block
    SEEDED, // verifiers drawn, votes coming in
    ACCEPTED, // the pipeline goes on; the challenge window runs
    SETTLED, // paid
    CONVICTED, // fell to a challenge; its votes may still fall until `freeSeats`
    VOID // overtaken by a rewind; not at fault
}

/// @dev A program, and how a claim runs it: so many steps, to whose state it commits every segmentSteps. The loops of a claim
/// run one after the other over one state. Tasks of shards from slowFrom on divide steps and segmentSteps by slowBy.
struct Loop {
    bytes32 root; // of the program
    uint32 nodes; // of the program: leaves of a trace tree
    uint32 steps;
    uint32 segmentSteps; // divides steps
    uint32 samples; // segments of it that each drawn verifier replays; 0 in an outer claim, of which nobody is drawn
    uint32 slowFrom;
    uint32 slowBy; // divides segmentSteps; 1 in an outer claim
}

/// @dev Where count * times input slots come from. Slot i of them, with j = i mod count and k = i div count, is
/// - OUT: slot first + j + p * stride of the output of the source's claim of round - lag: of the task of shard
///   (own + shift + k) mod shards, or of the outer claim of slice (own + shift + k) mod slices, where own is the reader's number
///   if it is of the source's kind, and else 0; where there is no such task, what slot otherwise + j would be as OWN, or, if
///   otherwise is NO_SLOT, the reader's genesis slot. p, the part that the reader takes, is (its number div `div`) mod `mod`:
///   readers of consecutive numbers take consecutive parts (div 1), or so many the same one;
/// - PRESENT: whether that task stands, one byte.
/// Where round < lag it is the reader's genesis slot.
struct Link {
    Origin origin;
    Kind source;
    uint8 lag;
    uint16 count;
    uint16 times;
    uint16 first;
    uint16 shift;
    uint16 otherwise;
    uint16 div; // readers in a row that take the same part
    uint16 mod; // parts; 1: every reader takes the same slots
    uint16 stride; // slots from one part to the next, which begins where the one before is over, or later
}

/// @dev A link's `otherwise` where what is absent is replaced by the genesis slot.
uint16 constant NO_SLOT = type(uint16).max;

/// @dev A validated instruction list, by its root and the counts that fix the shape of every tree derived from it.
struct ProgramRef {
    bytes32 root;
    uint32 nodes; // leaves of a trace tree
    uint32 slots; // leaves of a state tree
    uint32 params; // leading slots that are model parameters
}

/// @dev Every consensus parameter of a job. Its hash is the job's identity; nothing here has a default on chain.
struct Terms {
    address client;
    bytes32 datasetRoot;
    bytes32 genesisRoot; // inner state root from which every shard starts round 0
    bytes32 outerGenesisRoot; // tree over the slices' outer state roots before round 0
    bytes32 manifest; // sha2-256 digest of the raw block holding the job manifest
    bytes32 seed; // data order and counter-based randomness
    bytes32 classId; // class of conditions, to which the drawn have subscribed; the id of the Conditions that these terms keep
    uint32 records;
    uint32 recordSize; // bytes
    uint32 slots; // of a task's state, which all of its loops share
    uint32 outerSlots; // of an outer claim's
    uint32 params; // leading slots of a task's state that are model parameters; of an outer claim's, params / slices
    uint32 shards;
    uint32 minShards; // accepted tasks with which a round may be closed once its stragglers' time is over
    uint32 slices; // outer claims of a round, each of its own part of the parameters; they close it together
    uint32 rounds;
    uint32 segments; // of a task: all of its loops'
    uint32 outerSegments; // of an outer claim
    uint32 samples; // segments replayed by each drawn verifier: all loops'
    uint32 verifiers; // seats of each task's draw
    uint32 seedDelay; // blocks between commit and the block whose RANDAO value gives the seed
    uint32 maxUnsettled; // rounds the pipeline may run ahead of settlement
    uint64 taskTime; // seconds from the start of a round to its commit deadline
    uint64 stragglerTime; // seconds after taskTime for a round's tasks to be accepted, if minShards of them are
    uint64 outerTime; // seconds for which a round's outer claim is reserved to one shard's holder
    uint64 voteTime; // seconds to vote after the seed
    uint64 challengeWindow; // seconds after acceptance; twice as many for a task that is not attested; also after a conviction, for its votes
    uint64 moveTime; // seconds for each move of a game
    uint64 pricePeriod; // seconds over which an open shard's price rises from floor to cap
    uint64 nonce; // the client's, so that equal jobs differ
    uint64 stateBytes; // of the larger program's state; this and the next two are the client's word, which nodes check
    uint64 stepBytes; // most memory that a step takes
    uint64 stepOperations; // most arithmetic operations of a step
    uint128 priceFloor; // per task
    uint128 priceCap;
    uint128 verifierFee; // per vote that was right
    uint128 outerFee; // per outer claim
    uint128 solverStake; // locked per claim
    uint128 verifierStake; // locked per seat, from the draw on
    uint128 challengeBond;
    uint128 missPenalty; // for a task that is missed, and for votes that are missing or unfounded; locked per shard held
    Loop[] loops; // of a task
    Loop[] outerLoops; // of an outer claim
    Link[] links; // of a task's input slots, in order
    Link[] outerLinks; // of an outer claim's
}

/// @dev What a drawn verifier does and risks. A job that names a class of conditions has its counts, times and amounts
/// exactly, pays at least its fee, and is no larger than it allows. Registered once, by anyone; id = keccak256(abi.encode(it)).
struct Conditions {
    uint32 verifiers;
    uint32 samples;
    uint32 seedDelay;
    uint64 voteTime;
    uint64 challengeWindow;
    uint64 moveTime;
    uint128 verifierStake;
    uint128 missPenalty;
    uint128 challengeBond;
    uint128 verifierFee; // at least
    uint128 solverStake; // at least; and at least the stakes of a task's seats together
    // at most
    uint32 nodes; // of either program
    uint32 segments;
    uint32 segmentSteps;
    uint64 dataBytes; // records * recordSize
    uint64 stateBytes;
    uint64 stepBytes;
    uint64 stepOperations;
}

/// @dev What every class and every job of a market keeps to, whoever writes it; fixed at deployment.
struct Bounds {
    uint64 leastVote; // seconds
    uint64 mostVote;
    uint64 leastMove;
    uint64 mostMove;
    uint64 leastWindow;
    uint64 mostWindow;
    uint32 leastDelay; // blocks
    uint32 mostDelay;
    uint64 leastTime; // seconds; of taskTime, stragglerTime and outerTime
    uint64 mostTime; // of these and of pricePeriod
    uint128 leastStake; // of a verifier's seat
    uint128 mostStake;
    uint128 leastBond;
    uint32 clockLag; // blocks; the Clock's LAG
    uint32 blockTime; // seconds between two blocks, at most, as terms reckon with
}

/// @dev "Program P, from input root, for n steps, gives output root", as its claimant committed it.
/// Its id is keccak256(abi.encode(claim)).
struct Claim {
    bytes32 jobId;
    Kind kind;
    uint32 round;
    uint32 shard; // of an outer claim its slice
    uint32 attempt; // how often this place in the job has been claimed before
    address claimant;
    bytes32 inputRoot;
    bytes32 outputRoot;
    bytes32 segmentsRoot; // tree over the state roots at segment ends; leaf 0 is inputRoot, the last is outputRoot
    bytes32 manifest; // digest of the raw block that names the published states
    uint128 price;
    uint64 committedAt;
    uint32 rewinds; // rewinds of the job before this commit
}

/// @dev What the chain keeps about a claim beside its hash.
struct ClaimStatus {
    Phase phase;
    uint64 seedBlock;
    uint64 since; // seconds: when the present phase, or the present call for votes, began
    uint32 calls; // how often verifiers were called to empty seats
    uint32 openGames;
    uint32 shown; // votes that were cast, but for those that have fallen since
    uint32 valid;
    bytes32 seed;
}

/// @dev One drawn verifier's vote on a claim.
struct Vote {
    address verifier;
    bool shown;
    bool valid;
    bool gone; // the seat is over and holds no stake: abstained, fined, fallen to a game or a proof, or paid and freed
    bytes32 tracesRoot; // of a valid vote: tree over the keyed trace roots of the last step of each sampled segment
}

/// @dev The part of a claim that its conviction needs; kept on chain once for each challenged claim.
struct Accused {
    bytes32 jobId;
    address claimant;
    Kind kind;
    uint32 round;
    uint32 shard;
    uint128 price;
    uint32 rewinds;
}

/// @dev What a challenger has announced and then shown by opening a game: where it says that the claim first went wrong, and
/// its own root there: of the state at the end of `segment`, or of the input state (INPUT).
struct Found {
    address finder;
    uint32 segment;
    uint64 announced; // block
    uint64 shown; // block
    bytes32 root;
    bool won; // its game or proof; false when it is shown
}

/// @dev Stands for the segment where it is the claim's input that is disputed.
uint32 constant INPUT = type(uint32).max;
