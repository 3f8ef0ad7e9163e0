// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.28;

import {Game} from "./ICourt.sol";
import {Accused, Claim, ClaimStatus, Finding, Kind, Phase, Role, Terms, Vote} from "./Types.sol";

/// @title Token ledger
/// @notice The only contract that holds tokens. Modules move ledger entries; tokens leave only through `claim`.
interface IVault {
    /// @dev Where an account's (or job's, or game's) tokens stand.
    enum Bucket {
        FREE, // withdrawable; key = account
        STAKE, // active stake of all accounts, one entry (key 0): Stakes knows whose
        UNBONDING, // the same of what is on its way out
        ESCROW, // a job's budget; key = job id
        BOND, // a challenge's bond, a demand's, a forced error's deposit; key = game id, demand id with the top bit set, forced error
        COMPENSATION // slash proceeds held for those whose work a rewind wasted; key = job id and rewind
    }

    error NotModule(address caller);
    error InsufficientBalance(Bucket bucket, bytes32 key, uint256 asked, uint256 there);
    error NotOwner(address owner);

    event Deposited(address indexed payer, address indexed account, uint256 amount);
    event Withdrawn(address indexed account, address indexed to, uint256 amount);
    event Transfer(Bucket from, bytes32 indexed fromKey, Bucket to, bytes32 indexed toKey, uint256 amount);
    /// @dev `first` from one entry to the free balance of `to[0]`, `rest` to that of each other.
    event Paid(Bucket from, bytes32 indexed fromKey, address[] to, uint256 first, uint256 rest);
    event Burnt(Bucket from, bytes32 indexed fromKey, uint256 amount);
    event Destroyed(uint256 amount);

    /// @notice Pull `amount` from the caller and credit `account`'s free balance.
    function deposit(address account, uint256 amount) external;
    /// @notice The same with an EIP-2612 permit; goes on if somebody else has already used the permit.
    function depositWithPermit(
        address account,
        uint256 amount,
        uint256 deadline,
        uint8 v,
        bytes32 r,
        bytes32 s
    ) external;
    /// @notice Pay out the caller's free balance; if the caller is an operator, its owner alone may (`withdrawFor`).
    function withdraw(address to, uint256 amount) external;
    /// @notice Pay out an operator's free balance; by its owner.
    function withdrawFor(address account, address to, uint256 amount) external;
    /// @notice Take burnt tokens, which no ledger entry can reach any more, out of the token's supply.
    function destroy() external;
    function move(Bucket from, bytes32 fromKey, Bucket to, bytes32 toKey, uint256 amount) external; // modules
    /// @notice Move `first` from one entry to the free balance of `to[0]`, and `rest` to that of each other.
    function payEach(Bucket from, bytes32 fromKey, address[] calldata to, uint256 first, uint256 rest)
        external; // modules
    /// @notice Take `amount` off the ledger for good. No token is called, so that nothing can stop it; see `destroy`.
    function burn(Bucket from, bytes32 fromKey, uint256 amount) external; // modules
    function balance(Bucket bucket, bytes32 key) external view returns (uint256);
    /// @notice Everything burnt so far, and the part of it that `destroy` has yet to take out of the supply.
    function burnt() external view returns (uint128);
    function undestroyed() external view returns (uint128);
    function free(address account) external view returns (uint256);
}

/// @title Several calls of one contract in one transaction
interface IBatch {
    /// @notice Make the calls in order, each as the caller's own. If one reverts, all do, with its error.
    function multicall(bytes[] calldata calls) external returns (bytes[] memory results);
}

/// @title Stakes: deposits, locks, unbonding, slashing, and the stake-weighted draw
interface IStakes is IBatch {
    error NotModule(address caller);
    error ZeroAmount();
    error InsufficientStake(address account, Role role, uint256 asked, uint256 unlocked);
    error Underlocked(address account, Role role, uint256 asked, uint256 locked);
    error NotDue(uint64 due);
    error NoSuchRequest(uint256 index);
    error NotOwner(address owner);

    event Staked(address indexed account, Role indexed role, uint256 amount);
    event UnbondStarted(
        address indexed account, Role indexed role, uint256 indexed index, uint256 shares, uint64 due
    );
    event UnbondFinished(address indexed account, Role indexed role, uint256 indexed index, uint256 amount);
    event Slashed(address indexed account, Role indexed role, uint256 asked, uint256 taken);
    /// @dev From two epochs later on the account is drawn for this class's jobs, and for no other's. 0: for none.
    event Subscribed(address indexed account, bytes32 indexed class);
    event Endpoint(address indexed account, string url);

