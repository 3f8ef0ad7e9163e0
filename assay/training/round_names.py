"""Rounds by the names that a job file gives them: `[outer] algorithm`.

Contract: what is named here can be trained by, with the outer rate and momentum of the job file; a name, a
momentum or a round's length that does not suit is refused with the reason.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from torch import Tensor

from assay.program.isa import MAX_SLOTS, Program
from assay.program.rules import TooLarge
from assay.protocol.errors import Stop
from assay.training.algorithms import (
    RECIPES,
    Algorithm,
    CentredClip,
    DelayedNesterov,
    MedianNorm,
    Nesterov,
    OuterAdam,
    OuterSgd,
    Sign,
    Trimmed,
)
from assay.training.codings import E3M0, Bins, Integers, Largest, LowRank
from assay.training.eager import eager_round
from assay.training.muon import Muon
from assay.training.optimisers import AdamW, Lion, Optimiser, Sgd
from assay.training.outer import DiLoCo, Overlap
from assay.training.overlap import Streaming
from assay.training.own_outer import told
from assay.training.paths import Paths, paths_round
from assay.training.rounds import Round, coded_round, diloco_round
from assay.training.slicing import least_slices
from assay.training.streaming import streaming_of, streaming_round

STREAMING = "streaming"
"""The one that sends a part of the parameters a round."""
EAGER = "eager"
"""The one whose shards go on from their own change before the others' has come."""
PATHS = "dipaco"
"""The one whose shards train paths through modules, each of which some of them share."""
NAMES = (*RECIPES, STREAMING, EAGER, PATHS)
"""What a job file may name to train by."""
OTHER_USES = frozenset({"evaluate", "infer", "grpo"})
"""What it names where there is no outer algorithm: ``training.evaluation``, ``training.inference`` and
``training.actors``; one loop a task."""
OWN = "own"
"""What it names where the client's recipe brings an algorithm of its own."""
DELAYED = "delayed-nesterov"
"""The one whose momentum moves once for the changes of several rounds."""
WHOLE = "diloco"
"""The one whose tasks are one loop: parameters travel as they are."""
ONE_STEP = {"demo": "whose change is the gradient", "data-parallel": "after which all have the same"}
"""Those whose round is one step, by their definition."""
ONE_ROUND = frozenset({"lofi"})
"""Those that average once."""


def loops_of(name: str) -> int:
    """Loops of a task under this algorithm."""
    return 1 if name in OTHER_USES else {WHOLE: 1, STREAMING: 3, EAGER: 3}.get(name, 2)


class Field(NamedTuple):
    """A whole number of what an algorithm is made of."""

    part: str
    """Of `Algorithm`."""
    kinds: tuple[type, ...]
    """Classes of the part that have it."""
    name: str
    """Of these classes."""


NUMBERS = {
    "block_size": Field("coding", (E3M0, Integers, Bins), "block"),
    "top_k": Field("coding", (Largest,), "k"),
    "chunk_side": Field("coding", (Largest,), "side"),
    "rank": Field("coding", (LowRank,), "rank"),
    "trim": Field("mean", (Trimmed,), "cut"),
}
"""By the key of a job file's [outer] that sets it."""


def numbers_of(algorithm: Algorithm) -> dict[str, int]:
    """Those of `NUMBERS` that the algorithm has, as it has them."""
    held = {key: (getattr(algorithm, field.part), field) for key, field in NUMBERS.items()}
    return {
        key: getattr(part, field.name) for key, (part, field) in held.items() if type(part) in field.kinds
    }


def with_numbers(algorithm: Algorithm, numbers: Mapping[str, int]) -> Algorithm:
    """The algorithm with these in the place of its own. Raises Stop for one that it has not."""
    if unknown := sorted(set(numbers) - set(numbers_of(algorithm))):
        raise Stop(
            f"the outer algorithm has no {unknown[0]}",
            hint=f"it has {', '.join(numbers_of(algorithm)) or 'no such numbers'}; leave {unknown[0]} out",
        )
    for key, number in numbers.items():
        field = NUMBERS[key]
        changed: Any = replace(getattr(algorithm, field.part), **{field.name: number})
        algorithm = replace(algorithm, **{field.part: changed})
    return algorithm


