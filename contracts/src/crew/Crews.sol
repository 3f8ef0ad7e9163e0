// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {IClock} from "../interfaces/IClock.sol";
import {Context, Cursor, Game, ICourt, Params} from "../interfaces/ICourt.sol";
import {ICrew, ICrews, Invitation, Member, Said, Transcript} from "../interfaces/ICrews.sol";
import {ITasks} from "../interfaces/ITasks.sol";
import {IVault} from "../interfaces/IVault.sol";
import {Claim, ClaimStatus, Kind, Phase, Terms} from "../interfaces/Types.sol";
import {Merkle} from "../libraries/Merkle.sol";
import {TermsStore} from "../libraries/TermsStore.sol";
import {Deadlines} from "../market/Deadlines.sol";
import {Own} from "./Crew.sol";
import {Invitations} from "./Invitations.sol";
import {IERC20} from "@openzeppelin/contracts/token/ERC20/IERC20.sol";
import {SafeERC20} from "@openzeppelin/contracts/token/ERC20/utils/SafeERC20.sol";
import {ECDSA} from "@openzeppelin/contracts/utils/cryptography/ECDSA.sol";
import {EIP712} from "@openzeppelin/contracts/utils/cryptography/EIP712.sol";
import {SafeCast} from "@openzeppelin/contracts/utils/math/SafeCast.sol";
import {LibClone} from "solady/utils/LibClone.sol";

