// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {IBatch} from "./IBatch.sol";
import {Accused, Claim, ClaimStatus, Kind, Phase, Vote} from "./Types.sol";

/// @title Tasks: shards, claims, acceptance, settlement
/// @notice One address: what is called seldom stands in TasksExtension, to which Tasks hands it on.
interface ITasks is IBatch {
    error NotModule(address caller);
    error NoSuchFunction(bytes4 selector);
    error NoSuchJob(bytes32 jobId);
    error ShardTaken(address holder);
    error PriceBelow(uint128 price);
    error NotHolder(address holder);
    error WrongRound(uint32 expected, uint32 given);
    error RewoundSince(uint32 rewinds);
    error WrongClaim(bytes32 claimId);
    error WrongPhase(Phase phase);
    error NotDue(uint64 due);
    error TooLate(uint64 deadline);
    error SeedUnavailable(uint64 seedBlock);
    /// @dev The bytes given are not the header of the seed block.
    error WrongHeader(uint64 seedBlock);
    /// @dev The seed block's header holds no RANDAO value where Ethereum's does, or zero: only its hash can serve.
    error NoRandao(uint64 seedBlock);
    /// @dev Up to this block a seed is recorded with the seed block's header only.
    error HeaderAwaited(uint64 untilBlock);
    error RoundIncomplete(uint32 accepted, uint32 needed);
    error OuterReserved(uint64 until);
    error PipelineFull(uint32 round, uint32 settled);
    error GamesOpen(uint32 count);
    error EarlierUnsettled();
    error PlaceTaken(bytes32 claimId);
    error NotStanding();
    error NoSuchShard(uint32 shard);
    error NoSuchVote(address verifier);
    error NotDrawn(address account);
    error AlreadyVoted(address account);
    error WrongSeed(bytes32 seed);
    /// @dev A valid vote brings one trace root for each sample, an invalid one none.
    error WrongTraces(uint256 samples);
    /// @dev No vote of this claim holds stake.
    error NoSeats(bytes32 claimId);
    error BadSegments();
    error WrongInput(bytes32 expected, bytes32 given);
    error NotStale();
    error WindowClosed(uint64 end);
    error NoReward(bytes32 claimId);
    /// @dev A claim is settled at this place, or may be: it tells whose finding is right.
    error MayBeSettled();

    event ShardAssigned(bytes32 indexed jobId, uint32 indexed shard, address indexed solver, uint128 price);
    event ShardReleased(bytes32 indexed jobId, uint32 indexed shard, address indexed solver, string reason);
    event Committed(
        bytes32 indexed claimId,
        bytes32 indexed jobId,
        address indexed claimant,
        Claim claim,
        bytes32[] roots,
        uint64 seedBlock
    );
    event SeedRecorded(bytes32 indexed claimId, bytes32 seed, address[] drawn);
    event Accepted(bytes32 indexed claimId, uint64 windowEnds);
    event Redrawn(bytes32 indexed claimId, uint64 seedBlock);
    /// @dev More verifiers for the seats that are empty, from the same seed.
    event Called(bytes32 indexed claimId, address[] drawn);
    event VoteAbstained(bytes32 indexed claimId, address indexed verifier);
    event VoteShown(bytes32 indexed claimId, address indexed verifier, bool valid, bytes32[] traces);
    event VoteFined(bytes32 indexed claimId, address indexed verifier, uint256 penalty);
    event VoteConvicted(
        bytes32 indexed claimId,
        address indexed verifier,
        address indexed challenger,
        uint256 slashed,
        uint256 burnt
    );
    /// @dev The votes on a fallen claim that stood: each is paid the fee, and its stake is free.
    event SeatsFreed(bytes32 indexed claimId, address[] verifiers, uint256 fee);
    event Settled(bytes32 indexed claimId, address indexed claimant, uint256 paid);
    event Voided(bytes32 indexed claimId, address indexed claimant, uint256 compensation);
    event Convicted(
        bytes32 indexed claimId,
        address indexed claimant,
        address indexed challenger,
        uint256 slashed,
        uint256 burnt,
        uint256 reward
    );
    /// @dev The reward waits until the games of other findings are over and it is known whose is the truth; `gone`: none will be,
    /// as the job goes on without the claim.
    event RewardKept(bytes32 indexed claimId, address indexed challenger, uint256 amount, bool gone);
    /// @dev Equal parts; what does not divide is the first's.
    event RewardShared(bytes32 indexed claimId, address[] finders, uint256 amount);

