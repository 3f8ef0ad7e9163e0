// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {IClock} from "../interfaces/IClock.sol";

/// @title When a deadline that costs somebody a stake has passed (docs/protocol.md, section 7.4)
/// @notice The one question of which both sides depend: while the answer is no, what was owed can be done and nobody is
/// convicted or fined for it; once it is yes, the other way round.
abstract contract Deadlines {
    IClock private immutable CLOCK;

    constructor(IClock clock) {
        CLOCK = clock;
    }

    /// @dev The Clock is never ahead of the chain, so whoever is in time does not ask it.
    function _passed(uint256 deadline) internal view returns (bool) {
        return block.timestamp > deadline && CLOCK.time() > deadline;
    }
}
