// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {IChallenges} from "../interfaces/IChallenges.sol";
import {IJobs} from "../interfaces/IJobs.sol";
import {ITasks} from "../interfaces/ITasks.sol";
import {Claim, Found, INPUT, Phase} from "../interfaces/Types.sol";
import {Arrays} from "../libraries/Arrays.sol";
import {Merkle} from "../libraries/Merkle.sol";

/// @title Who found what, before whom, and whether it was the truth (docs/protocol.md 5.4)
/// @notice A finding is announced by its hash, with its finder's own root, and shown a block later or more. Whose root is
/// right does not matter while nobody else has one: then the conviction pays at once. Otherwise the reward waits here.
abstract contract Findings is IChallenges {
    using Arrays for address[];

    ITasks public immutable TASKS;
    address internal immutable JOBS;

    mapping(bytes32 commitment => uint64 blockNumber) public announcedAt;
    /// @dev Of a claim whose reward waits: the hash over the findings whose games are over, each keccak256(before, its hash, whether it
    /// was won).
    mapping(bytes32 claimId => bytes32) public findingsOf;

    constructor(address jobs, ITasks tasks) {
        JOBS = jobs;
        TASKS = tasks;
    }

    function announce(bytes32 commitment) external {
        // Somebody else's copy must not set the clock back.
        if (announcedAt[commitment] == 0) announcedAt[commitment] = uint64(block.number);
        emit Announced(msg.sender, commitment);
    }

    function shareAlike(bytes32 claimId, Found[] calldata found) external {
        _requireAll(claimId, found);
        (, address winner) = TASKS.reward(claimId);
        bool among;
        for (uint256 i; i < found.length; ++i) {
            if (found[i].segment != found[0].segment || found[i].root != found[0].root) revert NoTruth();
            among = among || found[i].finder == winner;
        }
        // Who has convicted a claim without a root of its own says nothing of the others'.
        if (!among) revert NoTruth();
        bool[] memory right = new bool[](found.length);
        for (uint256 i; i < found.length; ++i) {
            right[i] = true;
        }
        TASKS.payReward(claimId, _first(found, right), false);
    }

    function shareWon(Claim calldata claim, Found[] calldata found) external {
        _requireAll(_idOf(claim), found);
        TASKS.payUnsettled(claim, _won(found));
    }

    function share(
        Claim calldata fallen,
        bytes32[] calldata fallenRoots,
        Claim calldata settled,
        bytes32[] calldata settledRoots,
        Found[] calldata found
    ) external {
        bytes32 claimId = _requireRoots(fallen, fallenRoots);
        _requireTruth(fallen, settled, _requireRoots(settled, settledRoots));
        _requireAll(claimId, found);
        bool[] memory right = new bool[](found.length);
        bool inputs = _inputsCount(claimId, found, fallen, settled);
        for (uint256 i; i < found.length; ++i) {
            if (found[i].segment == INPUT && !inputs) continue;
            right[i] = _isTrue(found[i], fallenRoots, settledRoots);
        }
        address[] memory finders = _first(found, right);
        bool none = finders.length == 0;
        TASKS.payReward(claimId, none ? _won(found) : finders, none);
    }

    /// @dev What was announced, with the root that its finder shows now.
    function _shown(bytes32 claimId, uint32 segment, bytes32 root, bytes32 salt)
        internal
        returns (Found memory)
    {
        uint64 announced = _spend(claimId, segment, address(0), root, salt);
        return Found(msg.sender, segment, announced, uint64(block.number), root, false);
    }

    function _spend(bytes32 claimId, uint32 segment, address verifier, bytes32 root, bytes32 salt)
        internal
        returns (uint64 announced)
    {
        bytes32 commitment = keccak256(abi.encode(msg.sender, claimId, segment, verifier, root, salt));
        announced = announcedAt[commitment];
        if (announced == 0) revert NotAnnounced(commitment);
        if (block.number <= announced) revert TooSoon(announced);
        delete announcedAt[commitment];
    }

    /// @dev Of a claim whose reward waits, once the finding's game is over.
    function _keep(bytes32 claimId, bytes32 found, bool won) internal {
        findingsOf[claimId] = keccak256(abi.encode(findingsOf[claimId], found, won));
        emit FindingKept(claimId, found, won);
    }

    function _idOf(Claim calldata claim) internal pure returns (bytes32) {
        return keccak256(abi.encode(claim));
    }

    function _hash(Found memory found) internal pure returns (bytes32) {
        return keccak256(abi.encode(found));
    }

    function _requireTruth(Claim calldata fallen, Claim calldata settled, bytes32 truth) private view {
        bool samePlace = fallen.jobId == settled.jobId && fallen.kind == settled.kind
            && fallen.round == settled.round && fallen.shard == settled.shard;
        if (!samePlace || TASKS.status(truth).phase != Phase.SETTLED) revert NoTruth();
    }

    /// @dev The claim fell for its input; or its place is settled from the same claims. From others it has another input,
    /// which a ring can choose by felling an earlier claim.
    function _inputsCount(
        bytes32 claimId,
        Found[] calldata found,
        Claim calldata fallen,
        Claim calldata settled
    ) private view returns (bool) {
        (, address winner) = TASKS.reward(claimId);
        for (uint256 i; i < found.length; ++i) {
            if (found[i].segment == INPUT && found[i].finder == winner) return true;
        }
        return
            IJobs(JOBS).beginAlike(fallen.jobId, fallen.kind, fallen.round, fallen.rewinds, settled.rewinds);
    }

    /// @dev Right from where the claim was still right: it starts from the settled claim's state and ends in its next one.
    function _isTrue(Found calldata found, bytes32[] calldata fallen, bytes32[] calldata settled)
        private
        pure
        returns (bool)
    {
        if (found.segment == INPUT) return fallen[0] != settled[0] && found.root == settled[0];
        uint256 end = uint256(found.segment) + 1;
        return fallen[end - 1] == settled[end - 1] && found.root == settled[end];
    }

    /// @dev The finders of those that are right and were announced before the first such was shown.
    function _first(Found[] calldata found, bool[] memory right) private pure returns (address[] memory) {
        uint256 cut = type(uint256).max;
        for (uint256 i; i < found.length; ++i) {
            if (right[i] && found[i].shown < cut) cut = found[i].shown;
        }
        return _finders(found, right, cut);
    }

    /// @dev Where no truth tells: the finders of all whose games were won.
    function _won(Found[] calldata found) private pure returns (address[] memory) {
        bool[] memory won = new bool[](found.length);
        for (uint256 i; i < found.length; ++i) {
            won[i] = found[i].won;
        }
        return _finders(found, won, type(uint256).max);
    }

    function _finders(Found[] calldata found, bool[] memory chosen, uint256 cut)
        private
        pure
        returns (address[] memory finders)
    {
        finders = new address[](found.length);
        uint256 n;
        for (uint256 i; i < found.length; ++i) {
            if (chosen[i] && found[i].announced < cut) finders[n++] = found[i].finder;
        }
        finders.truncate(n);
    }

    function _requireAll(bytes32 claimId, Found[] calldata found) private view {
        bytes32 all;
        for (uint256 i; i < found.length; ++i) {
            Found memory shown = found[i];
            shown.won = false;
            all = keccak256(abi.encode(all, _hash(shown), found[i].won));
        }
        if (all != findingsOf[claimId]) revert WrongFindings(findingsOf[claimId]);
    }

    /// @dev These are the states at the ends of the claim's segments.
    function _requireRoots(Claim calldata claim, bytes32[] calldata roots)
        private
        view
        returns (bytes32 claimId)
    {
        if (Merkle.root(roots) != claim.segmentsRoot) revert BadProof();
        return _idOf(claim);
    }
}
