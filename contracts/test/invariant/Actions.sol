// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {Test} from "../Vm.sol";

interface ICounted {
    /// @dev How often the handler has done this.
    function calls(string calldata action) external view returns (uint256);
}

/// @notice The actions of a handler that forge draws in an invariant run, and whether each of them does something.
abstract contract Actions is Test {
    address internal handler;
    bytes4[] private actions;

    /// @dev A handler that has done nothing yet.
    function renew() internal virtual returns (address);

    /// @dev What holds between any two actions.
    function check() internal virtual;

    /// @dev An action that is drawn `weight` times as often as one of weight 1.
    function act(bytes4 action, uint256 weight) internal {
        for (uint256 i; i < weight; ++i) {
            actions.push(action);
        }
    }

    function targetContracts() external view returns (address[] memory targets) {
        targets = new address[](1);
        targets[0] = handler;
    }

    function targetSelectors() external view returns (FuzzSelector[] memory targets) {
        targets = new FuzzSelector[](1);
        targets[0] = FuzzSelector(handler, actions);
    }

    /// @dev A handler whose actions never do anything shows nothing: in some runs, the same every time, each of these happens.
    function assertAllHappen(string memory names, uint256 runs, uint256 steps) internal {
        vm.pauseGasMetering(); // it is more than a test may use
        string[] memory missing = vm.split(names, ", ");
        for (uint256 run; run < runs && missing.length > 0; ++run) {
            handler = renew();
            for (uint256 i; i < steps; ++i) {
                _play(uint256(keccak256(abi.encode(run, i))));
                check();
            }
            missing = neverDone(missing);
        }
        if (missing.length > 0) assertTrue(false, string.concat("never happened: ", missing[0]));
    }

    function _play(uint256 seed) private {
        bytes4 action = actions[(seed >> 128) % actions.length];
        (bool done, bytes memory reason) =
            handler.call(abi.encodeWithSelector(action, seed, seed >> 160, seed >> 176));
        if (done) return;
        assembly ("memory-safe") {
            revert(add(reason, 32), mload(reason))
        }
    }

    /// @dev Those of the names that the handler has never counted.
    function neverDone(string[] memory names) internal view returns (string[] memory list) {
        list = new string[](names.length);
        uint256 n;
        for (uint256 i; i < names.length; ++i) {
            if (ICounted(handler).calls(names[i]) == 0) list[n++] = names[i];
        }
        assembly ("memory-safe") {
            mstore(list, n)
        }
    }
}
