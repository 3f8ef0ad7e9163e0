// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {IClasses} from "../../src/interfaces/IClasses.sol";
import {IGuardian} from "../../src/interfaces/IGuardian.sol";
import {IJobs} from "../../src/interfaces/IJobs.sol";
import {IStakes} from "../../src/interfaces/IStakes.sol";
import {IVault} from "../../src/interfaces/IVault.sol";
import {Jobs} from "../../src/market/Jobs.sol";
import {Tasks} from "../../src/market/Tasks.sol";
import {Test} from "../Vm.sol";

/// @dev A job's words, read and written as the compiler does it and as Rewinds does.
contract JobsWords is Jobs(IVault(address(1)), address(1), IGuardian(address(1)), IClasses(address(1))) {
    function again(uint256 word) external returns (uint256 counts_, uint256 worths_, bool same) {
        Counts storage c = counts["given"];
        Worth storage w = worths["given"];
        assembly ("memory-safe") {
            sstore(c.slot, word)
            sstore(w.slot, shr(24, word))
        }
        Counts memory read = c;
        Worth memory held = w;
        same = keccak256(abi.encode(read)) == keccak256(abi.encode(_countsOf()("given")))
            && keccak256(abi.encode(held)) == keccak256(abi.encode(_worthsOf("given")));
        _setCounts("again", read);
        _setWorths("again", held);
        (c, w) = (counts["again"], worths["again"]);
        assembly ("memory-safe") {
            counts_ := sload(c.slot)
            worths_ := sload(w.slot)
        }
    }
}

/// @dev A claim's status, read and written again.
contract TasksWords is Tasks(IVault(address(1)), IStakes(address(1)), IJobs(address(1)), address(1)) {
    function again(uint256 word) external returns (uint256) {
        statuses["given"] = word;
        _setStatus("again", _status()("given"));
        return statuses["again"];
    }
}

/// @notice Words that are packed by hand: whatever numbers a job or a claim has been driven to, no field spills into another.
contract PackedWordsTest is Test {
    JobsWords private immutable JOBS = new JobsWords();
    TasksWords private immutable TASKS = new TasksWords();

    function testFuzz_noFieldOfAPackedWordSpillsIntoAnother(uint256 word) external {
        (uint256 counts, uint256 worths, bool same) = JOBS.again(word);
        assertTrue(same, "as the compiler reads it");
        assertEq(counts, word);
        assertEq(worths, word >> 24);
        assertEq(TASKS.again(word), word);
    }

    function test_noFieldOfAPackedWordSpillsAtItsExtremes() external {
        for (uint256 i; i < 256; ++i) {
            this.testFuzz_noFieldOfAPackedWordSpillsIntoAnother(1 << i);
            this.testFuzz_noFieldOfAPackedWordSpillsIntoAnother(~(uint256(1) << i));
        }
    }
}
