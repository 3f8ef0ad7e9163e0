// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {Accused, Kind, Terms} from "./Types.sol";

/// @title Jobs: terms, escrow, and where each job stands
/// @dev A function is found by halving and then one by one in the order of selectors: another name, or order of arguments,
/// costs others up to 110 gas.
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
        uint64 dueSince; // roundStart, or later for what is in dispute: tasks are due taskTime after it
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
    /// whether the round goes on without those that were not accepted: it was closed, or can be.
    function overtaken(bytes32 jobId, Kind kind, uint32 round, uint32 rewinds, bool pending)
        external
        view
        returns (bool);
    /// @notice Whether a claim that fell, and the one that is settled at its place, start from the same claims: committed after
    /// so many rewinds each.
    function beginAlike(bytes32 jobId, Kind kind, uint32 round, uint32 fallen, uint32 settled)
        external
        view
        returns (bool);
    /// @notice Whether the present round wants tasks now: it has begun, the job is not closed, the pipeline not full, and the
    /// outer claim cannot be committed yet. `disputed`: whether nothing is owed to it for as long (docs/protocol.md 4.3.3).
    function running(bytes32 jobId) external view returns (bool, uint32 round, uint64 dueSince, bool disputed);
    /// @notice When the job was posted, in seconds: the price of a shard that nobody has held yet rises from here.
    function postedAt(bytes32 jobId) external view returns (uint64);

    // modules (Tasks)
    function shardTaken(bytes32 jobId) external;
    function taskCommitted(bytes32 jobId, uint32 round, uint256 worth, uint32 maxUnsettled)
        external
        returns (uint32 rewinds, uint64 roundStart);
    /// @notice A game or a demand on a claim of the job begins, if the claim is not `overtaken`.
    function disputeOpened(Kind kind, bytes32 jobId, uint32 round, uint32 rewinds)
        external
        returns (bool overtaken);
    /// @notice One is over that has not convicted the claim.
    function disputeClosed(bytes32 jobId) external;
    /// @notice A slice of the round's outer step; the last one closes the round. `inTurn`: the claimant holds the shard that the outer claim is reserved to.
    function outerCommitted(bytes32 jobId, uint32 round, bool inTurn) external returns (uint32 rewinds);
    function taskAccepted(bytes32 jobId, uint32 round, uint32 rewinds, uint256 worth) external;
    /// @notice A task that is neither accepted nor overtaken ends, if its round goes on without it. False, and nothing happens, if
    /// the round may accept it still.
    function leaveOut(bytes32 jobId, uint32 round, uint32 rewinds, uint256 worth) external returns (bool);
    function claimSettled(bytes32 jobId, Kind kind, uint32 round, uint32 rewinds, uint32 maxUnsettled)
        external;
    /// @notice Go back to the convicted claim's round, unless that round was fixed without the claim. `worth`: its price and
    /// the most fees for it. `wasted`: what the claims that this makes stale are worth, which is set aside for them from what
    /// the caller has just seized of stakes. `inGame`: a game or a demand is over by it.
    function rewind(Accused calldata accused, uint256 worth, bool wasAccepted, bool inGame)
        external
        returns (uint256 wasted);
    /// @notice Pay an overtaken claim its price, and its valid votes their fee; nothing if its round was closed without it.
    /// `payees`: the claimant, then the valid voters; if there are none, what was set aside for them is burnt. Not `found` when the search for its rewind needs another call.
    function compensate(
        bytes32 claimId,
        Accused calldata claim,
        bool pending,
        address[] calldata payees,
        uint256 fee,
        uint256 worth
    ) external returns (bool found, uint256 paid);
}
