// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {ITasks} from "../../src/interfaces/ITasks.sol";
import {Claim, ClaimStatus, Phase} from "../../src/interfaces/Types.sol";
import {Headers} from "../../src/libraries/Headers.sol";
import {BlockHeaders} from "./BlockHeaders.sol";
import {Market} from "./Market.sol";
import {BlockHeader} from "@openzeppelin/contracts/utils/BlockHeader.sol";
import {RLP} from "@openzeppelin/contracts/utils/RLP.sol";

/// @notice What a claim's seed is made of, who can bring it, and when (docs/protocol.md 4.5).
contract SeedsTest is Market {
    uint64 private constant PATIENCE = 128;
    bytes32 private constant RANDAO = keccak256("the beacon's");

    Claim private claim;
    uint64 private seedBlock;

    function setUp() external {
        setUpMarket();
        postJob(aTerms());
        holdShards();
        claim = commitTask(0, 0);
        seedBlock = statusOf(claim).seedBlock;
        vm.roll(seedBlock + 1);
    }

    function seedOf(bytes32 randomness) private view returns (bytes32) {
        return bytes16(sha256(abi.encodePacked(randomness, idOf(claim))));
    }

    /// @dev As if the seed block had this header.
    function standsAs(bytes memory header) private returns (bytes memory) {
        vm.setBlockhash(seedBlock, keccak256(header));
        return header;
    }

    function refused(bytes memory header, bytes memory refusal) private {
        vm.expectRevert(refusal);
        tasks.recordSeed(claim, header);
        assertPhase(claim, Phase.COMMITTED);
    }

    function noRandao() private view returns (bytes memory) {
        return abi.encodeWithSelector(ITasks.NoRandao.selector, seedBlock);
    }

    function test_theSeedIsTheRandaoValueOfItsBlock() external {
        assertEq(seedBlock, claimedIn() + 2);
        bytes memory header = standsAs(BlockHeaders.header(seedBlock, RANDAO, "geth"));
        vm.roll(seedBlock);
        refused(header, abi.encodeWithSelector(ITasks.SeedUnavailable.selector, seedBlock));
        vm.roll(seedBlock + 1);
        tasks.recordSeed(claim, header);
        assertEq(statusOf(claim).seed, seedOf(RANDAO));
        vm.expectRevert(abi.encodeWithSelector(ITasks.WrongPhase.selector, Phase.SEEDED));
        tasks.recordSeed(claim, header);
    }

    function claimedIn() private view returns (uint256) {
        return vm.getBlockNumber() - 3;
    }

    function test_onlyTheSeedBlocksOwnHeaderCounts() external {
        bytes memory header = standsAs(BlockHeaders.header(seedBlock, RANDAO, ""));
        bytes memory refusal = abi.encodeWithSelector(ITasks.WrongHeader.selector, seedBlock);
        refused(BlockHeaders.header(seedBlock, keccak256("another"), ""), refusal);
        bytes memory next = BlockHeaders.header(seedBlock - 1, RANDAO, "");
        vm.setBlockhash(seedBlock - 1, keccak256(next));
        refused(next, refusal);
        refused(bytes.concat(header, hex"00"), refusal);
        assembly {
            mstore(header, sub(mload(header), 1)) // one byte less
        }
        refused(header, refusal);
    }

    // ---- a chain whose headers hold no value: the hash, in the end

    function test_anEmptyHeaderHasToWait() external {
        standsAs(BlockHeaders.header(seedBlock, RANDAO, ""));
        vm.roll(seedBlock + PATIENCE);
        refused("", abi.encodeWithSelector(ITasks.HeaderAwaited.selector, seedBlock + PATIENCE));
        vm.roll(seedBlock + PATIENCE + 1);
        bytes32 blockHash = keccak256("whatever this chain hashes");
        vm.setBlockhash(seedBlock, blockHash);
        tasks.recordSeed(claim, "");
        assertEq(statusOf(claim).seed, seedOf(blockHash));
        assertEq(drawnOf(claim).length, 3);
    }

    function test_aHeaderStillCountsAfterThePatience() external {
        bytes memory header = standsAs(BlockHeaders.header(seedBlock, RANDAO, ""));
        vm.roll(seedBlock + PATIENCE + 1);
        tasks.recordSeed(claim, header);
        assertEq(statusOf(claim).seed, seedOf(RANDAO));
    }

    function test_aHeaderWithoutAValueIsRefusedAndTheHashServesLater() external {
        bytes memory zero = standsAs(BlockHeaders.header(seedBlock, 0, ""));
        refused(zero, noRandao());
        vm.roll(seedBlock + PATIENCE + 1);
        refused(zero, noRandao());
        tasks.recordSeed(claim, "");
        assertEq(statusOf(claim).seed, seedOf(keccak256(zero)));
    }

    /// @dev Where blocks have a difficulty their makers choose mixHash: proof of work, Clique, Bor, Nitro, BNB's.
    function test_Attack29_theFieldOfAnotherConsensusIsNotTaken() external {
        bytes[] memory fields = BlockHeaders.fields(seedBlock, RANDAO, "");
        fields[7] = RLP.encode(uint256(1));
        refused(standsAs(RLP.encode(fields)), noRandao());
    }

    function test_bytesThatAreNoHeaderAreRefusedWithoutAPanic() external {
        bytes memory header = BlockHeaders.header(seedBlock, RANDAO, "an extra that is not empty");
        assertEq(header.length > 600, true);
        for (uint256 length = header.length - 1; length > 0; --length) {
            assembly {
                mstore(header, length)
            }
            if (length > 520) continue; // the value is still there: see the next test
            standsAs(header);
            refused(header, noRandao());
        }
        refused(standsAs(new bytes(700)), noRandao());
        bytes memory garbage = new bytes(700);
        for (uint256 i; i < garbage.length; ++i) {
            garbage[i] = bytes1(uint8(uint256(keccak256(abi.encode(i)))));
        }
        refused(standsAs(garbage), noRandao());
        refused(standsAs(RLP.encode(new bytes(640))), noRandao());
        bytes[] memory fields = BlockHeaders.fields(seedBlock, RANDAO, new bytes(100));
        refused(standsAs(RLP.encode(fields)), noRandao()); // Clique's, with its signature
    }

    // ---- attack 29

    /// @dev The seed block's builder changes what it may change: the hash follows, the draw does not.
    function test_Attack29_aBuilderThatTriesContentsAlwaysGetsTheSameDraw() external {
        bytes32 drawnFirst;
        uint256 byHash;
        for (uint256 i; i < 16; ++i) {
            uint256 before = vm.snapshotState();
            bytes memory header = standsAs(BlockHeaders.header(seedBlock, RANDAO, abi.encode(i)));
            // Planted: this try has another hash, and draws others where the seed is made of the hash.
            vm.roll(seedBlock + PATIENCE + 1);
            tasks.recordSeed(claim, "");
            bytes32 drawnByHash = keccak256(abi.encode(drawnOf(claim)));
            vm.revertToState(before);
            before = vm.snapshotState();
            vm.roll(seedBlock + 1);
            standsAs(header);
            tasks.recordSeed(claim, header);
            assertEq(statusOf(claim).seed, seedOf(RANDAO));
            bytes32 drawn = keccak256(abi.encode(drawnOf(claim)));
            if (i == 0) drawnFirst = drawn;
            assertEq(drawn, drawnFirst, "the same verifiers");
            if (drawnByHash != drawn) ++byHash;
            vm.revertToState(before);
        }
        assertGt(byHash, 8, "most of these hashes would have drawn others");
    }

    // ---- the history

    function test_Attack30_aSeedNeverRecordedIsReplacedByALaterOne() external {
        vm.roll(vm.getBlockNumber() + 10_000);
        tasks.recordSeed(claim, "");
        ClaimStatus memory st = statusOf(claim);
        assertPhase(claim, Phase.COMMITTED);
        assertEq(st.seedBlock, vm.getBlockNumber() + 2);
        accept(claim);
        assertPhase(claim, Phase.ACCEPTED);
    }

    function test_aSeedOlderThanTheRecentBlocksComesFromTheHistoryContract() external {
        vm.roll(seedBlock + 5000);
        bytes memory header = BlockHeaders.header(seedBlock, RANDAO, "");
        // Answers any block number with this hash.
        bytes memory history = abi.encodePacked(hex"7f", keccak256(header), hex"60005260206000f3");
        vm.etch(0x0000F90827F1C53a10cb7A02335B175320002935, history);
        refused(bytes.concat(header, hex"00"), abi.encodeWithSelector(ITasks.WrongHeader.selector, seedBlock));
        tasks.recordSeed(claim, header);
        assertEq(statusOf(claim).seed, seedOf(RANDAO));
    }

    /// @dev What Hardhat's node has in the history's place: OpenZeppelin's Blockhash gives the reason's first 32 bytes as the
    /// hash, with which no header agrees, and which is no secret.
    function test_Attack30_whatAHistoryThatFailsSaysIsNoHash() external {
        bytes memory reason = abi.encodeWithSignature("Error(string)", "not supported");
        bytes[3] memory histories = [
            abi.encodePacked(hex"7f", bytes32(reason), hex"60005260206000fd"), // reverts with 32 bytes
            abi.encodePacked(hex"7f", bytes32(reason), hex"60005260406000fd"), // with 64
            abi.encodePacked(hex"7f", bytes32(reason), hex"60005260406000f3") // answers with 64
        ];
        vm.roll(seedBlock + 257);
        for (uint256 i; i < histories.length; ++i) {
            vm.etch(0x0000F90827F1C53a10cb7A02335B175320002935, histories[i]);
            uint256 before = vm.snapshotState();
            tasks.recordSeed(claim, "");
            assertPhase(claim, Phase.COMMITTED);
            assertEq(statusOf(claim).seedBlock, vm.getBlockNumber() + 2, "a later block is named");
            vm.revertToState(before);
        }
    }

    // ---- the walk to the value

    function testFuzz_theWalkFindsWhatADecoderFinds(
        uint64 number,
        bytes32 randao,
        bytes32 extra,
        uint8 length,
        uint256 forks
    ) external view {
        bytes memory extraData = abi.encodePacked(extra);
        length = uint8(bound(length, 0, 32));
        assembly {
            mstore(extraData, length)
        }
        bytes[] memory fields = BlockHeaders.fields(number, randao, extraData);
        forks = bound(forks, 14, 21); // later forks append fields
        assembly {
            mstore(fields, forks)
        }
        bytes memory header = RLP.encode(fields);
        assertEq(BlockHeader.getPrevRandao(header), randao, "the decoder's");
        assertEq(this.walk(header), randao, "the walk's");
    }

    function walk(bytes calldata header) external pure returns (bytes32) {
        return Headers.randao(header);
    }
}
