// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {ITasks} from "../interfaces/ITasks.sol";
import {Terms} from "../interfaces/Types.sol";
import {SSTORE2} from "solady/utils/SSTORE2.sol";

/// @title A job's terms as the code of a contract whose address follows from the job's id
/// @notice Every contract reads them directly: one cold account and a copy instead of thirty storage slots.
library TermsStore {
    function write(bytes32 jobId, Terms memory terms) internal {
        SSTORE2.writeDeterministic(abi.encode(terms), jobId);
    }

    /// @notice Where in memory the terms are; 0 if there is no such job.
    /// @dev The code is a zero byte and abi.encode(terms): 46 words, of which words 1 to 4 and 5 to 8 are the two programs.
    /// In memory a struct keeps a pointer for each nested struct, so the words before and after them are copied apart.
    /// SAFETY: nothing is validated again, since only `write` above, from decoded terms, creates code at such an address.
    function read(address jobs, bytes32 jobId) internal view returns (uint256 terms) {
        address pointer = SSTORE2.predictDeterministicAddress(jobId, jobs);
        if (pointer.code.length == 0) return 0;
        assembly ("memory-safe") {
            let programs := mload(0x40)
            terms := add(programs, 0x100)
            mstore(0x40, add(terms, 0x500))
            extcodecopy(pointer, terms, 1, 0x20)
            extcodecopy(pointer, programs, 0x21, 0x100)
            extcodecopy(pointer, add(terms, 0x60), 0x121, 0x4a0)
            mstore(add(terms, 0x20), programs)
            mstore(add(terms, 0x40), add(programs, 0x80))
        }
    }

    /// @notice A job's terms. Reverts with ITasks.NoSuchJob.
    function load(address jobs, bytes32 jobId) internal view returns (Terms memory terms) {
        uint256 found = read(jobs, jobId);
        if (found == 0) revert ITasks.NoSuchJob(jobId);
        assembly ("memory-safe") {
            terms := found
        }
    }
}