    function stake(Role role, uint256 amount) external; // from the caller's free balance
    function startUnbond(Role role, uint256 amount) external returns (uint256 index);
    function finishUnbond(Role role, uint256 index) external returns (uint256 amount);
    /// @notice The same three by the owner of an operator: tokens come from and go to the owner's free balance.
    function stakeFor(address account, Role role, uint256 amount) external;
    function startUnbondFor(address account, Role role, uint256 amount) external returns (uint256 index);
    function finishUnbondFor(address account, Role role, uint256 index) external returns (uint256 amount);
    /// @notice Agree to a class of conditions, and to no other from now on: the verifier stake counts in the draws of its
    /// jobs two epochs later. 0: be drawn for nothing. What the stake is locked for already stays.
    function subscribe(bytes32 class) external;
    /// @notice The same by the owner of an operator.
    function subscribeFor(address account, bytes32 class) external;
    /// @notice Announce where the caller serves its blocks ("http://host:port").
    function setEndpoint(string calldata url) external;
    function lock(address account, Role role, uint256 amount) external; // modules
    function unlock(address account, Role role, uint256 amount) external; // modules
    /// @notice Unlock `amount` for each of the accounts.
    function unlockEach(address[] calldata accounts, Role role, uint256 amount) external; // modules
    /// @notice A settled claim's locks: the first account's as a solver, the others' as verifiers.
    function release(address[] calldata accounts, uint256 solverStake, uint256 verifierStake) external; // modules
    /// @notice Verifiers for empty seats, drawn among the class's subscribers as in `draw`, each with `amount` locked for
    /// it: accounts without so much free stake, and `others`, are passed over, a few at most. Fewer if there are fewer.
    function seat(bytes32 class, bytes32 seed, uint256 count, uint256 amount, address[] calldata others)
        external
        returns (address[] memory seated); // modules
    /// @notice Unlock `held` of each account and take `amount` of it into the free balance of the calling module.
    function fine(address[] calldata accounts, Role role, uint256 held, uint256 amount)
        external
        returns (uint256 taken); // modules
    /// @notice Take min(asked, active - locked + unbonding) into the free balance of the calling module; what is locked
    /// stays behind the claims and votes that it is locked for (a conviction unlocks its own first). Never reverts on shortage.
    function slash(address account, Role role, uint256 asked) external returns (uint256 taken); // modules
    /// @notice What a conviction does to the stakes: free the locks of the claimant and of all voters, then `slash` the
    /// claimant of `asked` (`own` = what there was) and each of the guilty of verifierStake; `taken` = all of it.
    function seize(
        address claimant,
        uint256 solverStake,
        uint256 asked,
        address[] calldata voters,
        address[] calldata guilty,
        uint256 verifierStake
    ) external returns (uint256 own, uint256 taken); // modules
    function active(address account, Role role) external view returns (uint256);
    function locked(address account, Role role) external view returns (uint256);
    function unbonding(address account, Role role) external view returns (uint256);
    function endpoint(address account) external view returns (string memory);
    function request(address account, Role role, uint256 index)
        external
        view
        returns (uint256 amount, uint64 due);
    /// @notice The class that the account has subscribed to; 0: none.
    function classOf(address account) external view returns (bytes32);
    /// @notice What the account counts for in draws of a class in this block: its active verifier stake at the end of the
    /// epoch (of WEIGHT_EPOCH blocks) before the last, if it had subscribed to it by then.
    function drawWeight(bytes32 class, address account) external view returns (uint256);
    /// @notice All that counts in draws of a class in this block.
    function classWeight(bytes32 class) external view returns (uint256);
    /// @notice `count` distinct subscribers drawn with probability proportional to weight; fewer if there are fewer.
    function draw(bytes32 class, bytes32 seed, uint256 count) external view returns (address[] memory);
}

/// @title Jobs: terms, escrow, and where each job stands
interface IJobs {
    error NotModule(address caller);
    error JobExists(bytes32 jobId);
    error NoSuchJob(bytes32 jobId);
    error BudgetTooSmall(uint256 needed, uint256 given);
    error NotClient(address client);
    error NotFinished(bytes32 jobId);
    error JobEnded(bytes32 jobId);

    event JobPosted(bytes32 indexed jobId, address indexed client, uint256 budget, Terms terms);
    event JobFunded(bytes32 indexed jobId, uint256 amount);
    event JobHalted(bytes32 indexed jobId, uint32 round);
    event RoundStarted(bytes32 indexed jobId, uint32 round);
    event Rewound(bytes32 indexed jobId, uint32 indexed rewinds, uint32 round, uint256 compensation);
    event JobClosed(bytes32 indexed jobId, uint256 refunded);
    /// @dev The round was closed without `missing` of its shards.
    event ShardsMissing(bytes32 indexed jobId, uint32 indexed round, uint32 missing);

    struct Progress {
        uint32 round; // the round now worked on; == rounds when the last outer claim is in
        uint32 settledRounds;
        uint32 rewinds; // rewinds so far
        bool halted; // no new rounds
        bool closed;
        uint64 roundStart;
        uint32 finalRound; // the job is over when `round` reaches it: `rounds`, or less once it is halted
    }

