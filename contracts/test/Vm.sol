// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

/// @title The cheat codes that the tests use, and a small `Test` base
/// @notice Written out here because the npm package of forge-std does not compile with the pinned compiler. A cheat code
/// that is not listed is one line away: forge answers to its signature.
interface Vm {
    struct Log {
        bytes32[] topics;
        bytes data;
        address emitter;
    }

    function assume(bool condition) external pure;
    function prank(address sender) external;
    function startPrank(address sender) external;
    function stopPrank() external;
    function deal(address account, uint256 balance) external;
    function etch(address target, bytes calldata code) external;
    function store(address target, bytes32 slot, bytes32 value) external;
    function load(address target, bytes32 slot) external view returns (bytes32);
    function warp(uint256 timestamp) external;
    function roll(uint256 blockNumber) external;
    function chainId(uint256 id) external;
    function prevrandao(bytes32 value) external;
    function setBlockhash(uint256 blockNumber, bytes32 blockHash) external;
    function getBlockTimestamp() external view returns (uint256);
    function getBlockNumber() external view returns (uint256);
    function expectRevert() external;
    function expectRevert(bytes4 selector) external;
    function expectRevert(bytes calldata data) external;
    function expectPartialRevert(bytes4 selector) external;
    function expectEmit(bool topic1, bool topic2, bool topic3, bool data) external;
    function expectEmit(address emitter) external;
    function expectCall(address callee, bytes calldata data) external;
    function mockCall(address callee, bytes calldata data, bytes calldata result) external;
    function mockCallRevert(address callee, bytes calldata data, bytes calldata why) external;
    function recordLogs() external;
    function getRecordedLogs() external returns (Log[] memory);
    function label(address account, string calldata name) external;
    function addr(uint256 privateKey) external pure returns (address);
    function sign(uint256 privateKey, bytes32 digest) external pure returns (uint8 v, bytes32 r, bytes32 s);
    function getNonce(address account) external view returns (uint64);
    function computeCreateAddress(address deployer, uint256 nonce) external pure returns (address);
    function deployCode(string calldata artifact, bytes calldata arguments) external returns (address);
    function pauseGasMetering() external;
    function cool(address target) external;
    function snapshotState() external returns (uint256);
    function revertToState(uint256 id) external returns (bool);
    function snapshotGasLastCall(string calldata group, string calldata name) external returns (uint256);
    function snapshotValue(string calldata group, string calldata name, uint256 value) external;
    function readFile(string calldata path) external view returns (string memory);
    function parseJsonString(string calldata json, string calldata key) external pure returns (string memory);
    function keyExistsJson(string calldata json, string calldata key) external view returns (bool);
    function split(string calldata text, string calldata delimiter) external pure returns (string[] memory);
    function toString(uint256 value) external pure returns (string memory);
    function toString(bytes32 value) external pure returns (string memory);
    function assertTrue(bool condition, string calldata why) external pure;
    function assertFalse(bool condition, string calldata why) external pure;
    function assertEq(bool left, bool right, string calldata why) external pure;
    function assertEq(uint256 left, uint256 right, string calldata why) external pure;
    function assertEq(address left, address right, string calldata why) external pure;
    function assertEq(bytes32 left, bytes32 right, string calldata why) external pure;
    function assertEq(bytes calldata left, bytes calldata right, string calldata why) external pure;
    function assertEq(string calldata left, string calldata right, string calldata why) external pure;
    function assertNotEq(bytes32 left, bytes32 right, string calldata why) external pure;
    function assertLt(uint256 left, uint256 right, string calldata why) external pure;
    function assertLe(uint256 left, uint256 right, string calldata why) external pure;
    function assertGt(uint256 left, uint256 right, string calldata why) external pure;
    function assertGe(uint256 left, uint256 right, string calldata why) external pure;
}