/// @notice See ICrews. Nothing of the market knows this contract: a crew is an account like any other to it.
contract Crews is ICrews, EIP712, Deadlines {
    using Invitations for Invitation;
    using SafeCast for uint256;
    using SafeERC20 for IERC20;

    /// @dev One slot.
    struct Book {
        uint112 charged;
        uint112 won; // bonds
        uint32 games; // open ones
    }

    uint256 private constant MAX_MEMBERS = 8;
    uint256 private constant WHOLE = 10_000;
    /// @dev Of a claim's bits: a member pays for it. The eight below are those of the accused.
    uint256 private constant PAID = 0x100;
    bytes32 private constant TRANSCRIPT = keccak256(
        "Transcript(address crew,uint8 member,uint32 round,uint32 attempt,uint64 first,uint32 steps,bytes32 root)"
    );

    IERC20 private immutable TOKEN;
    IVault private immutable VAULT;
    address private immutable JOBS;
    ITasks private immutable TASKS;
    /// @dev Of this contract's own: its games are about members' steps.
    ICourt private immutable COURT;
    /// @dev What every crew is a clone of.
    address private immutable IMPLEMENTATION;

    mapping(address crew => mapping(uint256 member => Book)) private books;
    mapping(bytes32 claimId => uint256) private claims;

    constructor(
        IERC20 token,
        IVault vault,
        address jobs,
        ITasks tasks,
        ICourt court,
        address implementation,
        IClock clock
    ) EIP712("Assay Crews", "1") Deadlines(clock) {
        TOKEN = token;
        VAULT = vault;
        JOBS = jobs;
        TASKS = tasks;
        COURT = court;
        IMPLEMENTATION = implementation;
    }

    function form(Invitation calldata invitation, bytes[] calldata consents) external returns (address crew) {
        if (block.timestamp > invitation.expiry) revert Expired(invitation.expiry);
        _requireLeader(invitation);
        uint256 count = invitation.members.length;
        if (count < 2 || count > MAX_MEMBERS || consents.length != count - 1) revert WrongCount(count);
        bytes32 id = invitation.id();
        bytes32 digest = _hashTypedDataV4(id);
        uint256 shares;
        for (uint256 i; i < count; ++i) {
            address account = invitation.members[i].account;
            shares += invitation.members[i].share;
            if (i > 0 && !_signed(account, digest, consents[i - 1])) revert WrongConsent(account);
            TOKEN.safeTransferFrom(account, address(this), invitation.stake);
        }
        if (shares != WHOLE) revert WrongShares(shares);
        // The same invitation gives the same address, so a consent is used once.
        crew = LibClone.cloneDeterministic(IMPLEMENTATION, _args(invitation), id);
        emit Formed(crew, msg.sender, invitation);
        // Once for all that is ever deposited. When this is deployed, the market's token may not be there yet.
        if (TOKEN.allowance(address(this), address(VAULT)) == 0) {
            TOKEN.forceApprove(address(VAULT), type(uint256).max);
        }
        VAULT.deposit(crew, count * invitation.stake);
        ICrew(crew).begin(invitation.leastPrice);
    }

    function accuse(
        Invitation calldata invitation,
        Claim calldata claim,
        Transcript calldata transcript,
        bytes calldata signature,
        Said calldata said
    ) external returns (uint256 gameId) {
        _requireLeader(invitation);
        bytes32 claimId = keccak256(abi.encode(claim));
        Terms memory t = TermsStore.load(JOBS, claim.jobId);
        _requireLoss(crewOf(invitation), claimId, claim, transcript, t.challengeWindow);
        uint256 bit = uint256(1) << transcript.member;
        if (claims[claimId] & bit != 0) revert AlreadyAccused(claimId, transcript.member);
        claims[claimId] |= bit;
        ++books[transcript.crew][transcript.member].games;
        Game memory game = _game(invitation.members[transcript.member], transcript, signature, said, t);
        game.params.claimId = claimId;
        game.params.accused.jobId = claim.jobId;
        game.params.shard = claim.shard;
        gameId = COURT.open(game);
        emit Accused(gameId, transcript.crew, transcript.member, game.context.step);
        // To the crew, which pays it out with the stakes: no token can keep a game from ending. Of 96 bits, as stakes are, so that
        // no book overflows in `resolve`.
        TOKEN.safeTransferFrom(msg.sender, transcript.crew, uint256(t.challengeBond).toUint96());
    }

    function resolve(uint256 gameId, Game calldata game, bool challengerWon) external {
        if (msg.sender != address(COURT)) revert NotCourt(msg.sender);
        (address crew, uint256 member) = (game.params.accused.claimant, game.params.segment);
        Terms memory t = TermsStore.load(JOBS, game.params.accused.jobId);
        Book memory book = books[crew][member];
        --book.games;
        uint256 amount;
        if (!challengerWon) {
            book.won += uint256(t.challengeBond).toUint112();
        } else if (claims[game.params.claimId] & PAID == 0) {
            claims[game.params.claimId] |= PAID;
            amount = t.solverStake;
            book.charged += amount.toUint112();
        }
        books[crew][member] = book;
        emit Judged(gameId, crew, member, challengerWon, amount);
    }

    function consentOf(Invitation calldata invitation) external view returns (bytes32) {
        return _hashTypedDataV4(invitation.id());
    }

    function charged(address crew, uint256 member) external view returns (uint256, uint256, uint256) {
        Book storage book = books[crew][member];
        return (book.charged, book.won, book.games);
    }

    function accused(bytes32 claimId, uint256 member) external view returns (bool) {
        return member < MAX_MEMBERS && claims[claimId] >> member & 1 == 1;
    }

    function crewOf(Invitation calldata invitation) public view returns (address) {
        bytes32 id = invitation.id();
        return LibClone.predictDeterministicAddress(IMPLEMENTATION, _args(invitation), id, address(this));
    }

    function digestOf(Transcript calldata transcript) public view returns (bytes32) {
        return _hashTypedDataV4(keccak256(abi.encode(TRANSCRIPT, transcript)));
    }

    function _requireLeader(Invitation calldata invitation) private view {
        address leader = invitation.members[0].account;
        if (leader != msg.sender) revert NotLeader(leader);
    }

    /// @dev The transcript is of a task that the crew has lost, not long ago.
    function _requireLoss(
        address crew,
        bytes32 claimId,
        Claim calldata claim,
        Transcript calldata transcript,
        uint64 window
    ) private view {
        ClaimStatus memory status = TASKS.status(claimId);
        bool theirs = claim.claimant == crew && transcript.crew == crew && claim.kind == Kind.TASK;
        bool same = claim.round == transcript.round && claim.attempt == transcript.attempt;
        if (!theirs || !same || status.phase != Phase.CONVICTED) revert WrongClaim();
        uint64 end = status.since + window;
        if (_passed(end)) revert WindowClosed(end);
    }

    /// @dev A game between the caller and the member, on what the member has signed of one step of its stage. It carries all that
    /// `resolve` asks.
    function _game(
        Member calldata member,
        Transcript calldata transcript,
        bytes calldata signature,
        Said calldata said,
        Terms memory t
    ) private view returns (Game memory game) {
        (Params memory params, Context memory context, Cursor memory cursor) =
            (game.params, game.context, game.cursor);
        params.found = digestOf(transcript);
        if (!_signed(member.account, params.found, signature)) revert WrongSignature(member.account);
        bytes32 leaf = Merkle.leaf(abi.encodePacked(said.inRoot, said.outRoot));
        if (!Merkle.verify(transcript.root, leaf, said.step, transcript.steps, said.proof)) {
            revert BadProof();
        }
        (params.accused.claimant, params.accused.round) = (transcript.crew, transcript.round);
        params.segment = transcript.member;
        params.program = member.stage;
        params.datasetRoot = t.datasetRoot;
        params.seed = t.seed;
        (params.records, params.recordSize) = (t.records, t.recordSize);
        (context.step, context.steps) = (transcript.first + said.step, 1);
        (context.inRoot, context.outRoot) = (said.inRoot, said.outRoot);
        (cursor.challenger, cursor.defender, cursor.moveTime) = (msg.sender, member.account, t.moveTime);
    }

    /// @dev A key's signature alone: code of an account, which EIP-7702 lets it take later, could deny what was signed.
    function _signed(address account, bytes32 digest, bytes calldata signature) private pure returns (bool) {
        (address signer, ECDSA.RecoverError failed,) = ECDSA.tryRecoverCalldata(digest, signature);
        return failed == ECDSA.RecoverError.NoError && signer == account;
    }

    function _args(Invitation calldata invitation) private pure returns (bytes memory) {
        // At most eight members.
        // forge-lint: disable-next-line(unsafe-typecast)
        uint8 count = uint8(invitation.members.length);
        address leader = invitation.members[0].account;
        return Own(invitation.jobId, leader, invitation.stake, invitation.shard, count).packed();
    }
}
