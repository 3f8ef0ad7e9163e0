"""Templates of the job files that ``assay job init`` writes.

Contract: every text is a complete job file, with every key that ``job.read`` reads and comments where needed.
Not guaranteed: that the learning rates suit another shape of model.
"""

from __future__ import annotations

import re
import tomllib
from fractions import Fraction
from math import ceil

from assay.app.units import parse_duration
from assay.job.amounts import PRICE, least_amounts
from assay.job.optimisers import optimiser_text
from assay.job.outer import more_keys
from assay.job.read import BadJobFile, JobFile, parse_job_file
from assay.protocol.params import MAX_CALLS, least_stake, price_at, wasted_at_most
from assay.protocol.types import Wei
from assay.protocol.words import meant, show_amount
from assay.training.catalogue import CATALOGUE, OWN
from assay.training.optimisers import OPTIMISERS

_COMMON = """
[training]
seed = 1                    # data order; with the shard and the step it decides every batch
batch = {batch}                   # rows a pass
accumulate = 1              # passes a step, whose gradients are averaged; each multiplies the program
micro_steps = 1             # steps that are one step of the optimiser, on their mean gradient
shards = 2
min_shards = 2              # accepted tasks with which a round closes once its stragglers' time is over
rounds = {rounds}                  # outer steps
steps_per_round = 64        # inner steps between two outer steps
segment_steps = 4           # a solver commits to its state this often; a verifier replays whole segments

[outer]                     # what shards send, and how the parameters follow
algorithm = "diloco"        # others, with their papers' numbers and fees: `job init --algorithm`
learning_rate = 0.7
momentum = 0.9

[verification]
verifiers = 2               # seats of each task's draw, by stake
samples = 1                 # segments that each of them replays
seed_delay_blocks = {seed_delay}      # whoever makes that many blocks in a row knows the draw when it commits
max_unsettled_rounds = 4

[times]
task = "{task}"
straggler = "{straggler}"         # after `task`, for the votes: a round may then close without the others
outer = "{outer}"              # for which the outer step is reserved to one shard's holder
vote = "{vote}"
challenge_window = "{window}"
move = "{move}"
price_period = "60s"

[money]                     # why these amounts: docs/economics.md; in proportion to the price cap
price_floor = "10tok"       # a task; rises to the cap until somebody takes the shard
price_cap = "20tok"
verifier_fee = "3tok"       # above what a replay costs
outer_fee = "1tok"
solver_stake = "440tok"     # locked by each claim; 8/3 of what its conviction may waste, at least
verifier_stake = "40tok"    # locked by each seat of a draw
challenge_bond = "20tok"
miss_penalty = "20tok"      # for no vote, a false invalid one, a missed task; at most half a stake

[class]                     # of conditions: what verifiers subscribe to, with counts, times and stakes above
least_fee = "2.2tok"        # what a vote costs at the price's cap
nodes = 65536               # at most, here and below
segments = 256
segment_steps = 64
data_bytes = 4294967296
state_bytes = 8589934592
step_bytes = 17179869184
step_operations = 1000000000000000
"""

_TOY = """# A toy: a few minutes of training, to see the market work, on far too little data to learn from.
# To learn something, raise rounds, steps_per_round and batch, then the model; and the budget with the rounds
# (`assay job validate` says the most that it can cost). On a chain with other people on it: --no-local.
"""

_GPT = """{toy}# A byte-level GPT (about 0.8 million parameters) trained on text.
[model]
template = "gpt"
layers = 4
heads = 4
width = 128
context = 64

[data]
source = "{source}"           # the Python standard library's own source, or a path to your text
max_bytes = 4000000
"""

_MLP = """{toy}# A multi-layer perceptron on scikit-learn's digits.
[model]
template = "mlp"
hidden = 64
layers = 2

[data]
source = "digits"
max_bytes = 1000000
"""