/// @notice Base of every test contract: the cheat codes as `vm`, assertions and a few conveniences.
abstract contract Test {
    /// @dev Tells forge, which runs a contract only if it looks like a test, and scripts that this is one.
    bool public constant IS_TEST = true;

    Vm internal constant vm = Vm(address(uint160(uint256(keccak256("hevm cheat code")))));

    /// @notice A contract of `src` by its name, created by this one. A test that says `new` carries the bytecode of what it
    /// creates, and the compiler optimises that once more for every test that does.
    function deployed(string memory name, bytes memory arguments) internal returns (address) {
        return vm.deployCode(string.concat(name, ".sol:", name), arguments);
    }

    /// @notice Selects which functions of a contract an invariant run may call; returned by `targetSelectors`.
    struct FuzzSelector {
        address addr;
        bytes4[] selectors;
    }

    function makeAddr(string memory name) internal returns (address account) {
        (account,) = makeAddrAndKey(name);
    }

    function makeAddrAndKey(string memory name) internal returns (address account, uint256 privateKey) {
        privateKey = uint256(keccak256(bytes(name)));
        account = vm.addr(privateKey);
        vm.label(account, name);
    }

    /// @notice Maps any `value` into [low, high], keeping values that are already inside.
    function bound(uint256 value, uint256 low, uint256 high) internal pure returns (uint256) {
        require(low <= high, "bound: low > high");
        if (value >= low && value <= high) return value;
        uint256 size = high - low + 1;
        return size == 0 ? value : low + value % size;
    }

    function deal(address account, uint256 balance) internal {
        vm.deal(account, balance);
    }

    function skip(uint256 seconds_) internal {
        vm.warp(vm.getBlockTimestamp() + seconds_);
    }

    function assertTrue(bool condition) internal pure {
        vm.assertTrue(condition, "expected true");
    }

    function assertTrue(bool condition, string memory why) internal pure {
        vm.assertTrue(condition, why);
    }

    function assertFalse(bool condition) internal pure {
        vm.assertFalse(condition, "expected false");
    }

    function assertFalse(bool condition, string memory why) internal pure {
        vm.assertFalse(condition, why);
    }

    function assertEq(bool left, bool right) internal pure {
        vm.assertEq(left, right, "bool");
    }

    function assertEq(uint256 left, uint256 right) internal pure {
        vm.assertEq(left, right, "uint256");
    }

    function assertEq(uint256 left, uint256 right, string memory why) internal pure {
        vm.assertEq(left, right, why);
    }

    function assertEq(address left, address right) internal pure {
        vm.assertEq(left, right, "address");
    }

    function assertEq(address left, address right, string memory why) internal pure {
        vm.assertEq(left, right, why);
    }

    function assertEq(bytes32 left, bytes32 right) internal pure {
        vm.assertEq(left, right, "bytes32");
    }

    function assertEq(bytes32 left, bytes32 right, string memory why) internal pure {
        vm.assertEq(left, right, why);
    }

    function assertEq(bytes memory left, bytes memory right) internal pure {
        vm.assertEq(left, right, "bytes");
    }

    function assertEq(string memory left, string memory right) internal pure {
        vm.assertEq(left, right, "string");
    }

    function assertNotEq(bytes32 left, bytes32 right) internal pure {
        vm.assertNotEq(left, right, "bytes32");
    }

    function assertLt(uint256 left, uint256 right, string memory why) internal pure {
        vm.assertLt(left, right, why);
    }

    function assertLt(uint256 left, uint256 right) internal pure {
        vm.assertLt(left, right, "less than");
    }

    function assertLe(uint256 left, uint256 right, string memory why) internal pure {
        vm.assertLe(left, right, why);
    }

    function assertLe(uint256 left, uint256 right) internal pure {
        vm.assertLe(left, right, "at most");
    }

    function assertGt(uint256 left, uint256 right, string memory why) internal pure {
        vm.assertGt(left, right, why);
    }

    function assertGt(uint256 left, uint256 right) internal pure {
        vm.assertGt(left, right, "greater than");
    }

    function assertGe(uint256 left, uint256 right, string memory why) internal pure {
        vm.assertGe(left, right, why);
    }

    function assertGe(uint256 left, uint256 right) internal pure {
        vm.assertGe(left, right, "at least");
    }
}
