"""Catalogue of the outer algorithms by name, with everything that differs between them.

Contract: the job file's schema, `assay job init`, the fees, the checks, the warnings and the tables of
docs/concepts.md read `CATALOGUE` and `NUMBERS`. A new algorithm is a new entry. Importing this module does
not import PyTorch. Not guaranteed: that a paper's numbers suit another model.

Rates and momenta are the papers' where they exist; late changes have no or less momentum (decision 0038).
FedOpt's rate and ε are tuned for every task in Reddi 2021; 0.1 for both is a starting point. Liu 2024 takes
Δ/N for changes that arrive singly, so that N of them move θ as far as one round of DiLoCo. Here a change is
the mean of all shards. MuLoCo keeps its whole residual (β = 1).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, Literal

from assay.protocol.errors import Stop
from assay.training.algorithms import (
    Algorithm,
    DelayedNesterov,
    MedianNorm,
    Nesterov,
    OuterAdam,
    OuterSgd,
    Sign,
)
from assay.training.codings import E3M0, Bins, Integers, Largest

if TYPE_CHECKING:
    from assay.training.outer import DiLoCo

EVALUATE, INFER, GRPO = "evaluate", "infer", "grpo"
OTHER_USES = frozenset({EVALUATE, INFER, GRPO})
"""Names in a job file of uses without an outer algorithm: ``training.evaluation``, ``training.inference`` and
``training.actors``."""
OWN = "own"
"""Name in a job file of an outer algorithm from the client's recipe."""

Round = Literal["whole", "coded", "streaming"]
LOOPS: dict[Round, int] = {"whole": 1, "coded": 2, "streaming": 3}
"""Loops of a task by kind of round: whole parameters, a coded change, ``training.streaming``."""
_UNSLICED: dict[Round, str] = {
    "streaming": "its rounds go through fragments, which are parts already",
}


@dataclass(frozen=True)
class Needs:
    """The optimiser that an algorithm is defined with.

    `zero`: settings that must be 0; `why`: the reason, in which ``{optimiser}`` is the given one.
    """

    optimiser: str
    zero: tuple[str, ...]
    why: str
    hint: str


@dataclass(frozen=True)
class Entry:
    """An outer algorithm with the numbers that `assay job init` writes."""

    algorithm: Algorithm
    travels: str
    """What a shard sends; a column of docs/concepts.md, as are `follows` and `paper`."""
    follows: str
    """How θ follows."""
    paper: str
    round: Round = "coded"
    keys: Mapping[str, str] = field(default_factory=dict)
    """Job file values by "section.key" that differ from a template's; rate and momentum are the rule's."""
    fees: tuple[float, float, float] | None = None
    """verifier_fee, verifier_stake and solver_stake, in tokens at a price of 20, that pay for its votes (the
    worst of three templates); None: a template's do."""
    unpaid: bool = False
    """True if no share of the price pays for a vote, which costs several times a task."""
    needs: Needs | None = None
    one_step: str = ""
    """Why a round is one step; empty if it need not be."""
    one_round: bool = False
    """True if the job is one round."""
    requires: tuple[str, ...] = ()
    """Required keys of [outer] that no other algorithm has."""
    admits: tuple[str, ...] = ()
    """Optional keys of [outer] that no other algorithm has."""
    more: str = ""
    """Text after [outer]'s momentum in a job file."""

    @property
    def unsliced(self) -> str:
        """Why an outer step cannot be cut into slices; empty if it can."""
        mixes = (getattr(part, "mixes", "") for part in (self.algorithm.coding, self.algorithm.mean))
        return _UNSLICED.get(self.round, "") or next(filter(None, mixes), "")

    @property
    def learning_rate(self) -> float:
        """Learning rate of the outer rule."""
        return float(getattr(self.algorithm.rule, "lr"))  # noqa: B009

    @property
    def momentum(self) -> float:
        """Momentum of the outer rule; 0 if it has none."""
        return float(getattr(self.algorithm.rule, "momentum", 0.0))


_DILOCO = "DiLoCo, Douillard 2023"
_RULE = f"rule: {_DILOCO}"
_PRIME = "coding: PRIME, Jaghouar 2024"
_NESTEROV = "Nesterov momentum"
_ONE_STEP = {"training.steps_per_round": "1", "training.segment_steps": "1"}
_FEES_8, _FEES_4, _FEES_2 = (3.11, 54, 385), (3.23, 56, 390), (3.13, 54, 386)
_FEDAVG = Entry(Algorithm(OuterSgd()), "the change, f32", "plain", "FedAvg, McMahan 2017")

