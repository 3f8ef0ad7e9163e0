// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {IChallenges} from "../../src/interfaces/IChallenges.sol";
import {IClock} from "../../src/interfaces/IClock.sol";
import {Game, ICourt} from "../../src/interfaces/ICourt.sol";
import {IJobs} from "../../src/interfaces/IJobs.sol";
import {IStakes} from "../../src/interfaces/IStakes.sol";
import {ITasks} from "../../src/interfaces/ITasks.sol";
import {IVault} from "../../src/interfaces/IVault.sol";
import {
    Bounds,
    Claim,
    ClaimStatus,
    Conditions,
    Kind,
    Link,
    Loop,
    NO_SLOT,
    Origin,
    Phase,
    Role,
    Terms,
    Vote
} from "../../src/interfaces/Types.sol";
import {Merkle} from "../../src/libraries/Merkle.sol";
import {Sampling} from "../../src/libraries/Sampling.sol";
import {Availability} from "../../src/market/Availability.sol";
import {Challenges} from "../../src/market/Challenges.sol";
import {Classes} from "../../src/market/Classes.sol";
import {Guardian} from "../../src/market/Guardian.sol";
import {Jobs} from "../../src/market/Jobs.sol";
import {Keys} from "../../src/market/Keys.sol";
import {Stakes} from "../../src/market/Stakes.sol";
import {Tasks} from "../../src/market/Tasks.sol";
import {TasksExtension} from "../../src/market/TasksExtension.sol";
import {Vault} from "../../src/market/Vault.sol";
import {AssayToken} from "../../src/token/AssayToken.sol";
import {PlainClock} from "../PlainClock.sol";
import {Test, Vm} from "../Vm.sol";
import {BlockHeaders} from "./BlockHeaders.sol";
import {IERC20} from "@openzeppelin/contracts/token/ERC20/IERC20.sol";
import {SSTORE2} from "solady/utils/SSTORE2.sol";

/// @dev Stands in for the dispute game: whoever runs the test decides.
contract FakeCourt {
    IChallenges private immutable CHALLENGES;
    uint256 public games;
    mapping(uint256 gameId => Game) private opened;
    mapping(uint256 gameId => bool) private decided;

    constructor(address challenges) {
        CHALLENGES = IChallenges(challenges);
    }

    function open(Game calldata given) external returns (uint256) {
        opened[++games] = given;
        return games;
    }

    /// @dev Like the Court, it decides a game once.
    function decide(uint256 gameId, bool challengerWon) external {
        if (decided[gameId]) revert ICourt.WrongGame(gameId);
        decided[gameId] = true;
        CHALLENGES.resolve(gameId, opened[gameId], challengerWon);
    }

    function game(uint256 gameId) external view returns (Game memory) {
        return opened[gameId];
    }
}

