// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {Invitation, Member} from "../interfaces/ICrews.sol";

/// @title What the members of a crew consent to, as EIP-712 hashes it
library Invitations {
    bytes private constant PROGRAM = "ProgramRef(bytes32 root,uint32 nodes,uint32 slots,uint32 params)";
    bytes private constant MEMBER = "Member(address account,uint16 share,ProgramRef stage)";
    bytes private constant INVITATION =
        "Invitation(bytes32 jobId,uint32 shard,uint128 leastPrice,uint96 stake,uint64 expiry,bytes32 plan,Member[] members)";
    bytes32 private constant PROGRAM_TYPE = keccak256(PROGRAM);
    bytes32 private constant MEMBER_TYPE = keccak256(abi.encodePacked(MEMBER, PROGRAM));
    bytes32 private constant INVITATION_TYPE = keccak256(abi.encodePacked(INVITATION, MEMBER, PROGRAM));

    /// @notice Its struct hash.
    function id(Invitation calldata invitation) internal pure returns (bytes32) {
        uint256 count = invitation.members.length;
        bytes32[] memory members = new bytes32[](count);
        for (uint256 i; i < count; ++i) {
            Member calldata member = invitation.members[i];
            bytes32 stage = keccak256(abi.encode(PROGRAM_TYPE, member.stage));
            members[i] = keccak256(abi.encode(MEMBER_TYPE, member.account, member.share, stage));
        }
        return keccak256(
            abi.encode(
                INVITATION_TYPE,
                invitation.jobId,
                invitation.shard,
                invitation.leastPrice,
                invitation.stake,
                invitation.expiry,
                invitation.plan,
                keccak256(abi.encodePacked(members))
            )
        );
    }
}
