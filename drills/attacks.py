"""Every numbered attack of docs/threats.md, with one test that shows how it ends.

Contract: the same numbers and words as there; the test is one of those that are named there. For some a
scenario shows it too, with processes and money (``drills.scenarios``); the others are about what one call
of a contract or one function of a node refuses, and there is nothing to watch.
"""

from __future__ import annotations

from dataclasses import dataclass

from drills.scenarios import SCENARIOS


@dataclass(frozen=True)
class Attack:
    """A numbered row of docs/threats.md."""

    number: int
    what: str
    file: str = ""
    """The test's, where there is no scenario."""
    name: str = ""

    @property
    def test(self) -> str:
        """Where the test is, or nothing."""
        return f"{self.file}::{self.name}" if self.file else ""


ATTACKS = (
    Attack(1, "interpolated checkpoints"),
    Attack(2, "a few honest steps, the rest invented"),
    Attack(3, "synthesised batch"),
    Attack(4, "restarted run, best seed kept"),
    Attack(5, "one element off by one unit in the last place"),
    Attack(6, "right weights, wrong optimiser state or counter"),
    Attack(7, "wrong initial state"),
    Attack(8, "wrong aggregate, omitted or duplicated delta"),
    Attack(9, "attest without fetching"),
    Attack(10, "copy a solver's or a peer's hash"),
    Attack(11, "a colluder hands over only a root"),
    Attack(12, "k Sybils split one reward"),
    Attack(13, "a verifier passes a planted fault"),
    Attack(14, "a whistleblower attacks a correct attestation"),
    Attack(15, "solver and all verifiers collude"),
    Attack(16, "a challenger loses on purpose to clear a claim"),
    Attack(17, "right end state, wrong interior"),
    Attack(18, "a challenger who agrees throughout"),
    Attack(19, "a solver front-runs its whistleblower with a sock puppet's challenge"),
    Attack(
        20,
        "a recipient that reverts or burns gas",
        "contracts/test/market/Ledger.t.sol",
        "test_Attack20_aReceiverThatRefusesHurtsOnlyItself",
    ),
    Attack(
        21,
        "refunds claimed by strangers",
        "contracts/test/market/Jobs.t.sol",
        "test_Attack21_onlyTheClientHaltsAndOnlyTheClientIsRefunded",
    ),
    Attack(
        22,
        "reentrancy through the token",
        "contracts/test/market/Ledger.t.sol",
        "test_Attack22_aTokenThatCallsBackFindsTheVaultClosed",
    ),
    Attack(23, "hundreds of junk challenges"),
    Attack(24, "both clocks dead"),
    Attack(25, "every move in the last second"),
    Attack(26, "a challenge in the window's last block"),
    Attack(
        27,
        "a hundred thousand stale claims",
        "contracts/test/market/Rewinds.t.sol",
        "test_Attack27_thousandsOfStaleClaimsDoNotDelaySettlement",
    ),
    Attack(
        28,
        "resubmission with a new salt",
        "contracts/test/market/Tasks.t.sol",
        "test_Attack28_aSecondAttemptWithANewSaltGetsASeedThatNobodyKnewBefore",
    ),
    Attack(
        29,
        "a proposer skips a slot, or tries contents of its block",
        "contracts/test/market/Seeds.t.sol",
        "test_Attack29_aBuilderThatTriesContentsAlwaysGetsTheSameDraw",
    ),
    Attack(
        30,
        "the seed is never recorded in time",
        "contracts/test/market/Seeds.t.sol",
        "test_Attack30_aSeedNeverRecordedIsReplacedByALaterOne",
    ),
    Attack(31, "a reorganisation changes the seed"),
    Attack(32, "a verifier drops unwanted draws"),
    Attack(33, "solver or client hides data, or one chunk"),
    Attack(34, "availability vouched for by the solver's own Sybils"),
    Attack(35, "stepping from a state whose preimage is unknown"),
    Attack(
        36,
        "a claim, vote or finding copied from the mempool",
        "contracts/test/market/Stragglers.t.sol",
        "test_Attack36_anOuterClaimCopiedFromTheMempoolIsRefusedWhileItIsReserved",
    ),
    Attack(
        37,
        "a move copied from the mempool",
        "contracts/test/dispute/Court.t.sol",
        "test_Attack37_onlyTheMoverMovesInItsPhaseAndTime",
    ),
    Attack(
        38,
        "proofs of wrong length, leaf/node confusion, overflow, missing domain separation",
        "contracts/test/market/Merkle.t.sol",
        "test_Attack38_aProofOfAnotherShapeIsNoProof",
    ),
    Attack(
        39,
        "repeat or skip of any lifecycle step",
        "contracts/test/market/Tasks.t.sol",
        "test_Attack39_noStepIsRepeatedOrSkipped",
    ),
    Attack(
        40,
        "wrong trace length or context",
        "contracts/test/dispute/Court.t.sol",
        "test_wrongNumberOfStepsIsRefused",
    ),
    Attack(
        41,
        "NaN, Inf, −0, subnormals, division by zero",
        "contracts/test/dispute/Court.t.sol",
        "test_Attack41_nonCanonicalNanLoses",
    ),
    Attack(
        42,
        "a step over the gas or size limit",
        "contracts/test/dispute/Gas.t.sol",
        "test_checkAtTheBound",
    ),
    Attack(43, "hostile manifests, CIDs, CAR files, bombs, huge shapes"),
    Attack(
        44,
        "any divergence between Solidity and PyTorch",
        "contracts/test/arbiter/Vectors.t.sol",
        "test_product",
    ),
    Attack(45, "a program that fails validation but was posted"),
    Attack(46, "a reorganisation below finality"),
    Attack(47, "the RPC node lies, stalls or restarts"),
    Attack(48, "a node killed at any instant"),
)


def scenarios_of(number: int) -> list[str]:
    """Names of the scenarios that show an attack."""
    return [scenario.name for scenario in SCENARIOS.values() if number in scenario.attacks]