    /// @notice Take an open shard at its present price, unless that is below `leastPrice`: it falls to the floor when
    /// somebody takes the shard first and gives it back. Locks missPenalty as long as it is held, and needs solverStake
    /// unlocked beside it.
    function takeShard(bytes32 jobId, uint32 shard, uint128 leastPrice) external;
    /// @notice Holder, or who owns it (Keys): give a shard back; free while nothing is owed for the current round, else
    /// missPenalty is burnt.
    function release(bytes32 jobId, uint32 shard) external;
    /// @notice Anyone: take the shard from a solver that missed its deadline (penalty burnt).
    function expire(bytes32 jobId, uint32 shard) external;
    /// @notice Commit a task or an outer claim. `roots`: the state roots at the ends of its segments, from inputRoot to
    /// outputRoot. claim.segmentsRoot (the root over them), claimant, price, committedAt, rewinds, attempt are filled in by the
    /// contract; the given values are ignored.
    function commit(Claim calldata claim, bytes32[] calldata roots) external returns (bytes32 claimId);
    /// @notice Anyone, after the seed block: record the seed and draw the verifiers. `header`: the RLP of the seed block's
    /// header, whose RANDAO value gives the seed; or empty, once nobody has brought it for 128 blocks: then the block's hash
    /// does. Names a later seed block when the hash has left the history (EIP-2935).
    function recordSeed(Claim calldata claim, bytes calldata header) external;
    /// @notice Anyone, once every seat has voted or time is up: fine the silent and call others to the empty seats, three
    /// times at most; then accept the task, whatever its votes are (docs/protocol.md 4.7).
    function tally(Claim calldata claim) external;
    /// @notice Anyone, after the challenge window: pay claimant and valid votes, fine invalid ones, unlock stakes.
    function settle(Claim calldata claim) external;
    /// @notice Anyone, once no game on it is open: unlock a claim that a rewind has overtaken, and compensate it; or one that
    /// its round goes on without, unpaid. Changes nothing but a cursor, and has to be called again, for each 64 rewinds that
    /// left the claim standing.
    function void(Claim calldata claim) external;
    /// @notice Anyone, once challengeWindow has passed since the claim's conviction and no game on it is open: pay the votes
    /// that stand their fee and unlock their stakes. As `void`, it may have to be called again for a claim that had been
    /// overtaken.
    function freeSeats(Claim calldata claim) external;
    // drawn verifiers
    /// @notice Vote. The claim's id is enough: what a vote asks of the job's terms is kept with the claim from the draw on.
    /// `seed`: the claim's, from which the voter's samples and key follow: a vote that a reorganisation has overtaken is refused.
    /// `traces`: of a valid vote, the keyed trace root of the last step of each sample; of an invalid one none.
    function vote(bytes32 claimId, bytes32 seed, bool valid, bytes32[] calldata traces) external;
    /// @notice Give the seat up without a vote: it costs nothing, and frees the stake at once.
    function abstain(Claim calldata claim) external;

    function status(bytes32 claimId) external view returns (ClaimStatus memory);
    function votes(bytes32 claimId) external view returns (Vote[] memory);
    /// @notice The standing claim of a place in the job (0 if none, or if a rewind overtook it).
    function current(bytes32 jobId, Kind kind, uint32 round, uint32 shard) external view returns (bytes32);
    function holder(bytes32 jobId, uint32 shard)
        external
        view
        returns (address solver, uint128 price, uint64 since);
    function price(bytes32 jobId, uint32 shard) external view returns (uint128);

    // modules (Challenges, Availability)
    /// @notice Count a game on a claim that stands and may still be challenged; reverts if it may not. `shown`: it has a root
    /// of the challenger's own, as `gameClosed` will say again.
    function gameOpened(Claim calldata claim, bool shown) external returns (bytes32 claimId);
    /// @notice A game on a claim is over; convict the claim if the challenger won, even if a rewind has overtaken it since.
    /// `stood` is false if the claim had ended before. `kept`: a reward of it waits for `payReward`.
    function gameClosed(bytes32 claimId, Accused calldata accused, address challenger, bool shown, bool won)
        external
        returns (bool stood, bool kept);
    /// @notice Convict a claim whose input is proven wrong, and the valid votes on it. It stands and may still be challenged; or
    /// a game on it is open, and it may be overtaken if the proof is `certain`: if nothing that it compares with can have
    /// changed since the claim's commit. `kept`: as in `gameClosed`.
    function convict(Claim calldata claim, address challenger, bool certain) external returns (bool kept);
    /// @notice Count a game on a valid vote, on a claim that may be challenged or fell at most challengeWindow ago. `ballot`
    /// names the vote in `voteGameClosed`; `segment` is what its sample replays.
    function voteGameOpened(Claim calldata claim, address verifier, uint32 sample)
        external
        returns (bytes32 claimId, uint64 ballot, bytes32 tracesRoot, bytes32 seed, uint32 segment);
    function voteGameClosed(
        bytes32 claimId,
        Accused calldata accused,
        uint64 ballot,
        address challenger,
        bool won
    ) external returns (bool stood);
    /// @notice Convict a valid vote, on a claim as in `voteGameOpened`.
    function convictVote(Claim calldata claim, address verifier, uint32 sample, address challenger)
        external
        returns (bytes32 tracesRoot, bytes32 seed, uint32 segment);
    /// @notice Pay a reward that was kept to these, in equal parts; `withWinner`: to who convicted the claim, too, if it is not
    /// among them. Not while a game of a finding on the claim is open.
    function payReward(bytes32 claimId, address[] calldata finders, bool withWinner) external;
    /// @notice The same, with the winner, of a claim that its job went on without when it fell, or whose round is settled, or its
    /// job closed, without a settled claim at its place.
    function payUnsettled(Claim calldata claim, address[] calldata finders) external;
    /// @notice A reward that was kept, and who convicted the claim; zeros if there is none.
    function reward(bytes32 claimId) external view returns (uint256 amount, address winner);
}