_CNN = """{toy}# A small residual network on scikit-learn's digits.
[model]
template = "cnn"
width = 16                  # channels of the first block

[data]
source = "digits"
max_bytes = 1000000
"""

_OWN = """# A model of your own: {function} returns an assay.training.recipe.Recipe: module, loss and dataset.
# The optimiser is the recipe's, or [optimiser] and [schedule] of this file. The function runs on this machine
# only; all others run the program that is traced from it.
[model]
from = "{source}"
"""

_SCHEDULE = """
[schedule]                  # of the learning rate, in steps of one shard counted over all rounds
warmup_steps = 0            # rising from nothing
decay = "constant"          # or "linear", "cosine", "exponential", "wsd" (its last fifth)
total_steps = 0             # at which the decay ends; 0: with the job
floor = 0.0                 # share of the learning rate that is left then
"""

_PRECISION = """
[precision]                 # against outliers, at the price of speed: docs/decisions/0028-outliers.md
products = "{precision}"           # "single"; "split": operands in two parts; "auto": where it is needed

[precision.at]              # otherwise for products of single lines, such as "my_model.py:31" = "split"
"""

_HEADS = {"gpt": (_GPT, 4, "adamw"), "mlp": (_MLP, 32, "sgd"), "cnn": (_CNN, 32, "sgd")}
"""By template: its sections, rows per pass, and usual optimiser."""
LOCAL = {
    "seed_delay": "2",
    "task": "120s",
    "outer": "30s",
    "vote": "60s",
    "window": "60s",
    "move": "3m",
}
"""Times for a local chain; `seed_delay` in blocks."""
PUBLIC = {
    "seed_delay": "32",
    "task": "1h",
    "outer": "10m",
    "vote": "30m",
    "window": "1d",
    "move": "1h",
}
"""Times for a public chain."""


def _aligned(text: str) -> str:
    """Aligns comments, whatever the values' lengths."""
    return re.sub(r"(?m)^([\w\[].*?) +(# .*)$", lambda line: f"{line[1]:<27} {line[2]}", text)


def common(batch: int, rounds: int, times: dict[str, str]) -> str:
    """The part that all job files share.

    A task of the last second still has time for its draw and every replacement draw, so that silent verifiers
    do not leave it out: twice the vote's time for each, half of it for blocks, unless `times` states another.
    """
    straggler = f"{2 * (1 + MAX_CALLS) * parse_duration(times['vote'])}s"
    return _aligned(_COMMON.format(batch=batch, rounds=rounds, **{"straggler": straggler, **times}))


def precision_section(precision: str) -> str:
    """A [precision] section with this precision for all products."""
    return _aligned(_PRECISION.format(precision=precision))


def optimiser_section(name: str) -> str:
    """The [optimiser] section with this name, and [schedule]. Raises BadJobFile for an unknown name."""
    if name not in OPTIMISERS:
        near = meant(name, OPTIMISERS)
        raise BadJobFile(
            f"there is no optimiser {name!r}{near}", hint=f"choose one of {', '.join(OPTIMISERS)}"
        )
    return optimiser_text(name) + _SCHEDULE


def stated(text: str, key: str, value: str) -> str:
    """Replaces one key's value, keeping its comment."""
    section, name = key.split(".")
    head = _head(text, section)
    assert head, f"a job file has [{section}]"
    before, rest = text[: head.end()], text[head.end() :]
    made, found = re.subn(rf"(?m)^{name} = (\".*?\"|\S+)", lambda _: f"{name} = {value}", rest, count=1)
    assert found, f"[{section}] has {name}"
    return before + made


def _head(text: str, section: str) -> re.Match[str] | None:
    """Finds the start of a section; a comment may name it before."""
    return re.search(rf"(?m)^\[{section}\]", text)


