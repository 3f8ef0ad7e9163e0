// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {Terms} from "../../src/interfaces/Types.sol";
import {TermsStore} from "../../src/libraries/TermsStore.sol";
import {Test} from "../Vm.sol";
import {SSTORE2} from "solady/utils/SSTORE2.sol";

/// @dev Puts a job's terms where the contracts look for them, encoded as they are: halmos creates no contract by CREATE3.
abstract contract TermsFake is Test {
    TermsEncoder private encoder = new TermsEncoder();

    function _putTerms(address jobs, bytes32 jobId, Terms memory terms) internal {
        vm.etch(
            SSTORE2.predictDeterministicAddress(jobId, jobs),
            abi.encodePacked(bytes1(0), encoder.encode(terms))
        );
    }
}

contract TermsEncoder {
    function encode(Terms calldata terms) external pure returns (bytes memory) {
        return TermsStore.encode(terms);
    }
}