def algorithm_of(name: str, lr: float, momentum: float, every: int = 4) -> Algorithm:
    """The algorithm of this name with the outer rule's own rate and momentum, which moves after every so many
    rounds where it is delayed. Raises Stop where it is not known, or its rule has no momentum."""
    if name not in RECIPES:
        raise Stop(f"there is no outer algorithm {name!r}", hint=f"choose one of {', '.join(NAMES)}")
    recipe = RECIPES[name]
    rule = recipe.rule
    if isinstance(rule, Nesterov):
        return replace(recipe, rule=Nesterov(lr, momentum))
    if isinstance(rule, DelayedNesterov):
        return replace(recipe, rule=DelayedNesterov(lr, momentum, every))
    if momentum:
        raise Stop(
            f"the outer rule of {name} has no momentum, and {momentum} was given", hint="write momentum = 0.0"
        )
    assert isinstance(rule, OuterSgd | OuterAdam | Sign), "every recipe has one of these rules"
    return replace(recipe, rule=replace(rule, lr=lr))


def eager_of(rule: DiLoCo) -> Algorithm:
    """What eager updates send and how they follow."""
    return Algorithm(Nesterov(rule.lr, rule.momentum), E3M0(), feedback=1.0)


def outer_of(name: str, rule: DiLoCo, own: Algorithm | None = None) -> Algorithm | None:
    """What shards send by this name and how θ follows; `own`: the algorithm that `OWN` names. None where no
    shard sends a change. Raises Stop as `algorithm_of`."""
    if own is not None or name in OTHER_USES:
        return own
    if name == PATHS:
        found = Algorithm(Nesterov(rule.lr, rule.momentum))
    elif name == EAGER:
        found = eager_of(rule)
    elif name == STREAMING:
        found = replace(Streaming(()).algorithm, rule=Nesterov(rule.lr, rule.momentum))
    else:
        found = algorithm_of(name, rule.lr, rule.momentum, rule.every)
    return with_numbers(found, dict(rule.numbers))


def check_rounds(name: str, rounds: int, steps: int, segment_steps: int) -> None:
    """Whether so many rounds, of so many steps, suit the algorithm, in whole segments. Raises Stop."""
    if steps % segment_steps:
        raise Stop(
            f"a round of {steps} steps is not a multiple of its segments of {segment_steps}",
            hint="change steps_per_round or segment_steps",
        )
    if name in ONE_STEP and steps != 1:
        raise Stop(
            f"a round of {name} is one step, {ONE_STEP[name]}; steps_per_round is {steps}",
            hint="write steps_per_round = 1 and segment_steps = 1",
        )
    if name in ONE_ROUND and rounds != 1:
        raise Stop(
            f"by {name} every shard trains alone, and all are averaged once at the end; rounds is {rounds}",
            hint="write rounds = 1, and all the steps in steps_per_round; fedavg averages every round",
        )


def check_optimiser(name: str, optimiser: Optimiser) -> None:
    """Whether one of our optimisers is what the algorithm is defined with; of others nothing is known. Raises
    Stop."""
    ours = isinstance(optimiser, AdamW | Lion | Muon | Sgd)
    if name == "muloco" and ours and not isinstance(optimiser, Muon):
        raise Stop(
            "muloco is Muon within and Nesterov's momentum outside, and the shards train with"
            f" {type(optimiser).__name__}",
            hint='write name = "muon" in [optimiser], or algorithm = "diloco-2bit"',
        )
    sgd = optimiser if isinstance(optimiser, Sgd) and not optimiser.clip_norm else None
    if name == "demo" and ours and (sgd is None or sgd.momentum or sgd.weight_decay):
        raise Stop(
            "demo has the momentum itself, so a step's change must be the gradient",
            hint='write name = "sgd" in [optimiser], with momentum, weight_decay and clip_norm 0.0',
        )
    if name == "data-parallel" and ours and sgd is None:
        raise Stop(
            "the mean of the shards' steps is the step of their mean gradient for SGD without clipping alone",
            hint='write name = "sgd" and clip_norm = 0.0 in [optimiser], or take fedavg, which averages any',
        )