def by_algorithm(text: str, name: str, *, rounds: int = 0) -> str:
    """Changes a template's job file to another outer algorithm, with initial numbers and amounts that pay for
    its votes.

    `rounds` 0: the algorithm's own. Raises BadJobFile for an unknown name.
    """
    if name not in CATALOGUE:
        if name == OWN:
            raise BadJobFile(
                "an outer algorithm of your own needs a model of your own",
                hint="--from FILE.py:FUNCTION, whose Recipe(outer=...) has it, and no --algorithm",
            )
        unknown = f"there is no outer algorithm {name!r}{meant(name, CATALOGUE)}"
        raise BadJobFile(unknown, hint=f"choose one of {', '.join(CATALOGUE)}")
    entry = CATALOGUE[name]
    keys = {
        "outer.algorithm": f'"{name}"',
        "outer.learning_rate": str(entry.learning_rate),
        "outer.momentum": str(entry.momentum),
        **entry.keys,
    }
    if rounds:
        keys["training.rounds"] = str(rounds)
    if entry.fees is not None:
        fee, stake, solver = entry.fees
        keys["money.verifier_fee"] = f'"{max(3, fee)}tok"'
        keys["money.verifier_stake"] = f'"{stake:.0f}tok"'
        keys["money.miss_penalty"] = f'"{stake / 2:.1f}tok"'
        keys["money.solver_stake"] = f'"{max(440, solver, ceil(331 + 32 * fee))}tok"'  # 8/3·X, two shards
    for key, value in keys.items():
        if _head(text, key.partition(".")[0]):
            text = stated(text, key, value)
    if more := more_keys(name):
        head, mark, rest = text.partition("[outer]")
        outer, end, after = rest.partition("\n\n")
        text = head + mark + outer + "\n" + more + end + after
    return _aligned(text)


def by_own_algorithm(text: str) -> str:
    """Changes a job file to an outer algorithm from the recipe."""
    for key, value in (("algorithm", f'"{OWN}"'), ("learning_rate", "0.0"), ("momentum", "0.0")):
        text = stated(text, f"outer.{key}", value)
    return _aligned(text)


def escaped(text: str) -> str:
    """Escapes text for TOML quotes."""
    return text.replace("\\", "\\\\").replace('"', '\\"')


def template(name: str, *, source: str, rounds: int, times: dict[str, str], optimiser: str = "") -> str:
    """A complete job file; `optimiser` "": the template's usual one. Raises BadJobFile for an unknown
    name."""
    if name not in _HEADS:
        every = (*_HEADS, "eval", "infer", "grpo")
        near = meant(name, every)
        raise BadJobFile(f"there is no template {name!r}{near}", hint=f"choose one of {', '.join(every)}")
    head, batch, usual = _HEADS[name]
    sections = optimiser_section(optimiser or usual) + precision_section("single")
    return head.format(toy=_TOY, source=escaped(source)) + sections + common(batch, rounds, times)


def own_template(
    source: str,
    *,
    batch: int,
    rounds: int,
    times: dict[str, str],
    optimiser: str = "",
    precision: str = "auto",
) -> str:
    """A complete job file for the recipe `source` ("my_model.py:build").

    `optimiser` or `precision` "" leaves it to the recipe. Raises BadJobFile for an unknown name.
    """
    head = _OWN.format(function=source.rpartition(":")[2], source=escaped(source))
    chosen = optimiser_section(optimiser) if optimiser else ""
    chosen += precision_section(precision) if precision else ""
    return head + chosen + common(batch, rounds, times)


_RECIPE = '''"""Written by `assay job init --from-pretrained`: change it as you like."""

from pathlib import Path

from assay.training.pretrained import fine_tuning
from assay.training.recipe import Recipe

HERE = Path(__file__).parent


def build() -> Recipe:
    return fine_tuning(
        HERE / {model!r},
        HERE / {tokenizer!r},
        HERE / {data!r},
        context={context},  # tokens a record
        rank={rank},  # of the adapters; 0: all weights are trained
    )
'''


def fine_tuning_recipe(model: str, tokenizer: str, data: str, context: int, rank: int) -> str:
    """A recipe file whose `build` fine-tunes the model in a folder; paths are relative to the file's
    folder."""
    return _RECIPE.format(model=model, tokenizer=tokenizer, data=data, context=context, rank=rank)


