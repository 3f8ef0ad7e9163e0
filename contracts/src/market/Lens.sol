// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

/// @title Many views answered in one call, and so of one block
/// @notice Nothing relies on this contract.
contract Lens {
    struct View {
        address target;
        bytes data; // the call, encoded
    }

    struct Answer {
        bool success;
        bytes data; // what the view returned, or reverted with
    }

    /// @notice What each view answers, in the order of the list; one that reverts spoils no other.
    function read(View[] calldata views) external view returns (Answer[] memory answers) {
        answers = new Answer[](views.length);
        for (uint256 i; i < views.length; ++i) {
            (answers[i].success, answers[i].data) = views[i].target.staticcall(views[i].data);
        }
    }
}