    /// @notice Post a job; `budget` comes from the caller's free balance and must cover the worst case (`worstCase`).
    function post(Terms calldata terms, uint256 budget) external returns (bytes32 jobId);
    function topUp(bytes32 jobId, uint256 amount) external;
    /// @notice Client: begin no further round; what is claimed is finished and paid, the rest refunded by `close`.
    function halt(bytes32 jobId) external;
    /// @notice Anyone, once every begun round is settled: refund what is left to the client.
    function close(bytes32 jobId) external;
    function terms(bytes32 jobId) external view returns (Terms memory);
    function progress(bytes32 jobId) external view returns (Progress memory);
    function worstCase(Terms calldata terms) external pure returns (uint256);
    function jobIdOf(Terms calldata terms) external view returns (bytes32);
    /// @notice Whether a rewind has overtaken the claims of this place that were committed in `rewinds`; with `pending`, also
    /// whether the round was closed without those that were not accepted.
    function overtaken(bytes32 jobId, Kind kind, uint32 round, uint32 rewinds, bool pending)
        external
        view
        returns (bool);
    /// @notice Whether the present round wants tasks now: it has begun, the job is not closed, the pipeline not full, and the
    /// outer claim cannot be committed yet.
    function running(bytes32 jobId) external view returns (bool, uint32 round, uint64 roundStart);
    /// @notice When the job was posted, in seconds: the price of a shard that nobody has held yet rises from here.
    function postedAt(bytes32 jobId) external view returns (uint64);

    // modules (Tasks)
    function shardTaken(bytes32 jobId) external;
    function taskCommitted(bytes32 jobId, uint32 round, uint128 price, uint32 maxUnsettled)
        external
        returns (uint32 rewinds, uint64 roundStart);
    /// @notice Close the round. `inTurn`: the claimant holds the shard that the outer claim is reserved to.
    function outerCommitted(bytes32 jobId, uint32 round, bool inTurn) external returns (uint32 rewinds);
    function taskAccepted(bytes32 jobId, uint32 round, uint32 rewinds, uint128 price) external;
    function claimSettled(bytes32 jobId, Kind kind, uint32 round, uint32 rewinds, uint32 maxUnsettled)
        external;
    /// @notice Go back to the convicted claim's round, unless that round was closed without the claim. `compensation` = the
    /// part of `pool` (the unburnt half of the slash, in the caller's free balance) that is set aside for those whose task
    /// claims become stale.
    function rewind(Accused calldata accused, bool wasAccepted, uint256 pool)
        external
        returns (uint256 compensation);
    /// @notice Pay an overtaken claim its share of what its rewind set aside; nothing if its round was closed without it.
    /// Not `found` when the search for that rewind needs another call.
    function compensate(bytes32 claimId, Accused calldata claim, bool pending)
        external
        returns (bool found, uint256 paid);
}

/// @title Tasks: shards, claims, acceptance, settlement
/// @notice One address: what is called seldom stands in TasksExtension, to which Tasks hands it on.
interface ITasks is IBatch {
    error NotModule(address caller);
    error NoSuchJob(bytes32 jobId);
    error ShardTaken(address holder);
    error NotHolder(address holder);
    error WrongRound(uint32 expected, uint32 given);
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
    error WrongReveal();
    error BadSegments();
    error WrongInput(bytes32 expected, bytes32 given);
    error NotStale();
    error WindowClosed(uint64 end);

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
    event VoteRevealed(bytes32 indexed claimId, address indexed verifier, bool valid, bytes32[] traces);
    event VoteFined(bytes32 indexed claimId, address indexed verifier, uint256 penalty);
    event VoteConvicted(
        bytes32 indexed claimId,
        address indexed verifier,
        address indexed challenger,
        uint256 slashed,
        uint256 burnt
    );
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
    /// @dev An early challenger's part of the reward of another's conviction.
    event RewardShared(bytes32 indexed claimId, address indexed challenger, uint256 amount);

