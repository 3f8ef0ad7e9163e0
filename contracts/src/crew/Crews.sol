// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {Context, Cursor, Game, ICourt, Params} from "../interfaces/ICourt.sol";
import {ICrew, ICrews, Member, Said, Transcript} from "../interfaces/ICrews.sol";
import {IStakes} from "../interfaces/IStakes.sol";
import {IVault} from "../interfaces/IVault.sol";
import {Terms} from "../interfaces/Types.sol";
import {Merkle} from "../libraries/Merkle.sol";
import {TermsStore} from "../libraries/TermsStore.sol";
import {Crew} from "./Crew.sol";
import {IERC20} from "@openzeppelin/contracts/token/ERC20/IERC20.sol";
import {SafeERC20} from "@openzeppelin/contracts/token/ERC20/utils/SafeERC20.sol";
import {ECDSA} from "@openzeppelin/contracts/utils/cryptography/ECDSA.sol";
import {EIP712} from "@openzeppelin/contracts/utils/cryptography/EIP712.sol";
import {LibClone} from "solady/utils/LibClone.sol";

/// @notice See ICrews. Nothing of the market knows this contract: a crew is an account like any other to it.
contract Crews is ICrews, EIP712 {
    using SafeERC20 for IERC20;

    /// @dev An accusation in its game.
    struct Charge {
        address crew;
        uint8 member;
        uint128 bond;
        uint128 amount; // of the crew's loss, at most
    }

    uint256 private constant MAX_MEMBERS = 8;
    uint256 private constant WHOLE = 10_000;
    bytes32 private constant TRANSCRIPT = keccak256(
        "Transcript(address crew,bytes32 jobId,uint32 shard,uint64 first,uint32 steps,bytes32 root)"
    );

    IERC20 private immutable TOKEN;
    address private immutable JOBS;
    /// @dev Of this contract's own: its games are about members' steps.
    ICourt public immutable COURT;
    /// @notice What every crew is a clone of.
    address public immutable IMPLEMENTATION;

    mapping(uint256 gameId => Charge) private charges;
    mapping(address crew => uint256) public openGames;

    constructor(
        IERC20 token,
        IVault vault,
        IStakes stakes,
        address jobs,
        address tasks,
        address marketCourt,
        ICourt court
    ) EIP712("Assay Crews", "1") {
        TOKEN = token;
        JOBS = jobs;
        COURT = court;
        IMPLEMENTATION = address(new Crew(this, token, vault, stakes, tasks, marketCourt));
    }

    function create(Member[] calldata members, uint96 each) external returns (address crew) {
        uint256 count = members.length;
        if (count < 2 || count > MAX_MEMBERS) revert WrongCount(count);
        uint256 sum;
        for (uint256 i; i < count; ++i) {
            sum += members[i].share;
        }
        if (sum != WHOLE) revert WrongShares(sum);
        crew = LibClone.clone(IMPLEMENTATION);
        emit CrewCreated(crew, members[0].account, each, members);
        ICrew(crew).begin(keccak256(abi.encode(members)), members[0].account, each);
    }

    function accuse(
        Member[] calldata members,
        uint256 member,
        Transcript calldata transcript,
        bytes calldata signature,
        Said calldata said
    ) external returns (uint256 gameId) {
        _requireLeader(transcript.crew, members);
        Terms memory t = TermsStore.load(JOBS, transcript.jobId);
        gameId = COURT.open(_game(members[member], transcript, signature, said, t));
        // One of at most eight.
        // forge-lint: disable-next-line(unsafe-typecast)
        charges[gameId] = Charge(transcript.crew, uint8(member), t.challengeBond, t.solverStake);
        ++openGames[transcript.crew];
        emit Accused(gameId, transcript.crew, member, transcript.first + said.step);
        TOKEN.safeTransferFrom(msg.sender, address(this), t.challengeBond);
    }

    function resolve(uint256 gameId, Game calldata game, bool challengerWon) external {
        if (msg.sender != address(COURT)) revert NotCourt(msg.sender);
        Charge memory charge = charges[gameId];
        delete charges[gameId];
        --openGames[charge.crew];
        emit Judged(gameId, charge.crew, charge.member, challengerWon);
        if (challengerWon) ICrew(charge.crew).charge(charge.member, charge.amount);
        TOKEN.safeTransfer(challengerWon ? game.cursor.challenger : game.cursor.defender, charge.bond);
    }

    function digestOf(Transcript calldata t) public view returns (bytes32) {
        return _hashTypedDataV4(
            keccak256(abi.encode(TRANSCRIPT, t.crew, t.jobId, t.shard, t.first, t.steps, t.root))
        );
    }

    /// @dev A contract that is no crew of ours may say what it likes here: only who has signed for it can be accused.
    function _requireLeader(address crew, Member[] calldata members) private view {
        address leader = ICrew(crew).leader();
        if (leader != msg.sender) revert NotLeader(leader);
        bytes32 expected = ICrew(crew).membersHash();
        if (keccak256(abi.encode(members)) != expected) revert WrongMembers(expected);
        (uint256 lost, uint256 charged) = ICrew(crew).losses();
        if (lost == charged) revert NothingLost();
    }

    /// @dev A game between the caller and the member, on what the member has signed of one step of its stage.
    function _game(
        Member calldata member,
        Transcript calldata transcript,
        bytes calldata signature,
        Said calldata said,
        Terms memory t
    ) private view returns (Game memory game) {
        (Params memory params, Context memory context, Cursor memory cursor) =
            (game.params, game.context, game.cursor);
        params.claimId = digestOf(transcript);
        // A key's signature alone: code of an account, which EIP-7702 lets it take later, could deny what was signed.
        (address signer, ECDSA.RecoverError failed,) = ECDSA.tryRecover(params.claimId, signature);
        if (failed != ECDSA.RecoverError.NoError || signer != member.account) {
            revert WrongSignature(member.account);
        }
        bytes32 leaf = Merkle.leaf(abi.encodePacked(said.inRoot, said.outRoot));
        if (!Merkle.verify(transcript.root, leaf, said.step, transcript.steps, said.proof)) {
            revert BadProof();
        }
        (params.accused.jobId, params.accused.claimant) = (transcript.jobId, member.account);
        params.program = member.stage;
        params.datasetRoot = t.datasetRoot;
        params.seed = t.seed;
        (params.records, params.recordSize) = (t.records, t.recordSize);
        params.shard = transcript.shard;
        (context.step, context.steps) = (transcript.first + said.step, 1);
        (context.inRoot, context.outRoot) = (said.inRoot, said.outRoot);
        (cursor.challenger, cursor.defender, cursor.moveTime) = (msg.sender, member.account, t.moveTime);
    }
}
