// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {Game} from "./ICourt.sol";
import {ProgramRef} from "./Types.sol";

/// @dev One member of a crew. `stage`: the program that it runs, whose state is its own slots, what it receives and what it
/// sends. `share`: of what the crew earns, in ten-thousandths.
struct Member {
    address account;
    uint16 share;
    ProgramRef stage;
}

/// @dev What a member says of a run of its stage's steps: `root` is over leaf(state before ‖ state after) of each.
struct Transcript {
    address crew;
    bytes32 jobId;
    uint32 shard;
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
/// @notice Takes shards, commits and answers as any solver; its first member, the leader, says what. Every member has put in
/// the same stake, and what is locked and lost together never exceeds one member's. What is lost is the leader's loss, but
/// for what `Crews` has charged to another. Whoever calls brings the members; they count by their hash.
interface ICrew {
    error NotCrews();
    error NotLeader(address leader);
    error NotMember(uint256 member);
    error WrongMembers(bytes32 expected);
    error Incomplete(uint256 joined);
    error Complete();
    error AlreadyJoined(uint256 member);
    error NotAllowed(address target, bytes4 selector);
    error BeyondStake(uint256 locked, uint256 lost, uint256 each);
    error StillLocked(uint256 locked);
    error GamesOpen(uint256 count);

    event Joined(uint256 indexed member, address indexed account);
    event Left(uint256 indexed member, address indexed account);
    event Paid(uint256 amount);
    event Charged(uint256 indexed member, uint256 amount);
    event Dissolved(uint256 lost);
    event Refunded(uint256 indexed member, uint256 amount);

    /// @notice Crews, once: who the members are (the first is the leader), and the stake of each.
    function begin(bytes32 members, address leader, uint96 each) external;
    /// @notice Member: put in the stake, which consents to all that was registered. The last one's call stakes it all.
    function join(Member[] calldata members, uint256 member) external;
    /// @notice Member, before the last has joined: take the stake back.
    function quit(Member[] calldata members, uint256 member) external;
    /// @notice Leader: call Tasks or the Court as the crew, or announce its endpoint (Stakes).
    function relay(address target, bytes calldata data) external returns (bytes memory);
    /// @notice Anyone: pay what was earned to the members, by their shares.
    function pay(Member[] calldata members) external;
    /// @notice Member, while nothing is locked: begin to unbond all that is left. Nothing can be locked after that.
    function dissolve(Member[] calldata members, uint256 member) external;
    /// @notice Anyone, once that is due and no accusation is open: give each its stake back, less what it is charged with; the
    /// leader's also less what nobody is.
    function finish(Member[] calldata members) external;
    /// @notice Crews: a member's transcript was proven false. Up to `amount` of what is lost is now its loss.
    function charge(uint256 member, uint256 amount) external;
    /// @notice What has been lost in all, and what of it is charged.
    function losses() external view returns (uint256 lost, uint256 charged);
    function leader() external view returns (address);
    function membersHash() external view returns (bytes32);
}

/// @title Crews: how they are registered, and who of one is to blame
/// @notice A leader commits only to what every member has signed: a transcript of each segment, in which what one says it sent
/// is what the other says it received. So if the crew's claim is wrong, a transcript is, by itself, and its own stage's program
/// says so: a game about one step of it, by the rules of the market's games, in a Court of this contract's own.
interface ICrews {
    error WrongCount(uint256 members);
    error WrongShares(uint256 sum);
    error NotLeader(address leader);
    error WrongMembers(bytes32 expected);
    error WrongSignature(address member);
    error BadProof();
    error NothingLost();
    error NotCourt(address caller);

    event CrewCreated(address indexed crew, address indexed leader, uint96 each, Member[] members);
    event Accused(uint256 indexed gameId, address indexed crew, uint256 indexed member, uint64 step);
    event Judged(uint256 indexed gameId, address indexed crew, uint256 indexed member, bool guilty);

    /// @notice Register 2 to 8 members, whose shares are 10,000 together, and the stake that each puts in.
    function create(Member[] calldata members, uint96 each) external returns (address crew);
    /// @notice The crew's leader, when it has lost more than is charged: a step of a member's transcript is false. Takes
    /// the job's challengeBond, which is the member's if it wins.
    function accuse(
        Member[] calldata members,
        uint256 member,
        Transcript calldata transcript,
        bytes calldata signature,
        Said calldata said
    ) external returns (uint256 gameId);
    /// @notice Called by this contract's Court when a game ends.
    function resolve(uint256 gameId, Game calldata game, bool challengerWon) external;
    /// @notice What a member signs.
    function digestOf(Transcript calldata transcript) external view returns (bytes32);
    /// @notice Accusations of the crew's members that are not decided.
    function openGames(address crew) external view returns (uint256);
}
