// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {IVault} from "../../src/interfaces/IVault.sol";
import {Keys} from "../../src/market/Keys.sol";
import {Vault} from "../../src/market/Vault.sol";
import {Test} from "../Vm.sol";
import {IERC20} from "@openzeppelin/contracts/token/ERC20/IERC20.sol";

/// @dev A token of which the vault holds as much as it is told.
contract ArrivalsFake {
    uint256 public balanceOf_;

    function balanceOf(address) external view returns (uint256) {
        return balanceOf_;
    }

    function transferFrom(address, address, uint256 amount) external returns (bool) {
        balanceOf_ += amount;
        return true;
    }
}

/// @notice Proofs, for all amounts at once (`make symbolic`), about the deployed Vault; this contract is all its modules.
contract VaultSymbolic is Test {
    bytes32 private constant JOB = keccak256("job");

    Vault private vault = new Vault(
        IERC20(address(new ArrivalsFake())),
        address(this),
        address(this),
        address(this),
        address(this),
        address(this),
        new Keys(1)
    );

    function _free(address account) private pure returns (bytes32) {
        return bytes32(uint256(uint160(account)));
    }

    /// @notice A move takes from one entry what it gives to another, or reverts; a burn takes what it counts as burnt.
    function check_amountsAreMovedNeverMade(uint96 deposited, uint96 moved, uint96 burnt) external {
        vault.deposit(address(1), deposited);
        (bool done,) = address(vault)
            .call(
                abi.encodeCall(
                    vault.move, (IVault.Bucket.FREE, _free(address(1)), IVault.Bucket.ESCROW, JOB, moved)
                )
            );
        assert(done == (moved <= deposited));
        uint256 there = done ? moved : 0;
        assert(vault.free(address(1)) == deposited - there);
        assert(vault.balance(IVault.Bucket.ESCROW, JOB) == there);
        (done,) = address(vault).call(abi.encodeCall(vault.burn, (IVault.Bucket.ESCROW, JOB, burnt)));
        assert(done == (burnt <= there));
        uint256 gone = done ? burnt : 0;
        assert(vault.burnt() == gone && vault.undestroyed() == gone);
        uint256 left = vault.free(address(1)) + vault.balance(IVault.Bucket.ESCROW, JOB);
        assert(left + gone == deposited);
    }

    /// @notice Paying several at once takes exactly the sum, also when one of them is paid twice.
    function check_payTakesTheSum(uint96 held, uint64 first, uint64 rest, bool twice) external {
        vault.deposit(address(9), held);
        vault.move(IVault.Bucket.FREE, _free(address(9)), IVault.Bucket.ESCROW, JOB, held);
        address[] memory to = new address[](3);
        (to[0], to[1], to[2]) = (address(1), address(2), twice ? address(1) : address(3));
        uint256 sum = uint256(first) + rest + rest;
        (bool done,) =
            address(vault).call(abi.encodeCall(vault.payEach, (IVault.Bucket.ESCROW, JOB, to, first, rest)));
        assert(done == (sum <= held));
        if (!done) return;
        assert(vault.balance(IVault.Bucket.ESCROW, JOB) == held - sum);
        assert(vault.free(address(1)) == uint256(first) + (twice ? rest : 0));
        assert(vault.free(address(2)) == rest);
    }
}