CATALOGUE: dict[str, Entry] = {
    "fedavg": _FEDAVG,
    "fedopt": replace(_FEDAVG, algorithm=Algorithm(OuterAdam()), follows="Adam", paper="FedOpt, Reddi 2021"),
    "lofi": replace(
        _FEDAVG,
        travels="the change, f32, once: all of the job is one round",
        paper="lo-fi, Wortsman 2022: FedAvg of one round",
        keys={"training.rounds": "1"},
        one_round=True,
    ),
    "data-parallel": replace(
        _FEDAVG,
        travels="the change, f32, after every step; train with `sgd`",
        paper="FedAvg of one step of SGD: the mean of the steps is the step of the mean gradient",
        keys=_ONE_STEP,
        unpaid=True,
        one_step="after which all have the same",
        needs=Needs(
            "sgd",
            ("clip_norm",),
            "the mean of the shards' steps is the step of their mean gradient for SGD without clipping alone",
            'write name = "sgd" and clip_norm = 0.0 in [optimiser], or take fedavg, which averages any',
        ),
    ),
    "diloco": Entry(Algorithm(Nesterov()), "parameters, f32", _NESTEROV, _DILOCO, round="whole"),
    "diloco-u8": Entry(
        Algorithm(Nesterov(), Bins(8), feedback=1.0),
        "the change in 8 bits, with feedback",
        _NESTEROV,
        _PRIME,
        fees=_FEES_8,
    ),
    "diloco-4bit": Entry(
        Algorithm(Nesterov(), E3M0(), feedback=1.0),
        "the change in 4 bits (sign and exponent), with feedback",
        _NESTEROV,
        "coding: Streaming DiLoCo, Douillard 2025",
        fees=_FEES_4,
    ),
    "diloco-int4": Entry(
        Algorithm(Nesterov(), Integers(4), feedback=1.0),
        "the change in 4 bits as whole multiples of a step, with feedback",
        _NESTEROV,
        _RULE,
        fees=(2.56, 43, 363),
    ),
    "diloco-2bit": Entry(
        Algorithm(Nesterov(), Bins(2, 64), feedback=1.0),
        "the change in 2 bits, with feedback",
        _NESTEROV,
        "coding: SparseLoCo, Sarfi 2025",
        fees=_FEES_2,
    ),
    "muloco": Entry(
        Algorithm(Nesterov(0.7, 0.6), Bins(2, 64), feedback=1.0),
        "the change in 2 bits, with feedback; train with `muon`",
        _NESTEROV,
        "MuLoCo, Thérien 2025",
        fees=_FEES_2,
        needs=Needs(
            "muon",
            (),
            "muloco is Muon within and Nesterov's momentum outside, and the shards train with {optimiser}",
            'write name = "muon" in [optimiser], or algorithm = "diloco-2bit"',
        ),
    ),
    "demo": Entry(
        Algorithm(Sign(1e-3), Largest(32, 64), feedback=0.999, gain=1e-3),
        "the 32 largest cosines of every 64 × 64; rounds of one step",
        "sign; no momentum",
        "DeMo, Peng 2024",
        keys={**_ONE_STEP, "optimiser.momentum": "0.0", "optimiser.nesterov": "false"},
        unpaid=True,
        one_step="whose change is the gradient",
        needs=Needs(
            "sgd",
            ("momentum", "weight_decay", "clip_norm"),
            "demo has the momentum itself, so a step's change must be the gradient",
            'write name = "sgd" in [optimiser], with momentum, weight_decay and clip_norm 0.0',
        ),
    ),
    "sparseloco": Entry(
        Algorithm(OuterSgd(), Largest(64, 64, False, Bins(2)), feedback=0.95, mean=MedianNorm()),
        "the 64 largest of every 4,096, in 2 bits, with feedback",
        "mean of those sent, norms clipped; no momentum",
        "SparseLoCo, Sarfi 2025",
        fees=(9.86, 189, 655),
    ),
    "diloco-late": Entry(
        Algorithm(Nesterov(0.7, 0.0), E3M0(), feedback=1.0, late=1),
        "the change in 4 bits, of a round that began from θ of a round before",
        "plain: Nesterov's with momentum 0.0",
        _RULE,
        fees=_FEES_4,
    ),
    "streaming": Entry(
        Algorithm(Nesterov(0.4, 0.9), E3M0()),
        "a fragment of the change a round, a quarter, in 4 bits; mixed in two rounds later",
        _NESTEROV,
        "Streaming DiLoCo, Douillard 2025",
        round="streaming",
        keys={"training.rounds": "4"},
        fees=(3.47, 61, 400),
        admits=("fragments", "overlap_rounds", "alpha"),
        more="""fragments = 4               # of the parameters; each is sent once in so many rounds
overlap_rounds = 1          # between a fragment's outer step and its mixing in; below fragments
alpha = 0.5                 # how much of its own a shard keeps in mixing: 0.0 none""",
    ),
    "delayed-nesterov": Entry(
        Algorithm(DelayedNesterov()),
        "the change, f32; made for shards of two speeds",
        "momentum once for the changes of `momentum_every` rounds",
        "delayed Nesterov, Liu 2024",
        requires=("momentum_every",),
        more="""momentum_every = 1          # rounds, whose sum the momentum sees

[speeds]                    # the last shards are for slower machines: `assay solver run --slow`
slow_shards = 1
slow_by = 4                 # they take a quarter of the steps, in as many segments""",
    ),
}
RECIPES = {name: entry.algorithm for name, entry in CATALOGUE.items() if entry.round in ("whole", "coded")}
"""Entries that are just an `Algorithm`: one compression and one outer step a round."""
WHOLE = next(name for name, entry in CATALOGUE.items() if entry.round == "whole")
"""The algorithm that sends whole parameters: the default."""


