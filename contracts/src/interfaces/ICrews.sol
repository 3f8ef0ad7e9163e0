// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {Game} from "./ICourt.sol";
import {Claim, ProgramRef} from "./Types.sol";

/// @dev One member of a crew. `stage`: the program that it runs, whose state is its own slots, what it receives and what it
/// sends. `share`: of what the crew earns, in ten-thousandths.
struct Member {
    address account;
    uint16 share;
    ProgramRef stage;
}

/// @dev All that the members of a crew consent to: one shard of one job. The first member is the leader.
struct Invitation {
    bytes32 jobId;
    uint32 shard;
    uint128 leastPrice; // a task
    uint96 stake; // of each member
    uint64 expiry; // seconds; no crew is formed later
    bytes32 plan; // root of the cut into stages
    Member[] members;
}

/// @dev What a member says of a run of its stage's steps, for one claim of its crew: `root` is over leaf(state before ‖ state
/// after) of each.
struct Transcript {
    address crew;
    uint8 member;
    uint32 round;
    uint32 attempt; // of the claim
    uint64 first; // counter of the first step
    uint32 steps;
    bytes32 root;
}

/// @dev One step of a transcript, by its number in it, with its way up to `root`.
struct Said {
    uint32 step;
    bytes32 inRoot;
    bytes32 outRoot;
    bytes32[] proof;
}

/// @title A crew: an account of the market that several members hold together (docs/protocol.md, section 8)
/// @notice Holds one shard, once. Its first member, the leader, commits and answers as any solver does. What is locked and lost
/// together never exceeds one member's stake. What is lost is the leader's loss, but for what `Crews` has charged to another.
/// Whoever calls brings the invitation, from which the crew's address follows.
interface ICrew {
    error NotCrews();
    error NotLeader(address leader);
    error NotMember(uint256 member);
    error WrongInvitation(address crew);
    error WrongJob(bytes32 expected);
    error BeyondStake(uint256 locked, uint256 lost, uint256 stake);
    error TaskOwed();
    error StillLocked(uint256 locked);
    error GamesOpen(uint256 member);

    event Paid(uint256 amount);
    event Dissolved(uint256 lost);
    event Refunded(uint256 indexed member, uint256 amount);

    /// @notice Crews, once: stake what the members have put in, and take the shard.
    function begin(uint128 leastPrice) external;
    /// @notice Leader: commit a claim of the crew's job; an outer claim only while the crew holds its shard.
    function commit(Claim calldata claim, bytes32[] calldata roots) external returns (bytes32 claimId);
    /// @notice Leader: a move in a game of the market's Court. `data`: the call.
    function move(bytes calldata data) external;
    /// @notice Leader: announce where the crew serves its blocks.
    function setEndpoint(string calldata url) external;
    /// @notice Member: give the shard back, once its task of the present round is committed, or the job is over. The crew takes no
    /// other.
    function release(Invitation calldata invitation, uint256 member) external;
    /// @notice Anyone: pay what was earned to the members, by their shares.
    function pay(Invitation calldata invitation) external;
    /// @notice Member, while nothing is locked: begin to unbond all that is left. Nothing can be locked after that.
    function dissolve(Invitation calldata invitation, uint256 member) external;
    /// @notice Anyone, once that is due and no accusation is open: give each its stake back, less what it is charged with; the
    /// leader's also less what nobody is, and less half of what the others are, which is burnt. The bonds of accusations go to
    /// their winners with it.
    function finish(Invitation calldata invitation) external;
    /// @notice What has been lost in all.
    function lost() external view returns (uint256);
}

/// @title Crews: how they are formed, and who of one is to blame
/// @notice A leader commits only to what every member has signed: a transcript of each segment, in which what one says it sent
/// is what the other says it received. So if the crew's claim is wrong, a transcript is, by itself, and its own stage's program
/// says so: a game about one step of it, by the rules of the market's games, in a Court of this contract's own.
interface ICrews {
    error WrongCount(uint256 members);
    error WrongShares(uint256 sum);
    error Expired(uint64 expiry);
    error NotLeader(address leader);
    error WrongConsent(address member);
    error WrongClaim();
    error WindowClosed(uint64 end);
    error AlreadyAccused(bytes32 claimId, uint256 member);
    error WrongSignature(address member);
    error BadProof();
    error NotCourt(address caller);

    event Formed(address indexed crew, address indexed leader, Invitation invitation);
    event Accused(uint256 indexed gameId, address indexed crew, uint256 indexed member, uint64 step);
    /// @dev `charged`: 0 if the member's step is right, or another pays for the claim.
    event Judged(
        uint256 indexed gameId, address indexed crew, uint256 indexed member, bool guilty, uint256 charged
    );

    /// @notice Leader: form a crew of 2 to 8 members, whose shares are 10,000 together, which takes the shard at once.
    /// `consents`: the other members' signatures, in order. Each member has allowed this contract its stake.
    function form(Invitation calldata invitation, bytes[] calldata consents) external returns (address crew);
    /// @notice The crew's leader, until challengeWindow after the conviction of a task of the crew has passed by the Clock: a step
    /// of a member's transcript of it is false. Once for each claim and member. Takes the job's challengeBond, which the crew's
    /// `finish` pays to the winner.
    function accuse(
        Invitation calldata invitation,
        Claim calldata claim,
        Transcript calldata transcript,
        bytes calldata signature,
        Said calldata said
    ) external returns (uint256 gameId);
    /// @notice Called by this contract's Court when a game ends. Of a claim's guilty members the first pays for it. No token is
    /// called, so that nothing can stop it.
    function resolve(uint256 gameId, Game calldata game, bool challengerWon) external;
    /// @notice Where the crew of an invitation is, or will be.
    function crewOf(Invitation calldata invitation) external view returns (address);
    /// @notice What a member signs to consent.
    function consentOf(Invitation calldata invitation) external view returns (bytes32);
    /// @notice What a member signs of its steps.
    function digestOf(Transcript calldata transcript) external view returns (bytes32);
    /// @notice What a member is charged with in all, the bonds of accusations that it has won, and how many are not decided.
    function charged(address crew, uint256 member)
        external
        view
        returns (uint256 amount, uint256 won, uint256 games);
    /// @notice Whether a member was accused for a claim.
    function accused(bytes32 claimId, uint256 member) external view returns (bool);
}