/// @notice A market with two shards, two solvers, five verifiers, and the steps of a job's life as functions.
abstract contract Market is Test {
    uint64 internal constant UNBOND_DELAY = 7 days;
    uint64 internal constant UNBIND_DELAY = 14 days;
    uint64 internal constant WEIGHT_EPOCH = 1; // blocks: stake counts two blocks later
    uint32 internal constant SHARDS = 2;
    uint32 internal constant PARAMS = 2;
    uint32 internal constant SLOTS = 3;
    uint32 internal constant SEGMENTS = 4;
    /// @dev What whoever disputes a claim has found itself, where a test says nothing else.
    bytes32 internal constant TRUTH = keccak256("the state as it should be");
    uint256 internal constant SUPPLY = 1e9 ether;

    AssayToken internal token;
    Keys internal keys;
    Guardian internal guardian;
    IClock internal clock;
    Classes internal classes;
    Availability internal availability;
    Vault internal vault;
    Stakes internal stakes;
    Jobs internal jobs;
    ITasks internal tasks;
    Challenges internal challenges;
    FakeCourt internal court;

    address internal pauser = makeAddr("pauser");
    address internal client = makeAddr("client");
    address internal whistle = makeAddr("whistleblower");
    address internal stranger = makeAddr("stranger");
    address[2] internal solvers;
    address[5] internal verifiers;
    bytes32 internal jobId;
    bytes32[] internal posted;
    uint256 private salts;

    function deployMarket() internal {
        token = AssayToken(deployed("AssayToken", abi.encode(address(this), SUPPLY)));
        clock = newClock();
        uint256 nonce = vm.getNonce(address(this)) + 3; // after Keys, Guardian and Classes
        address vault_ = vm.computeCreateAddress(address(this), nonce);
        address stakes_ = vm.computeCreateAddress(address(this), nonce + 1);
        address jobs_ = vm.computeCreateAddress(address(this), nonce + 2);
        address tasks_ = vm.computeCreateAddress(address(this), nonce + 3);
        address challenges_ = vm.computeCreateAddress(address(this), nonce + 4);
        address court_ = vm.computeCreateAddress(address(this), nonce + 5);
        keys = Keys(deployed("Keys", abi.encode(UNBIND_DELAY)));
        guardian = Guardian(deployed("Guardian", abi.encode(pauser)));
        classes = Classes(deployed("Classes", abi.encode(someBounds())));
        address availability_ = vm.computeCreateAddress(address(this), nonce + 6);
        bytes memory given = abi.encode(token, stakes_, jobs_, tasks_, challenges_, availability_, keys);
        vault = Vault(deployed("Vault", given));
        given = abi.encode(vault_, tasks_, keys, guardian, UNBOND_DELAY, WEIGHT_EPOCH);
        stakes = Stakes(deployed("Stakes", given));
        jobs = Jobs(deployed("Jobs", abi.encode(vault_, tasks_, guardian, classes)));
        address extension = vm.computeCreateAddress(address(this), nonce + 7);
        tasks = ITasks(deployed("Tasks", abi.encode(vault_, stakes_, jobs_, extension, clock)));
        challenges = Challenges(deployed("Challenges", abi.encode(vault_, jobs_, tasks_, court_)));
        court = FakeCourt(newCourt(challenges_));
        availability = Availability(deployed("Availability", abi.encode(vault_, jobs_, tasks_, clock)));
        given = abi.encode(vault_, stakes_, jobs_, challenges_, availability_, clock);
        deployed("TasksExtension", given);
    }

    function newClock() internal virtual returns (IClock) {
        return new PlainClock();
    }

    /// @dev The one contract that `deployMarket` creates here.
    function newCourt(address challenges_) internal virtual returns (address) {
        return address(new FakeCourt(challenges_));
    }

    function someBounds() internal view virtual returns (Bounds memory b) {
        (b.leastVote, b.mostVote, b.leastMove, b.mostMove) = (5, 10 hours, 5, 12 hours);
        (b.leastWindow, b.mostWindow) = (10, 7 days);
        (b.leastDelay, b.mostDelay) = (1, 1024);
        (b.leastTime, b.mostTime) = (1, 30 days);
        (b.leastStake, b.mostStake, b.leastBond) = (1 ether, 1e5 ether, 1);
        b.blockTime = 1; // a PlainClock has no lag
    }

    /// @dev The class of conditions that fits these terms, with room for work of any size.
    function conditionsOf(Terms memory t) internal pure returns (Conditions memory c) {
        (c.verifiers, c.samples, c.seedDelay) = (t.verifiers, t.samples, t.seedDelay);
        (c.voteTime, c.challengeWindow, c.moveTime) = (t.voteTime, t.challengeWindow, t.moveTime);
        (c.verifierStake, c.missPenalty) = (t.verifierStake, t.missPenalty);
        (c.challengeBond, c.verifierFee) = (t.challengeBond, 0);
        c.solverStake = t.verifiers * t.verifierStake;
        (c.nodes, c.segments, c.segmentSteps) = (65_536, 256, 64);
        (c.dataBytes, c.stateBytes) = (type(uint64).max, type(uint64).max);
        (c.stepBytes, c.stepOperations) = (type(uint64).max, type(uint64).max);
    }

    /// @dev Every verifier agrees to the class of these terms, and is drawn for it from now on.
    function agree(Terms memory t) internal {
        t.classId = classes.register(conditionsOf(t));
        bool changed;
        for (uint256 i; i < verifiers.length; ++i) {
            if (stakes.classOf(verifiers[i]) == t.classId) continue;
            vm.prank(verifiers[i]);
            stakes.subscribe(t.classId);
            changed = true;
        }
        if (changed) vm.roll(vm.getBlockNumber() + 2 * WEIGHT_EPOCH);
    }

    function setUpMarket() internal {
        vm.warp(1_700_000_000);
        vm.roll(1000);
        deployMarket();
        token.approve(address(vault), type(uint256).max);
        fund(client, 1e6 ether);
        fund(whistle, 1e6 ether);
        for (uint256 i; i < solvers.length; ++i) {
            solvers[i] = makeAddr(string.concat("solver", vm.toString(i)));
            fund(solvers[i], 1e5 ether);
            stakeAs(solvers[i], Role.SOLVER, 1000 ether);
        }
        for (uint256 i; i < verifiers.length; ++i) {
            verifiers[i] = makeAddr(string.concat("verifier", vm.toString(i)));
            fund(verifiers[i], 1e5 ether);
            stakeAs(verifiers[i], Role.VERIFIER, (i + 1) * 200 ether);
        }
        agree(aTerms());
    }

    function fund(address account, uint256 amount) internal {
        vault.deposit(account, amount);
    }

    function stakeAs(address account, Role role, uint256 amount) internal {
        vm.prank(account);
        stakes.stake(role, amount);
    }

    function aTerms() internal view returns (Terms memory t) {
        t.client = client;
        shape(t, SLOTS, PARAMS, SHARDS);
        (t.outerLoops, t.outerSegments) = (oneLoop(keccak256("outer"), 20, 1, 1, 0), 1);
        (t.loops, t.segments, t.samples) = (oneLoop(keccak256("inner"), 20, 8, 2, 2), 4, 2);
        t.datasetRoot = keccak256("dataset");
        t.genesisRoot = Merkle.root(stateSlots("genesis", SLOTS));
        t.outerGenesisRoot = Merkle.root(stateSlots("outer genesis", (2 + SHARDS) * PARAMS));
        t.manifest = keccak256("manifest");
        t.seed = keccak256("seed");
        (t.records, t.recordSize) = (100, 64);
        (t.shards, t.minShards, t.rounds) = (SHARDS, SHARDS, 3);
        t.verifiers = 3;
        (t.seedDelay, t.maxUnsettled) = (2, 2);
        (t.taskTime, t.stragglerTime, t.outerTime) = (1000, 300, 100);
        t.voteTime = 74;
        (t.challengeWindow, t.moveTime, t.pricePeriod) = (500, 60, 600);
        (t.priceFloor, t.priceCap) = (10 ether, 10 ether);
        (t.verifierFee, t.outerFee) = (1 ether, 5 ether);
        (t.solverStake, t.verifierStake) = (100 ether, 30 ether);
        (t.challengeBond, t.missPenalty) = (30 ether, 7 ether);
        t.classId = keccak256(abi.encode(conditionsOf(t)));
    }

    function oneLoop(bytes32 root, uint32 nodes, uint32 steps, uint32 segmentSteps, uint32 samples)
        internal
        pure
        returns (Loop[] memory loops)
    {
        loops = new Loop[](1);
        loops[0] = Loop(root, nodes, steps, segmentSteps, samples, 0, 1);
    }

    /// @dev Slots and links of DiLoCo: a task begins with the outer claim's parameters and the rest of its own; an outer claim
    /// with its parameters and momenta, and every shard's parameters, or its own for a shard that is missing.
    function shape(Terms memory t, uint32 slots, uint32 params, uint32 shards) internal pure {
        shapeSliced(t, slots, params, shards, 1);
    }

    /// @dev The same with the outer step in slices, each of an equal run of the parameters.
    function shapeSliced(Terms memory t, uint32 slots, uint32 params, uint32 shards, uint32 slices)
        internal
        pure
    {
        uint16 count = uint16(params / slices);
        (t.slots, t.params, t.outerSlots, t.slices) = (slots, params, (2 + shards) * count, slices);
        uint16 parts = uint16(slices);
        t.links = new Link[](slots > params ? 2 : 1);
        t.links[0] = Link(Origin.OUT, Kind.OUTER, 1, count, parts, 0, 0, NO_SLOT, 1, 1, 0);
        if (slots > params) {
            t.links[1] = Link(Origin.OWN, Kind.TASK, 0, uint16(slots - params), 1, 0, 0, 0, 1, 1, 0);
        }
        t.outerLinks = new Link[](2);
        t.outerLinks[0] = Link(Origin.OWN, Kind.TASK, 0, 2 * count, 1, 0, 0, 0, 1, 1, 0);
        t.outerLinks[1] = Link(Origin.OUT, Kind.TASK, 0, count, uint16(shards), 0, 0, 0, 1, parts, count);
    }

    /// @dev The samples of a claim of one loop.
    function sampleOf(bytes32 seed, address verifier, uint256 ordinal, uint256 segments)
        internal
        view
        returns (uint256)
    {
        return Sampling.segment(seed, verifier, ordinal, oneLoop(0, 1, u32(segments), 1, u32(segments)));
    }

    function postJob(Terms memory t) internal returns (bytes32 id) {
        agree(t);
        uint256 budget = jobs.worstCase(t);
        vm.prank(t.client);
        id = jobs.post(t, budget);
        jobId = id;
        posted.push(id);
    }

    function takeAs(address solver, uint32 shard) internal {
        vm.prank(solver);
        tasks.takeShard(jobId, shard, 0);
    }

    function releaseAs(address solver, uint32 shard) internal {
        vm.prank(solver);
        tasks.release(jobId, shard);
    }

    function abstainAs(address verifier, Claim memory claim) internal {
        vm.prank(verifier);
        tasks.abstain(claim);
    }

    function clientHalts() internal {
        vm.prank(client);
        jobs.halt(jobId);
    }

    function holdShards() internal {
        for (uint32 i; i < SHARDS; ++i) {
            takeAs(solvers[i], i);
        }
    }

    /// @dev Whoever still holds a shard gives it back: what is locked for it is free.
    function releaseShards() internal {
        for (uint32 i; i < SHARDS; ++i) {
            (address solver,,) = tasks.holder(jobId, i);
            if (solver == address(0)) continue;
            releaseAs(solver, i);
        }
    }

    function u64(uint256 small) internal pure returns (uint64) {
        // forge-lint: disable-next-line(unsafe-typecast)
        return uint64(small);
    }

    function u32(uint256 small) internal pure returns (uint32) {
        // forge-lint: disable-next-line(unsafe-typecast)
        return uint32(small);
    }

    function newSalt() internal returns (bytes32) {
        return bytes32(++salts);
    }

    // States and claims

    function stateSlots(string memory name, uint256 n) internal pure returns (bytes32[] memory slots) {
        slots = new bytes32[](n);
        for (uint256 i; i < n; ++i) {
            slots[i] = keccak256(abi.encode(name, i));
        }
    }

    function memberProof(bytes32[] memory digests, uint256 index)
        internal
        view
        returns (bytes32[] memory proof)
    {
        proof = new bytes32[](Merkle.depth(digests.length));
        uint256 n = digests.length;
        bytes32[] memory level = new bytes32[](n);
        for (uint256 i; i < n; ++i) {
            level[i] = digests[i];
        }
        bytes32 z;
        for (uint256 h; h < proof.length; ++h) {
            uint256 sibling = (index >> h) ^ 1;
            proof[h] = sibling < n ? level[sibling] : z;
            for (uint256 i; i < n; i += 2) {
                level[i / 2] = Merkle.node(level[i], i + 1 < n ? level[i + 1] : z);
            }
            n = (n + 1) / 2;
            z = Merkle.node(z, z);
        }
    }

    /// @dev The states at segment ends of a claim, as `draft` makes them.
    function segmentEnds(Claim memory claim) internal pure returns (bytes32[] memory ends) {
        ends = new bytes32[]((claim.kind == Kind.TASK ? SEGMENTS : 1) + 1);
        for (uint256 i; i < ends.length; ++i) {
            ends[i] = keccak256(abi.encode("state", claim.manifest, i));
        }
        ends[0] = claim.inputRoot;
        ends[ends.length - 1] = claim.outputRoot;
    }

    function draft(Kind kind, uint32 round, uint32 shard) internal returns (Claim memory claim) {
        claim.jobId = jobId;
        (claim.kind, claim.round, claim.shard) = (kind, round, shard);
        claim.rewinds = jobs.progress(jobId).rewinds;
        claim.manifest = newSalt();
        string memory name = vm.toString(claim.manifest);
        uint256 slots = kind == Kind.TASK ? SLOTS : (2 + SHARDS) * PARAMS;
        claim.inputRoot = round == 0 && kind == Kind.TASK
            ? Merkle.root(stateSlots("genesis", SLOTS))
            : Merkle.root(stateSlots(string.concat("in", name), slots));
        claim.outputRoot = Merkle.root(stateSlots(string.concat("out", name), slots));
        claim.segmentsRoot = Merkle.root(segmentEnds(claim));
    }

    function submit(address claimant, Claim memory claim) internal returns (Claim memory committed) {
        vm.recordLogs();
        vm.prank(claimant);
        bytes32 id = tasks.commit(claim, segmentEnds(claim));
        Vm.Log[] memory logs = vm.getRecordedLogs();
        for (uint256 i; i < logs.length; ++i) {
            if (logs[i].topics[0] == ITasks.Committed.selector) {
                (committed,,) = abi.decode(logs[i].data, (Claim, bytes32[], uint64));
                assertEq(keccak256(abi.encode(committed)), id, "claim id");
            }
        }
    }

    function refuseCommit(address claimant, Claim memory claim, bytes memory refusal) internal {
        vm.expectRevert(refusal);
        vm.prank(claimant);
        tasks.commit(claim, segmentEnds(claim));
    }

    function commitTask(uint32 round, uint32 shard) internal returns (Claim memory) {
        (address solver,,) = tasks.holder(jobId, shard);
        return submit(solver, draft(Kind.TASK, round, shard));
    }

    /// @dev Whom the round's outer claim is reserved to.
    function ownerOf(uint32 round) internal view returns (address owner) {
        (owner,,) = tasks.holder(jobId, round % SHARDS);
    }

    function commitOuter(uint32 round) internal returns (Claim memory) {
        return submit(ownerOf(round), draft(Kind.OUTER, round, 0));
    }

    function idOf(Claim memory claim) internal pure returns (bytes32) {
        return keccak256(abi.encode(claim));
    }

    function statusOf(Claim memory claim) internal view returns (ClaimStatus memory) {
        return tasks.status(idOf(claim));
    }

    function assertPhase(Claim memory claim, Phase phase) internal view {
        assertEq(uint256(statusOf(claim).phase), uint256(phase), "phase");
    }

    // Votes

    function seedFor(Claim memory claim) internal returns (address[] memory drawn) {
        uint64 seedBlock = statusOf(claim).seedBlock;
        if (vm.getBlockNumber() <= seedBlock) vm.roll(seedBlock + 1); // time never goes back
        tasks.recordSeed(claim, mineHeader(seedBlock, keccak256(abi.encode("randao", seedBlock))));
        return drawnOf(claim);
    }

    /// @dev From now on this block, one of the last 256, has had a header with this RANDAO value.
    function mineHeader(uint256 number, bytes32 randao) internal returns (bytes memory header) {
        header = BlockHeaders.header(number, randao, "");
        vm.setBlockhash(number, keccak256(header));
    }

    function drawnOf(Claim memory claim) internal view returns (address[] memory drawn) {
        Vote[] memory cast = tasks.votes(idOf(claim));
        drawn = new address[](cast.length);
        for (uint256 i; i < cast.length; ++i) {
            drawn[i] = cast[i].verifier;
        }
    }

    function tracesOf(address verifier) internal pure returns (bytes32[] memory roots) {
        return stateSlots(vm.toString(uint256(uint160(verifier))), 2);
    }

    function voteAs(address verifier, Claim memory claim, bool valid) internal {
        bytes32[] memory traces = valid ? tracesOf(verifier) : new bytes32[](0);
        bytes32 seed = statusOf(claim).seed;
        vm.prank(verifier);
        tasks.vote(idOf(claim), seed, valid, traces);
    }

    function accept(Claim memory claim) internal returns (address[] memory drawn) {
        drawn = seedFor(claim);
        for (uint256 i; i < drawn.length; ++i) {
            voteAs(drawn[i], claim, true);
        }
        tasks.tally(claim);
    }

    function acceptedTask(uint32 round, uint32 shard) internal returns (Claim memory claim) {
        claim = commitTask(round, shard);
        accept(claim);
    }

    /// @dev All tasks of a round and its outer claim (last).
    function playRound(uint32 round) internal returns (Claim[] memory claims) {
        claims = new Claim[](SHARDS + 1);
        for (uint32 i; i < SHARDS; ++i) {
            claims[i] = acceptedTask(round, i);
        }
        claims[SHARDS] = commitOuter(round);
    }

    function settleAll(Claim[] memory claims) internal {
        skip(501);
        for (uint256 i; i < claims.length; ++i) {
            tasks.settle(claims[i]);
        }
    }

    // Challenges

    function announceAs(address who, bytes32 claimId, uint32 segment, address verifier)
        internal
        returns (bytes32 salt)
    {
        salt = announceRoot(who, claimId, segment, verifier, verifier == address(0) ? TRUTH : bytes32(0));
    }

    /// @dev What is found about one slot of an input.
    function announceSlot(address who, bytes32 claimId, uint32 slot, bytes32 leaf)
        internal
        returns (bytes32 salt)
    {
        salt = announceRoot(who, claimId, slot, address(0), keccak256(abi.encode(leaf, TRUTH)));
    }

    function announceRoot(address who, bytes32 claimId, uint32 segment, address verifier, bytes32 root)
        internal
        returns (bytes32 salt)
    {
        salt = newSalt();
        vm.prank(who);
        challenges.announce(keccak256(abi.encode(who, claimId, segment, verifier, root, salt)));
        vm.roll(vm.getBlockNumber() + 1);
    }

    function challengeAs(address who, Claim memory claim, uint32 segment) internal returns (uint256) {
        bytes32[] memory ends = segmentEnds(claim);
        bytes32 salt = announceAs(who, idOf(claim), segment, address(0));
        bytes32[] memory fromProof = memberProof(ends, segment);
        bytes32[] memory toProof = memberProof(ends, segment + 1);
        vm.prank(who);
        return
            challenges.open(claim, segment, ends[segment], fromProof, ends[segment + 1], toProof, TRUTH, salt);
    }

    function openVoteAs(address who, Claim memory claim, address verifier, uint32 sample)
        internal
        returns (uint256)
    {
        bytes32[] memory roots = tracesOf(verifier);
        bytes32[] memory ends = segmentEnds(claim);
        uint256 segment = sampleOf(statusOf(claim).seed, verifier, sample, SEGMENTS);
        bytes32[] memory fromProof = memberProof(ends, segment);
        bytes32[] memory traceProof = memberProof(roots, sample);
        bytes32 salt = announceAs(who, idOf(claim), sample, verifier);
        vm.prank(who);
        return challenges.openVote(
            claim, verifier, sample, ends[segment], fromProof, roots[sample], traceProof, salt
        );
    }

    /// @dev The claim with roots of these slots and of what its segments end in.
    function commitSlots(address by, Claim memory claim, bytes32[] memory input, bytes32[] memory output)
        internal
        returns (Claim memory)
    {
        claim.inputRoot = Merkle.root(copied(input));
        claim.outputRoot = Merkle.root(copied(output));
        claim.segmentsRoot = Merkle.root(segmentEnds(claim));
        return submit(by, claim);
    }

    function copied(bytes32[] memory slots) internal pure returns (bytes32[] memory copy) {
        copy = new bytes32[](slots.length);
        for (uint256 i; i < copy.length; ++i) {
            copy[i] = slots[i];
        }
    }

    /// @dev So many verifiers beside the setting's, whose weights count from now on.
    function moreVerifiers(uint256 n) internal {
        bytes32 class = aTerms().classId;
        for (uint256 i; i < n; ++i) {
            address extra = makeAddr(string.concat("extra", vm.toString(i)));
            fund(extra, 300 ether);
            stakeAs(extra, Role.VERIFIER, 100 ether);
            vm.prank(extra);
            stakes.subscribe(class);
        }
        vm.roll(vm.getBlockNumber() + 2 * WEIGHT_EPOCH);
    }

    function convictByGame(Claim memory claim) internal {
        court.decide(challengeAs(whistle, claim, 0), true);
    }

    /// @dev Nothing of the market is warm, as at the beginning of a transaction.
    function chill() internal {
        address[9] memory all = [
            address(tasks),
            address(jobs),
            address(stakes),
            address(vault),
            address(challenges),
            address(court),
            address(keys),
            address(availability),
            SSTORE2.predictDeterministicAddress(jobId, address(jobs))
        ];
        for (uint256 i; i < all.length; ++i) {
            vm.cool(all[i]);
        }
    }

    // Balances

    function free(address account) internal view returns (uint256) {
        return vault.free(account);
    }

    function lockedOf(address account, Role role) internal view returns (uint256) {
        return stakes.locked(account, role);
    }

    function activeOf(address account, Role role) internal view returns (uint256) {
        return stakes.active(account, role);
    }

    /// @dev Free balances of everybody here, and of Tasks.
    function freeSum() internal view returns (uint256 sum) {
        sum = free(client) + free(whistle) + free(stranger) + free(address(tasks));
        for (uint256 i; i < solvers.length; ++i) {
            sum += free(solvers[i]);
        }
        for (uint256 i; i < verifiers.length; ++i) {
            sum += free(verifiers[i]);
        }
    }

    /// @dev Stakes as the vault holds them: STAKE or UNBONDING.
    function stakeSum(IVault.Bucket bucket) internal view returns (uint256) {
        return vault.balance(bucket, 0);
    }

    function bondSum() internal view returns (uint256 sum) {
        for (uint256 game = court.games(); game > 0; --game) {
            sum += vault.balance(IVault.Bucket.BOND, bytes32(game));
        }
        for (uint256 demand = availability.demands(); demand > 0; --demand) {
            sum += vault.balance(IVault.Bucket.BOND, bytes32(demand | 1 << 255));
        }
    }

    function escrowSum() internal view returns (uint256 sum) {
        for (uint256 i; i < posted.length; ++i) {
            sum += vault.balance(IVault.Bucket.ESCROW, posted[i]);
        }
    }

    function compensationSum() internal view returns (uint256 sum) {
        for (uint256 i; i < posted.length; ++i) {
            for (uint32 rewinds = jobs.progress(posted[i]).rewinds; rewinds > 0; --rewinds) {
                sum += vault.balance(IVault.Bucket.COMPENSATION, keccak256(abi.encode(posted[i], rewinds)));
            }
        }
    }

    /// @dev Sum of the vault's entries.
    function entriesSum() internal view returns (uint256) {
        uint256 stake = stakeSum(IVault.Bucket.STAKE) + stakeSum(IVault.Bucket.UNBONDING);
        return freeSum() + stake + bondSum() + escrowSum() + compensationSum();
    }

    function assertSolvent() internal view {
        uint256 held = token.balanceOf(address(vault));
        assertEq(held, entriesSum() + vault.undestroyed(), "vault's tokens = its entries");
    }
}