    /// @notice Take an open shard at its present price; locks missPenalty as long as it is held, and needs solverStake
    /// unlocked beside it.
    function takeShard(bytes32 jobId, uint32 shard) external;
    /// @notice Give a shard back; free while nothing is owed for the current round, else missPenalty is burnt.
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
    /// @notice Anyone, after the challenge window: pay claimant and verifiers, unlock stakes.
    function settle(Claim calldata claim) external;
    /// @notice Anyone: unlock and compensate a claim that a rewind has overtaken.
    /// Changes nothing but a cursor, and has to be called again, for each 64 rewinds that left the claim standing.
    function void(Claim calldata claim) external;
    // drawn verifiers
    /// @notice Commit a vote. The commitment 1 abstains: it costs nothing, and frees the stake at once.
    function commitVote(Claim calldata claim, bytes32 commitment) external;
    /// @notice Open a vote. `traces`: the leaves below the tracesRoot that was committed to, one for each sample; none, for a
    /// tracesRoot of zero, is enough for an invalid vote.
    function revealVote(Claim calldata claim, bool valid, bytes32[] calldata traces, bytes32 salt) external;

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
    /// @notice Count a game on a claim that stands and may still be challenged; reverts if it may not. `announced`: block in
    /// which the finding was announced; `early` if that was before the block of the first game on this claim.
    function gameOpened(Claim calldata claim, uint256 announced)
        external
        returns (bytes32 claimId, bool early);
    /// @notice The same for a revealed valid vote. `ballot` names it in `voteGameClosed`.
    function voteGameOpened(Claim calldata claim, address verifier)
        external
        returns (bytes32 claimId, uint64 ballot, bytes32 tracesRoot, bytes32 seed);
    /// @notice A game on a claim is over; convict the claim if the challenger won. False if the claim no longer stood:
    /// then nothing happens to it, and an early challenger of a claim that another has convicted gets its share.
    function gameClosed(bytes32 claimId, Accused calldata accused, Finding calldata finding, bool won)
        external
        returns (bool stood);
    function voteGameClosed(
        bytes32 claimId,
        Accused calldata accused,
        uint64 ballot,
        address challenger,
        bool won
    ) external returns (bool stood);
    /// @notice Convict a claim that stands and may still be challenged, or on which a game is open. `finding.early` says
    /// nothing here: no game of it is open.
    function convict(Claim calldata claim, Finding calldata finding) external;
}

/// @title Challenges: bonds, linked to one claim or one vote
interface IChallenges is IBatch {
    error NotCourt(address caller);
    error NotAnnounced(bytes32 commitment);
    error TooSoon(uint64 block_);
    error BadProof();
    error NoDifference();
    error WrongSource(bytes32 claimId);
    error WrongSample(uint32 sample, uint32 samples);

    event Announced(address indexed challenger, bytes32 indexed commitment);
    event Challenged(
        uint256 indexed gameId,
        bytes32 indexed claimId,
        address indexed challenger,
        uint32 segment,
        address verifier
    );
    event Resolved(
        uint256 indexed gameId,
        bytes32 indexed claimId,
        bool challengerWon,
        uint256 bondBurnt,
        uint256 bondPaid
    );
    event BindingConvicted(bytes32 indexed claimId, uint32 slot, address indexed challenger);

    /// @notice keccak256(abi.encode(challenger, claimId, segment, verifier, salt)), at least one block before `open`,
    /// so that a finding cannot be copied from the mempool. `segment` is the sample for `openVote` and the slot for
    /// `proveBinding`, and 2^32 - 1 for `openInput`; `verifier` is zero except for `openVote`. Announcing again changes nothing; use spends it.
    function announce(bytes32 commitment) external;
    /// @notice Dispute segment `segment` of a claim: `from` (leaf `segment`) is accepted, `to` (the next leaf) is not.
    function open(
        Claim calldata claim,
        uint32 segment,
        bytes32 from,
        bytes32[] calldata fromProof,
        bytes32 to,
        bytes32[] calldata toProof,
        bytes32 salt
    ) external returns (uint256 gameId);
    /// @notice Dispute a revealed vote: sample `sample` of the verifier's keyed traces. `traceRoot` is its leaf in tracesRoot.
    function openVote(
        Claim calldata claim,
        address verifier,
        uint32 sample,
        bytes32 from,
        bytes32[] calldata fromProof,
        bytes32 traceRoot,
        bytes32[] calldata traceProof,
        bytes32 salt
    ) external returns (uint256 gameId);
    /// @notice Make the claimant open the tree of its claim's input state, whose leaves nobody else need know, until there is
    /// a slot for `proveBinding`.
    function openInput(Claim calldata claim, bytes32 salt) external returns (uint256 gameId);
    /// @notice One-move conviction: slot `slot` of the claim's input root is not the same slot of the claim (or genesis)
    /// it must come from (docs/protocol.md 4.4). `source` is all zero where the source is a genesis root.
    function proveBinding(
        Claim calldata claim,
        uint32 slot,
        bytes32 leaf,
        bytes32[] calldata proof,
        Claim calldata source,
        bytes32 sourceLeaf,
        bytes32[] calldata sourceProof,
        bytes32 salt
    ) external;
    /// @notice Called by the court when a game ends; `game` as it stood before the move that ended it.
    function resolve(uint256 gameId, Game calldata game, bool challengerWon) external;
    /// @notice Block in which the commitment was announced; 0 if it was not, or is spent.
    function announcedAt(bytes32 commitment) external view returns (uint64);
}
