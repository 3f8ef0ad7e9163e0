// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {Tasks} from "../../src/market/Tasks.sol";
import {TasksExtension} from "../../src/market/TasksExtension.sol";
import {Test} from "../Vm.sol";

/// @notice Tasks runs TasksExtension's code on its own storage: both lay it out alike, as the compiler says.
contract LayoutsTest is Test {
    function _layout(string memory path, string memory field) private view returns (bytes32) {
        string memory artifact = vm.readFile(path);
        string[] memory values =
            vm.parseJsonStringArray(artifact, string.concat(".storageLayout.storage[*].", field));
        assertGt(values.length, 5, "it has storage");
        return keccak256(abi.encode(values));
    }

    function test_tasksAndItsExtensionShareOneLayout() external view {
        string memory tasks = "out/Tasks.sol/Tasks.json";
        string memory extension = "out/TasksExtension.sol/TasksExtension.json";
        string[3] memory fields = ["label", "slot", "type"];
        for (uint256 i; i < fields.length; ++i) {
            assertEq(_layout(tasks, fields[i]), _layout(extension, fields[i]), fields[i]);
        }
        assertGt(type(Tasks).creationCode.length, 0);
        assertGt(type(TasksExtension).creationCode.length, 0);
    }
}