def check_speeds(slow_shards: int, slow_by: int, shards: int, segment_steps: int) -> None:
    """Whether the last `slow_shards` of the shards can take `slow_by` times fewer steps, in as many segments.
    Raises Stop."""
    if slow_shards >= shards:
        raise Stop(
            f"all of {shards} shards would be slow",
            hint="write slow_shards below [training] shards; or fewer steps_per_round for all",
        )
    if segment_steps == 1:
        raise Stop(
            "slow shards take fewer steps, in as many segments, and a segment here is one step",
            hint="leave [speeds] out, or give a segment more steps where the algorithm's rounds have more",
        )
    if segment_steps % slow_by:
        raise Stop(
            f"slow shards take {slow_by} times fewer steps, in as many segments, and a segment of"
            f" {segment_steps} steps is no multiple of {slow_by}",
            hint="change slow_by or segment_steps",
        )


def unsliced_because(name: str) -> str:
    """Why an outer step by this algorithm cannot be cut into slices; empty if it can."""
    if name == OWN:
        return "whether an algorithm of your own works number by number is not known"
    if name in RECIPES:
        algorithm = RECIPES[name]
        if isinstance(algorithm.coding, Largest):
            return "its wire is the largest numbers of chunks of a whole parameter"
        if isinstance(algorithm.coding, LowRank):
            return "its wire is of whole matrices"
        if isinstance(algorithm.mean, MedianNorm | CentredClip):
            return "it clips by norms of whole parameters, of which a slice has a part"
        return ""
    if name == PATHS:
        return "its tasks read modules, which are parts already"
    if name == STREAMING:
        return "its rounds go through fragments, which are parts already"
    if name == EAGER:
        return "its outer claim keeps more than a slice's own part"
    return "it trains by no outer algorithm"


def check_slices(name: str) -> None:
    """Whether an outer step by this algorithm can be cut into slices. Raises Stop with the reason if not."""
    if why := unsliced_because(name):
        raise Stop(
            f"the outer step of {name} cannot be cut into slices: {why}",
            hint="leave slices out of [outer], or choose diloco, diloco-4bit or another that works number by"
            " number",
        )


def made_round(
    name: str,
    train: Program,
    genesis: Sequence[Tensor],
    names: Sequence[str],
    shards: int,
    rule: DiLoCo,
    paths: Paths | None = None,
    slices: int = 1,
    own: Algorithm | None = None,
) -> Round:
    """The round of the algorithm of this name; `rule`: its outer rate and momentum; `paths` of DiPaCo;
    `slices`: into how many equal runs of slots the parameters are cut; `own`: the algorithm that `OWN` names.
    Raises Stop."""
    if slices > 1:
        check_slices(name)
    try:
        if (least := (1 + shards) * train.params // slices) > MAX_SLOTS:  # before all of it is traced in vain
            raise TooLarge(f"a program has at most {MAX_SLOTS} slots, and these take {least} or more")
        if name == WHOLE and paths is None and own is None:
            return diloco_round(train, genesis, names, shards, rule, slices)
        algorithm = outer_of(PATHS if paths is not None else name, rule, own)
        assert algorithm is not None, "a job that trains has one"
        if paths is not None:
            return paths_round(algorithm, paths, train, genesis, names)
        if own is not None:
            return coded_round(told(own), train, genesis, names, shards)
        return _made(name, algorithm, train, genesis, names, shards, rule.overlap, slices)
    except TooLarge as error:
        tensors = f"{train.params} parameter tensor{'s' if train.params > 1 else ''}"
        way_out = "take fewer shards or a model with fewer and larger tensors (docs/scale.md)"
        if slices > 1:
            way_out = "write fewer slices in [outer]"
        elif not unsliced_because(name):
            needed = least_slices([node.shape for node in train.state[: train.params]], shards)
            way_out = f"write slices = {needed} or more in [outer], or take fewer shards (docs/scale.md)"
        raise Stop(
            f"{tensors} of {shards} shards are too many for one outer step by {name}: {error}", hint=way_out
        ) from error


def _made(
    name: str,
    algorithm: Algorithm,
    train: Program,
    genesis: Sequence[Tensor],
    names: Sequence[str],
    shards: int,
    overlap: Overlap,
    slices: int,
) -> Round:
    if name == STREAMING:
        shapes = [node.shape for node in train.state[: train.params]]
        return streaming_round(streaming_of(shapes, algorithm, overlap), train, genesis, names, shards)
    if name == EAGER:
        return eager_round(algorithm, train, genesis, names, shards)
    return coded_round(algorithm, train, genesis, names, shards, slices)
