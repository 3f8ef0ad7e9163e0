"""The section of job files that names an outer algorithm, and what each one's paper writes in it.

Contract: `unsuitable` says what is wrong with a section by itself; `PAPERS` has the keys of a job file that
differ from a template's for each algorithm, as far as it is published. Not guaranteed: that a paper's numbers
suit another model; they are where to begin.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Literal, get_args

from pydantic import Field

from assay.job.uses import EVALUATE, GRPO, INFER, OWN
from assay.job.values import Count, Decay, Number, Rate, Section

OF_STREAMING = ("fragments", "overlap_rounds", "alpha")
"""Keys that no other algorithm has."""
MAX_OVERLAP = 254
"""Rounds: a link's lag, which is one more, is a byte (docs/protocol.md)."""
BLOCKS = {
    "diloco-u8": 4096,
    "diloco-4bit": 64,
    "diloco-int4": 64,
    "diloco-2bit": 64,
    "muloco": 64,
    "diloco-late": 64,
    "streaming": 64,
    "eager": 64,
}
"""How many numbers that are sent share a scale, or a table of values, where nobody says another."""
MAX_BLOCK = 4096
"""Numbers: the terms of one sum or one maximum that the arbiter recomputes (docs/protocol.md, 2.5)."""
RANKS = {4: 257, 16: 2417, 32: 8885}
"""By columns how many instructions a matrix takes to make; a program has 65,536."""
MAX_RANK = max(RANKS)


@dataclass(frozen=True)
class Own:
    """A whole number that some algorithms have and others have not."""

    usual: Mapping[str, int]
    """By algorithm what it is where nobody says another."""
    told: str
    """The comment beside it in a job file."""
    of: str
    """What an algorithm has that has it."""
    most: int | None = None
    why: str = ""
    """Why it is no more."""
    sent: bool = True
    """Whether it decides how much is sent."""


NUMBERS = {
    "block_size": Own(BLOCKS, "numbers that share a scale", "sends something that has a scale for a block"),
    "top_k": Own(
        {"demo": 32, "sparseloco": 64},
        "numbers of every chunk that are sent, the largest",
        "sends the largest numbers of chunks",
    ),
    "chunk_side": Own(
        {"demo": 64, "sparseloco": 64},
        "a chunk has as many numbers as its square",
        "sends the largest numbers of chunks",
        MAX_BLOCK,
        "the cosine transform's sums are of a side's numbers, and the arbiter recomputes sums of 4096 terms",
    ),
    "rank": Own(
        {"powersgd": 4},
        "columns and rows of every matrix that are sent",
        "sends columns and rows of low rank",
        MAX_RANK,
        "columns are made orthogonal one to another, in a number of instructions that grows with its square",
    ),
    "trim": Own(
        {"diloco-trimmed": 1},
        "of the least and of the greatest of every number, left out",
        "has a trimmed mean",
        sent=False,
    ),
}
"""By their keys in [outer]; what each sets is ``training.round_names.NUMBERS``'s, which takes long to import.
A trimmed mean's bound is the job's min_shards (``training.sound``)."""


class Outer(Section):
    """What shards send and how the parameters follow, by its name in ``training.round_names``; the rate and
    the momentum of its outer rule, which "evaluate", "infer" and "grpo" have not (``jobfile.uses``), and an
    algorithm of one's "own" has itself (``training.recipe``). `momentum_every`: after how many rounds the
    momentum of "delayed-nesterov" moves; of no other. `fragments`, `overlap_rounds` (τ, in rounds) and
    `alpha` are "streaming"'s, of no other; without them it has ``training.outer.Overlap``'s. `block_size`:
    how many numbers that are sent share a scale, or a table of values; `top_k`: how many numbers of a chunk
    are sent, the largest, and `chunk_side`: the root of how many a chunk has; `rank`: columns and rows of a
    matrix that are sent; `trim`: how many of the least and of the greatest shards' numbers a mean leaves out.
    These are of the algorithms that have such (`NUMBERS`); without them they are the algorithm's own.
    `slices`: into how many equal parts the outer step is cut; without it there is
    one, of whole tensors."""

    algorithm: Literal[
        "fedavg",
        "fedopt",
        "lofi",
        "data-parallel",
        "diloco",
        "diloco-u8",
        "diloco-4bit",
        "diloco-int4",
        "diloco-2bit",
        "muloco",
        "demo",
        "sparseloco",
        "powersgd",
        "diloco-late",
        "diloco-trimmed",
        "diloco-median",
        "diloco-centred",
        "streaming",
        "eager",
        "evaluate",
        "infer",
        "grpo",
        "delayed-nesterov",
        "dipaco",
        "own",
    ]
    learning_rate: Rate
    momentum: Decay
    momentum_every: Count | None = None
    fragments: Count | None = None
    overlap_rounds: Annotated[int, Field(strict=True, ge=0, le=MAX_OVERLAP)] | None = None
    alpha: Number | None = None
    block_size: Annotated[int, Field(strict=True, ge=1, le=MAX_BLOCK)] | None = None
    top_k: Count | None = None
    chunk_side: Count | None = None
    rank: Count | None = None
    trim: Count | None = None
    slices: Count | None = None


def numbers_in(outer: Outer) -> dict[str, int]:
    """Those of `NUMBERS` that the section states."""
    return {key: number for key in NUMBERS if (number := getattr(outer, key)) is not None}