def for_fine_tuning(text: str, adapters: bool) -> str:
    """Sets the usual rates for fine-tuning."""
    rates = {"adamw": (2e-4, 2e-5), "lion": (6e-5, 6e-6), "sgd": (1e-2, 1e-3)}
    name = tomllib.loads(text)["optimiser"]["name"]
    if name in rates:
        text = stated(text, "optimiser.learning_rate", str(rates[name][0 if adapters else 1]))
    for key, value in (("optimiser.weight_decay", "0.0"), ("optimiser.clip_norm", "1.0")):
        text = stated(text, key, value)
    return text


_TOK = 10**18
_SHOWN = _TOK // 100
"""Unit to which amounts are rounded up."""
_SECTION = """
[held_out]                  # the loss on these of the parameters with which each round begins
records = {records}
"""


def with_held_out(text: str, records: int, origin: str) -> str:
    """Adds the loss on this many held-out records to every round.

    It raises amounts that `job.amounts` finds too low, and the solver's stake to what a job may waste (rule
    3.1). `origin`: name of the file in errors. Raises BadJobFile for an algorithm that computes no such loss.
    """
    head, mark, rest = text.partition("\n[training]")
    text = head + _SECTION.format(records=records) + mark + rest
    body = parse_job_file(text, origin)
    amounts = least_amounts(body)
    assert amounts is not None, "held-out records have a price"
    money, cap = body.money, Fraction(body.money.price_cap, PRICE * _TOK)
    fee, stake, solver = (ceil(Fraction(amount) * _TOK * cap / _SHOWN) * _SHOWN for amount in amounts)
    fee, stake = max(fee, money.verifier_fee), max(stake, money.verifier_stake)
    solver = max(solver, money.solver_stake, _least_solver_stake(body, fee))
    miss = stake // 2 if stake > money.verifier_stake else money.miss_penalty
    for key, amount, was in (
        ("verifier_fee", fee, money.verifier_fee),
        ("verifier_stake", stake, money.verifier_stake),
        ("solver_stake", solver, money.solver_stake),
        ("miss_penalty", miss, money.miss_penalty),
    ):
        if amount != was:
            text = stated(text, f"money.{key}", f'"{show_amount(amount).replace(" ", "")}"')
    return text


def with_price(text: str, operations: int, rate: Wei, origin: str) -> str:
    """Sets the price cap of the job file `text` to the price of a task of so many operations.

    The floor is half of it. A cap that is already higher stays, since gas and votes cost the same for a small
    task. All other amounts are multiplied by the next power of two, so that jobs of similar size share a
    class of conditions, to which verifiers have agreed.
    """
    body = parse_job_file(text, origin)
    money, price = body.money, ceil(Fraction(price_at(rate, operations), _SHOWN)) * _SHOWN
    if price <= money.price_cap:
        return text
    times = 1 << (ceil(Fraction(price, money.price_cap)) - 1).bit_length()
    amounts = {"price_floor": price // 2, "price_cap": price}
    amounts |= {key: times * getattr(money, key) for key in type(money).model_fields if key not in amounts}
    found = {f"money.{key}": amount for key, amount in amounts.items()}
    found["class.least_fee"] = times * body.conditions.least_fee
    for key, amount in found.items():
        text = stated(text, key, f'"{show_amount(amount).replace(" ", "")}"')
    return _aligned(text)


def _least_solver_stake(body: JobFile, fee: int) -> int:
    """Minimum solver stake by rule 3.1 with this fee, rounded up."""
    checks, money = body.verification, body.money
    task, outer = money.price_cap + checks.verifiers * fee, (body.outer.slices or 1) * money.outer_fee
    wasted = wasted_at_most(task, outer, body.training.shards, checks.max_unsettled_rounds)
    return ceil(Fraction(least_stake(wasted), _SHOWN)) * _SHOWN
