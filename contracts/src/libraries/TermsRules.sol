// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.28;

import {IJobs} from "../interfaces/IMarket.sol";
import {ProgramRef, Terms} from "../interfaces/Types.sol";

/// @title What a job's terms must be by themselves (docs/protocol.md, section 3)
library TermsRules {
    uint256 private constant MAX_SEGMENT_STEPS = 64;
    uint256 private constant MAX_VERIFIERS = 16;
    uint256 private constant MAX_NODES = 65_536;
    uint256 private constant MAX_SLOTS = 4096; // and with it fewer shards than that
    /// @dev So that no sum of times leaves 64 bits and no deadline is out of reach.
    uint256 private constant MAX_TIME = type(uint32).max;

    /// @notice Reverts with BadTerms and the name of the first field that breaks a rule.
    function check(Terms calldata t) internal pure {
        _checkProgram(t.inner, "inner");
        _checkProgram(t.outer, "outer");
        if (t.manifest == 0) revert IJobs.BadTerms("manifest");
        if (t.shards == 0) revert IJobs.BadTerms("shards");
        if (t.outer.slots != (2 + uint256(t.shards)) * t.inner.params) revert IJobs.BadTerms("outer.slots");
        if (t.minShards == 0 || t.minShards > t.shards) revert IJobs.BadTerms("minShards");
        if (t.rounds == 0) revert IJobs.BadTerms("rounds");
        if (t.stepsPerRound == 0) revert IJobs.BadTerms("stepsPerRound");
        if (
            t.segmentSteps == 0 || t.segmentSteps > MAX_SEGMENT_STEPS || t.stepsPerRound % t.segmentSteps != 0
        ) {
            revert IJobs.BadTerms("segmentSteps");
        }
        if (t.samples == 0 || t.samples > t.stepsPerRound / t.segmentSteps) revert IJobs.BadTerms("samples");
        if (t.verifiers == 0 || t.verifiers > MAX_VERIFIERS) revert IJobs.BadTerms("verifiers");
        if (t.quorum == 0 || t.quorum > t.verifiers) revert IJobs.BadTerms("quorum");
        if (t.maxUnsettled == 0) revert IJobs.BadTerms("maxUnsettled");
        if (t.priceFloor > t.priceCap) revert IJobs.BadTerms("priceFloor");
        _checkTimes(t);
    }

    function _checkProgram(ProgramRef calldata program, string memory field) private pure {
        if (program.nodes == 0 || program.nodes > MAX_NODES) revert IJobs.BadTerms(field);
        if (program.slots > MAX_SLOTS || program.slots < program.params || program.params == 0) {
            revert IJobs.BadTerms(field);
        }
    }

    function _checkTimes(Terms calldata t) private pure {
        if (t.seedDelay == 0) revert IJobs.BadTerms("seedDelay");
        if (t.taskTime == 0 || t.taskTime > MAX_TIME) revert IJobs.BadTerms("taskTime");
        if (t.stragglerTime == 0 || t.stragglerTime > MAX_TIME) revert IJobs.BadTerms("stragglerTime");
        if (t.outerTime == 0 || t.outerTime > MAX_TIME) revert IJobs.BadTerms("outerTime");
        if (t.voteTime == 0 || t.voteTime > MAX_TIME) revert IJobs.BadTerms("voteTime");
        if (t.revealTime == 0 || t.revealTime > MAX_TIME) revert IJobs.BadTerms("revealTime");
        if (t.challengeWindow == 0 || t.challengeWindow > MAX_TIME) revert IJobs.BadTerms("challengeWindow");
        if (t.moveTime == 0 || t.moveTime > MAX_TIME) revert IJobs.BadTerms("moveTime");
        if (t.pricePeriod == 0 || t.pricePeriod > MAX_TIME) revert IJobs.BadTerms("pricePeriod");
    }
}