def unsuitable(outer: Outer) -> str:
    """What is wrong with a section; empty if nothing is."""
    name = outer.algorithm
    if (outer.momentum_every is None) == (name == "delayed-nesterov"):
        return "outer.momentum_every: delayed-nesterov needs it, and no other algorithm has it"
    given = [key for key in OF_STREAMING if getattr(outer, key) is not None]
    if given and name != "streaming":
        return f"outer.{given[0]}: streaming may have it, and no other algorithm has it"
    for key, number in numbers_in(outer).items():
        own = NUMBERS[key]
        if name not in own.usual:
            return f"outer.{key} is for an algorithm that {own.of}: {', '.join(own.usual)}; not for {name}"
        if own.most is not None and number > own.most:
            return f"outer.{key} is {number}, and at most {own.most}: {own.why}"
    if outer.alpha is not None and not 0 <= outer.alpha < 1:
        return (
            f"outer.alpha is {outer.alpha}; it is at least 0.0, a shard goes on with what came of the outer"
            " step, and below 1.0, it keeps its own and learns nothing from the others"
        )
    if name == OWN and (outer.learning_rate or outer.momentum):
        return "outer: an algorithm of your own has its rate and momentum itself; write 0.0 for both"
    if not outer.learning_rate and name not in (EVALUATE, INFER, GRPO, OWN):
        return f"outer.learning_rate: by {name} with 0 nothing is ever learnt"
    return ""


_PLAIN = {"outer.learning_rate": "1.0", "outer.momentum": "0.0"}
_ONE_STEP = {"training.steps_per_round": "1", "training.segment_steps": "1"}
_GRADIENT = {"optimiser.momentum": "0.0", "optimiser.nesterov": "false"}
_FOUR = {"training.shards": "4", "training.min_shards": "4", "money.solver_stake": '"880tok"'}
PAPERS: dict[str, Mapping[str, str]] = {
    "fedavg": _PLAIN,
    "fedopt": {**_PLAIN, "outer.learning_rate": "0.1"},
    "lofi": {**_PLAIN, "training.rounds": "1"},
    "data-parallel": {**_PLAIN, **_ONE_STEP},
    "muloco": {"outer.momentum": "0.6"},
    "demo": {**_PLAIN, **_ONE_STEP, **_GRADIENT, "outer.learning_rate": "0.001"},
    "sparseloco": _PLAIN,
    "streaming": {"outer.learning_rate": "0.4", "training.rounds": "4"},
    "diloco-late": {"outer.momentum": "0.0"},
    "eager": {"outer.learning_rate": "0.4", "outer.momentum": "0.6"},
    "diloco-trimmed": _FOUR,
    "diloco-median": _FOUR,
    "diloco-centred": _FOUR,
    "dipaco": {**_FOUR, "outer.learning_rate": "0.65"},
}
"""By algorithm: "section.key" to its value; any other has a template's 0.7 and 0.9, DiLoCo's. With these late
changes and those of paths grow, so `diloco-late`, `eager` and `dipaco` have what holds (decision 0061)."""
MORE_KEYS = {
    "delayed-nesterov": """momentum_every = 1          # rounds, whose sum the momentum sees

[speeds]                    # the last shards are for slower machines: `assay solver run --slow`
slow_shards = 1
slow_by = 4                 # they take a quarter of the steps, in as many segments""",
    "streaming": """fragments = 4               # of the parameters; each is sent once in so many rounds
overlap_rounds = 1          # between a fragment's outer step and its mixing in; below fragments
alpha = 0.5                 # how much of its own a shard keeps in mixing: 0.0 none""",
    "dipaco": """
[paths]                     # modules that shards share: docs/concepts.md, paths of modules
modules = 2                 # of each level; 2 levels of them make 4 paths, one a shard
levels = {levels}""",
}
"""What such a file has after [outer]'s momentum and no other has; of the levels of paths see `levels_of`."""


def levels_of(parameters: Iterable[str]) -> tuple[str, ...]:
    """Patterns of two levels of modules, for a model's parameters by their names: its first two numbered
    blocks, or else its first two modules; fewer where it has fewer."""
    names = list(parameters)
    blocks = [found[0] for name in names if (found := re.match(r".*?\.\d+(?=\.)", name))]
    modules = dict.fromkeys(blocks), dict.fromkeys(name.partition(".")[0] for name in names)
    of_two = next((found for found in modules if len(found) > 1), modules[1])
    return tuple(f"{module}.*" for module in list(of_two)[:2])


def more_keys(name: str, levels: Iterable[str]) -> str:
    """Lines of [outer], and sections after it, that an algorithm's file has and others have not."""
    own = [f"{key} = {n.usual[name]}  # {n.told}" for key, n in NUMBERS.items() if name in n.usual]
    more = MORE_KEYS.get(name, "").replace("{levels}", json.dumps([[pattern] for pattern in levels]))
    return "\n".join(lines for lines in (*own, more) if lines)


OPTIMISERS = {"muloco": "muon", "demo": "sgd", "data-parallel": "sgd"}
"""What shards train with, where the algorithm is about nothing else."""
TRAINED = tuple(
    name
    for name in get_args(Outer.model_fields["algorithm"].annotation)
    if name not in (EVALUATE, INFER, GRPO, OWN)
)
"""Algorithms that train by an outer step."""