@dataclass(frozen=True)
class Number:
    """An integer key of [outer]: `field` of codings that are one of `kinds`."""

    kinds: tuple[type, ...]
    field: str
    comment: str
    """Comment in a job file."""
    of: str
    """Description of the algorithms that have it."""
    bounds: str
    """Bounds in docs/concepts.md."""
    most: int
    why: str
    """Reason for the maximum `most`."""

    def of_algorithm(self, algorithm: Algorithm) -> int | None:
        """The algorithm's value; None if it has no such number."""
        coding = algorithm.coding
        return int(getattr(coding, self.field)) if type(coding) in self.kinds else None

    @property
    def usual(self) -> dict[str, int]:
        """Default by algorithm."""
        found = {name: self.of_algorithm(entry.algorithm) for name, entry in CATALOGUE.items()}
        return {name: number for name, number in found.items() if number is not None}


_SUMS = "the arbiter recomputes sums and maxima of 4096 terms"
_INT = (1 << 31) - 1
NUMBERS = {
    "block_size": Number(
        (E3M0, Integers, Bins),
        "block",
        "numbers that share a scale",
        "sends something that has a scale for a block",
        "1 to 4,096",
        4096,
        _SUMS,
    ),
    "top_k": Number(
        (Largest,),
        "k",
        "numbers of every chunk that are sent, the largest",
        "sends the largest numbers of chunks",
        "1 to the square of `chunk_side`",
        _INT,
        "",
    ),
    "chunk_side": Number(
        (Largest,),
        "side",
        "a chunk has as many numbers as its square",
        "sends the largest numbers of chunks",
        "1 to 4,096",
        4096,
        f"the cosine transform's sums are of a side's numbers, and {_SUMS}",
    ),
}
"""By key in [outer]."""


def entry_of(name: str) -> Entry:
    """Entry by name. Raises Stop for an unknown one."""
    if name not in CATALOGUE:
        raise Stop(f"there is no outer algorithm {name!r}", hint=f"choose one of {', '.join(CATALOGUE)}")
    return CATALOGUE[name]


def round_of(name: str) -> Round:
    """Kind of round of a job file's algorithm: coded for an own algorithm, one loop for a use without
    training."""
    return CATALOGUE[name].round if name in CATALOGUE else "coded" if name == OWN else "whole"


def defined_with(name: str) -> str:
    """The optimiser that the algorithm is defined with; empty if any."""
    needs = CATALOGUE[name].needs if name in CATALOGUE else None
    return "" if needs is None else needs.optimiser


def loops_of(name: str) -> int:
    """Number of loops of a task under this algorithm."""
    return LOOPS[round_of(name)]


def numbers_of(algorithm: Algorithm) -> dict[str, int]:
    """The algorithm's `NUMBERS` with their values."""
    held = {key: number.of_algorithm(algorithm) for key, number in NUMBERS.items()}
    return {key: number for key, number in held.items() if number is not None}


def with_numbers(algorithm: Algorithm, numbers: Mapping[str, int]) -> Algorithm:
    """The algorithm with these values. Raises Stop for a number that it does not have."""
    if unknown := sorted(set(numbers) - set(numbers_of(algorithm))):
        raise Stop(
            f"the outer algorithm has no number {unknown[0]}",
            hint=f"it has {', '.join(numbers_of(algorithm)) or 'none'}; leave {unknown[0]} out",
        )
    for key, number in numbers.items():
        coding: Any = algorithm.coding
        algorithm = replace(algorithm, coding=replace(coding, **{NUMBERS[key].field: number}))
    return algorithm


def algorithm_of(name: str, lr: float, momentum: float, every: int = 4) -> Algorithm:
    """The algorithm with this outer rate and momentum; `every`: rounds per move of a delayed momentum.

    Raises Stop if it is unknown or its rule has no momentum.
    """
    algorithm = entry_of(name).algorithm
    rule: Any = algorithm.rule
    has = {one.name for one in fields(rule)}
    if momentum and "momentum" not in has:
        raise Stop(
            f"the outer rule of {name} has no momentum, and momentum is {momentum}",
            hint="write momentum = 0.0",
        )
    said = {"lr": lr, "momentum": momentum, "every": every}
    return replace(algorithm, rule=replace(rule, **{key: said[key] for key in said if key in has}))


def outer_of(name: str, rule: DiLoCo, own: Algorithm | None = None) -> Algorithm | None:
    """The algorithm of a job; `own`: what `OWN` names. None if no shard sends a change. Raises Stop as
    `algorithm_of`."""
    if own is not None or name in OTHER_USES:
        return own
    return with_numbers(algorithm_of(name, rule.lr, rule.momentum, rule.every), dict(rule.numbers))


def unsliced_because(name: str) -> str:
    """Why an outer step by this algorithm cannot be cut into slices; empty if it can."""
    if name in CATALOGUE:
        return CATALOGUE[name].unsliced
    if name == OWN:
        return "whether an algorithm of your own works number by number is not known"
    return "it trains by no outer algorithm"
