// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {Crew} from "../../src/crew/Crew.sol";
import {Crews} from "../../src/crew/Crews.sol";
import {ICourt} from "../../src/interfaces/ICourt.sol";
import {ICrew, ICrews, Invitation, Member, Said, Transcript} from "../../src/interfaces/ICrews.sol";
import {ITasks} from "../../src/interfaces/ITasks.sol";
import {Claim, Kind, Phase, ProgramRef} from "../../src/interfaces/Types.sol";
import {Merkle} from "../../src/libraries/Merkle.sol";
import {Vm} from "../Vm.sol";
import {FakeCourt, Market} from "../market/Market.sol";

/// @notice A market with Crews, an invitation to its first job, and the steps of a crew's life as functions.
abstract contract CrewMarket is Market {
    uint96 internal constant STAKE = 220 ether;
    uint256 internal constant BOND = 30 ether;

    Crews internal crews;
    FakeCourt internal ownCourt;
    ICrew internal crew;
    Invitation internal invited;
    uint256[] internal privateKeys;

    function setUpCrew() internal {
        setUpMarket();
        address predicted = vm.computeCreateAddress(address(this), vm.getNonce(address(this)) + 2);
        ownCourt = new FakeCourt(predicted);
        Crew implementation = new Crew(ICrews(predicted), token, vault, stakes, jobs, tasks, address(court));
        ICourt itsCourt = ICourt(address(ownCourt));
        crews = new Crews(token, vault, address(jobs), tasks, itsCourt, address(implementation), clock);
        assertEq(address(crews), predicted);
        postJob(aTerms());
        (invited.jobId, invited.shard, invited.leastPrice) = (jobId, 0, 10 ether);
        (invited.stake, invited.expiry, invited.plan) = (STAKE, u64(block.timestamp + 1 hours), "plan");
        uint16[3] memory shares = [uint16(5000), 3000, 2000];
        for (uint256 i; i < 3; ++i) {
            privateKeys.push(0xA11CE + i);
            address who = vm.addr(privateKeys[i]);
            invited.members.push(Member(who, shares[i], ProgramRef(bytes32(i + 1), 20, 3, 2)));
            token.transfer(who, 1000 ether);
            vm.prank(who);
            token.approve(address(crews), 1000 ether);
        }
    }

    function account(uint256 member) internal view returns (address) {
        return invited.members[member].account;
    }

    function consents() internal view returns (bytes[] memory signatures) {
        uint256 count = invited.members.length;
        signatures = new bytes[](count - 1);
        for (uint256 i = 1; i < count; ++i) {
            signatures[i - 1] = signature(i, crews.consentOf(invited));
        }
    }

    function signature(uint256 member, bytes32 digest) internal view returns (bytes memory) {
        (uint8 v, bytes32 r, bytes32 s) = vm.sign(privateKeys[member], digest);
        return abi.encodePacked(r, s, v);
    }

    function form() internal {
        bytes[] memory signatures = consents();
        vm.prank(account(0));
        crew = ICrew(crews.form(invited, signatures));
    }

    function commits(Claim memory claim) internal returns (Claim memory) {
        vm.recordLogs();
        bytes32[] memory ends = segmentEnds(claim);
        vm.prank(account(0));
        crew.commit(claim, ends);
        (claim,,) = abi.decode(committed().data, (Claim, bytes32[], uint64));
        return claim;
    }

    /// @dev The crew and a solver hold a shard each, and have committed to round 0.
    function working() internal returns (Claim memory ours, Claim memory other) {
        form();
        vm.prank(solvers[1]);
        tasks.takeShard(jobId, 1, 0);
        ours = commits(draft(Kind.TASK, 0, 0));
        other = commitTask(0, 1);
    }

    function committed() internal returns (Vm.Log memory) {
        Vm.Log[] memory logs = vm.getRecordedLogs();
        for (uint256 i; i < logs.length; ++i) {
            if (logs[i].topics[0] == ITasks.Committed.selector) return logs[i];
        }
        revert("nothing was committed");
    }

    function convicted() internal returns (Claim memory claim) {
        (claim,) = working();
        convictByGame(claim);
        assertPhase(claim, Phase.CONVICTED);
    }

    function dissolve() internal {
        vm.prank(account(1));
        crew.dissolve(invited, 1);
        skip(UNBOND_DELAY);
    }

    function transcript(uint8 member, Claim memory claim)
        internal
        view
        returns (Transcript memory t, Said memory said)
    {
        bytes32[] memory leaves = new bytes32[](2);
        leaves[0] = Merkle.leaf(abi.encodePacked(bytes32("in"), bytes32("middle")));
        leaves[1] = Merkle.leaf(abi.encodePacked(bytes32("middle"), bytes32("out")));
        said = Said(1, "middle", "out", memberProof(leaves, 1));
        t = Transcript(address(crew), member, claim.round, claim.attempt, 40, 2, Merkle.root(leaves));
    }

    function accuse(uint8 member, Claim memory claim) internal returns (uint256) {
        (Transcript memory t, Said memory said) = transcript(member, claim);
        return accuse(claim, t, said, "");
    }

    function accuse(Claim memory claim, Transcript memory t, Said memory said, bytes memory refused)
        internal
        returns (uint256 gameId)
    {
        bytes memory signed_ = signature(t.member, crews.digestOf(t));
        vm.startPrank(account(0));
        token.approve(address(crews), BOND);
        if (refused.length > 0) vm.expectRevert(refused);
        gameId = crews.accuse(invited, claim, t, signed_, said);
        vm.stopPrank();
    }

    function refuses(uint8 member, Claim memory claim, bytes memory why) internal {
        (Transcript memory t, Said memory said) = transcript(member, claim);
        accuse(claim, t, said, why);
    }
}
