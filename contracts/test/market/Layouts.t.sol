// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {Tasks} from "../../src/market/Tasks.sol";
import {TasksExtension} from "../../src/market/TasksExtension.sol";
import {Test} from "../Vm.sol";

/// @notice Tasks runs TasksExtension's code on its own storage: both lay it out alike, as the compiler says.
contract LayoutsTest is Test {
    /// @dev Name, slot and type of each variable. A type's key holds numbers of the compilation; its label does not.
    function _layout(string memory path) private view returns (bytes32 digest) {
        string memory artifact = vm.readFile(path);
        uint256 n;
        for (;; ++n) {
            string memory variable = string.concat(".storageLayout.storage[", vm.toString(n), "]");
            if (!vm.keyExistsJson(artifact, variable)) break;
            string memory name = vm.parseJsonString(artifact, string.concat(variable, ".label"));
            string memory slot = vm.parseJsonString(artifact, string.concat(variable, ".slot"));
            string memory key = vm.parseJsonString(artifact, string.concat(variable, ".type"));
            string memory kind = string.concat(".storageLayout.types['", key, "'].label");
            digest = keccak256(abi.encode(digest, name, slot, vm.parseJsonString(artifact, kind)));
        }
        assertGt(n, 5, "it has storage");
    }

    function test_tasksAndItsExtensionShareOneLayout() external view {
        assertEq(_layout("out/Tasks.sol/Tasks.json"), _layout("out/TasksExtension.sol/TasksExtension.json"));
        assertGt(type(Tasks).creationCode.length, 0);
        assertGt(type(TasksExtension).creationCode.length, 0);
    }
}
