"""Builds everything that a client publishes from a module, a loss and an optimiser.

Contract: the inner state is [trained parameters (named_parameters order), frozen parameters (without
gradient) and buffers that a step changes (``training.buffers``), other frozen parameters, other buffers,
optimiser state, ``metric.loss``]. A step computes the loss of one batch, the gradient and the optimiser's
update, and writes the loss to ``metric.loss`` (0 before the first step). What no step changes is not part of
the settled model. A buffer or frozen parameter changes if the module writes to it (``self.seen.add_(1)``) or
replaces it. A buffer of an unsupported dtype (such as complex) is left out, and refused where it is used. The
same module, data and arguments give the same roots. Raises UnsupportedOperation (with the source line) if the
instruction set cannot express the step. Not guaranteed: that a model trains well.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.fx import GraphModule
from torch.nn.parameter import is_lazy

from assay.program.boundary import with_rounded_boundaries
from assay.program.execute import Records
from assay.program.isa import MAX_SLOTS, Program
from assay.program.lowering import Choose, Lowered, ProductSite, lower
from assay.program.lowering.graph import DTYPES
from assay.program.lowering.tracing import StepFailed, StepFunction, trace_step
from assay.program.operand_parts import Precision
from assay.program.rules import TooLarge
from assay.protocol.errors import Stop
from assay.training.algorithms import Algorithm
from assay.training.buffers import moving, with_buffers
from assay.training.catalogue import WHOLE, entry_of, outer_of, unsliced_because
from assay.training.checks import check_slices
from assay.training.custom_outer import wrapped
from assay.training.datasets import Dataset, Layout
from assay.training.held_out import with_held_out
from assay.training.losses import LOSS_SLOT, loss_of
from assay.training.native_checks import NativeLoss, check_indices, draws, first_loss
from assay.training.optimisers import Optimiser
from assay.training.ordered_records import ordered, own_records, rows_read
from assay.training.outer import DiLoCo
from assay.training.precision import ChosenProduct, Precisions, as_stored, chosen
from assay.training.recipe import LossFunction
from assay.training.rounds import Round, coded_round, diloco_round
from assay.training.slicing import PARAMETERS, Blocks, blocks_of, least_slices
from assay.training.streaming import streaming_of, streaming_round


@dataclass(frozen=True, kw_only=True)
class TracedRound(Round):
    """Result of tracing a job: all files but the records."""

    model: dict[str, Any] = field(default_factory=dict)
    sites: tuple[tuple[ProductSite, Precision, tuple[int, ...]], ...] = ()
    """The inner step's products, each with its precision and nodes."""
    chosen: tuple[ChosenProduct, ...] = ()
    """Products whose precision was found by rehearsing."""
    unsettled: tuple[str, ...] = ()
    """Tensors that steps change and the settled model lacks."""
    idle: tuple[str, ...] = ()
    """Parameters that do not affect the loss and stay as they are."""
    comparable: bool = False
    """True if PyTorch computes the first step's loss from the same numbers: it draws no random numbers, and
    reads records that the seed draws."""


@dataclass(frozen=True, kw_only=True)
class JobArtifacts(TracedRound):
    """All files of a job, before they are published."""

    records: Records | None
    """None if no program reads any."""
    held_out: bytes
    native_loss: Callable[[bytes], float] | None = None
    """Function from the job's seed to the first step's loss in PyTorch; None if that is not comparable."""


Keep = Callable[..., TracedRound]
"""Calls its first argument with all others, or returns the cached result of an equal call."""


def at_once(make: Callable[..., TracedRound], *arguments: Any, **options: Any) -> TracedRound:
    """Calls `make` without a cache."""
    return make(*arguments, **options)


@dataclass(frozen=True)
class _Slots:
    """Names of the inner state's tensors in order: see the module's contract."""

    params: list[str]
    frozen: list[str]
    buffers: list[str]
    rest: list[str]

    @property
    def names(self) -> list[str]:
        return [*self.params, *self.frozen, *self.buffers, *self.rest, LOSS_SLOT]


def _slots(model: nn.Module, optimiser: Optimiser) -> _Slots:
    params = _trainable(model)
    frozen = [name for name, p in model.named_parameters() if not p.requires_grad]
    buffers = [name for name, buffer in model.named_buffers() if buffer.dtype in DTYPES]
    return _Slots(list(params), frozen, buffers, list(optimiser.genesis(params)))


def _trainable(model: nn.Module) -> dict[str, Tensor]:
    return {name: p.detach().clone() for name, p in model.named_parameters() if p.requires_grad}


class _Idle(Exception):
    """Some parameters do not affect the loss."""

    def __init__(self, names: list[str]) -> None:
        super().__init__(", ".join(names))
        self.names = names


def _gradients(loss: Tensor, params: dict[str, Tensor]) -> dict[str, Tensor]:
    found = torch.autograd.grad(loss, list(params.values()), allow_unused=True)
    given = {name: g for name, g in zip(params, found, strict=True) if g is not None}
    if idle := [name for name in params if name not in given]:
        raise _Idle(idle)
    return given


def _checked_loss(loss: Any) -> Tensor:
    """Raises Stop unless the value is a differentiable scalar loss."""
    if not isinstance(loss, Tensor):
        wrong, instead = f"is a {type(loss).__name__}", "return the number itself, such as outputs.loss"
    elif loss.numel() != 1:
        wrong, instead = f"has the shape {tuple(loss.shape)}", 'take its mean(): reduction="none" keeps each'
    elif loss.dtype != torch.float32:
        wrong, instead = f"is {loss.dtype}", "compute it in float32, .float()"
    elif not loss.requires_grad:
        wrong, instead = "does not depend on any parameter", "look for detach(), no_grad() or a frozen model"
    else:
        return loss.reshape(())
    raise Stop(
        f"the loss {wrong}, and it has to be one float32 number that depends on the parameters", hint=instead
    )


class _Pass(nn.Module):
    """Loss and gradients of one batch, in one call: checkpointed parts of the model run again during the
    gradient and must find the step's parameters in the model."""

    def __init__(self, model: nn.Module, loss_fn: LossFunction) -> None:
        super().__init__()
        self.model, self._loss_fn = model, loss_fn

    def forward(
        self, inputs: Tensor, targets: Tensor, params: dict[str, Tensor]
    ) -> tuple[Tensor, dict[str, Tensor]]:
        with torch.enable_grad():
            loss = _checked_loss(self._loss_fn(self.model(inputs), targets))
            return loss, _gradients(loss, params)


def step_function(
    model: nn.Module, loss_fn: LossFunction, optimiser: Optimiser, layout: Layout, accumulate: int = 1
) -> StepFunction:
    """One training step as a function of (state, batch), for tracing and native execution.

    The batch is cut into `accumulate` equal parts; loss and gradient are their means.
    """
    slots = _slots(model, optimiser)
    one_pass = _Pass(model, loss_fn)

    def step(state: list[Tensor], batch: Tensor) -> list[Tensor]:
        held = dict(zip(slots.names, state, strict=True))
        params = {name: held[name].detach().requires_grad_() for name in slots.params}
        forms = {name: (held[name].dtype, held[name].shape) for name in (*slots.frozen, *slots.buffers)}
        fixed = {name: held[name] for name in (*slots.frozen, *slots.buffers)}
        losses: list[Tensor] = []
        sums: dict[str, Tensor] = {}
        for part in batch.chunk(accumulate) if accumulate > 1 else (batch,):
            inputs, targets = layout.split(part)
            held_by_model = {f"model.{name}": x for name, x in {**params, **fixed}.items()}
            loss, grads = functional_call(one_pass, held_by_model, (inputs, targets, params))
            fixed = _after_call(forms, held_by_model, params)
            losses.append(loss.detach())
            for name, g in grads.items():
                sums[name] = sums[name] + g if name in sums else g
        with torch.no_grad():
            mean_loss = losses[0] if accumulate == 1 else torch.stack(losses).sum() / accumulate
            means = sums if accumulate == 1 else {name: g / accumulate for name, g in sums.items()}
            after, rest = optimiser.update({name: held[name] for name in params}, means, held)
        return [
            *(after[name] for name in slots.params),
            *(fixed[name] for name in (*slots.frozen, *slots.buffers)),
            *(rest[name] for name in slots.rest),
            mean_loss,
        ]

    return step


def _after_call(
    forms: dict[str, tuple[torch.dtype, torch.Size]], after: dict[str, Tensor], params: dict[str, Tensor]
) -> dict[str, Tensor]:
    """Frozen parameters and buffers after a call, also where the module replaced them (``self.mean = ...``).

    Raises Stop if a value cannot be a slot's next value.
    """
    for name, before in params.items():
        if after[f"model.{name}"] is not before:
            raise Stop(
                f"the model replaces its parameter {name} by another tensor in a step, and only the optimiser"
                " may change parameters",
                hint="keep what the model sets in a buffer",
            )
    for name, (dtype, shape) in forms.items():
        now = after[f"model.{name}"]
        if not isinstance(now, Tensor) or (now.dtype, now.shape) != (dtype, shape):
            found = f"{now.dtype} {tuple(now.shape)}" if isinstance(now, Tensor) else type(now).__name__
            raise Stop(
                f"the model sets its {name}, {dtype} {tuple(shape)}, to {found}, and a state's tensors cannot"
                " change dtype or shape",
                hint=f"register {name} with the dtype and shape that it has after a step",
            )
    held = {name: after[f"model.{name}"] for name in forms}
    return {name: x.detach() if x.requires_grad else x for name, x in held.items()}


def _check_model(model: nn.Module) -> None:
    if not any(p.requires_grad for p in model.parameters()):
        raise Stop("the model has no parameters to train", hint="give a module with trainable parameters")
    if lazy := [n for n, p in model.named_parameters() if is_lazy(p)]:
        raise Stop(
            f"the shapes of {', '.join(lazy)} are not known yet",
            hint="call the model once on a batch in build(), which gives lazy layers their shapes",
        )
    wrong = [name for name, p in model.named_parameters() if p.dtype != torch.float32 or p.numel() == 0]
    if wrong:
        raise Stop(
            f"parameters {', '.join(wrong)} are not float32 tensors", hint="convert the module with .float()"
        )


def genesis_of(model: nn.Module, optimiser: Optimiser) -> dict[str, Tensor]:
    """The inner state before the first step by slot name, in slot order."""
    params, slots = _trainable(model), _slots(model, optimiser)
    held = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    start = {name: held[name].detach().clone() for name in (*slots.params, *slots.frozen, *slots.buffers)}
    rest = {**optimiser.genesis(params), LOSS_SLOT: torch.zeros(())}
    if twice := start.keys() & rest.keys():
        raise Stop(
            f"the optimiser's state and the model both have tensors named {', '.join(sorted(twice))}",
            hint="rename the module's tensor",
        )
    return {**start, **rest}


def made_round(
    name: str,
    train: Program,
    genesis: Sequence[Tensor],
    names: Sequence[str],
    shards: int,
    rule: DiLoCo,
    slices: int = 1,
    own: Algorithm | None = None,
) -> Round:
    """Builds the round of an algorithm by name. Raises Stop.

    `rule`: its outer rate and momentum; `slices`: number of equal parts of the parameters; `own`: the
    algorithm that `OWN` names.
    """
    if slices > 1:
        check_slices(name)
    kind = "coded" if own is not None else entry_of(name).round
    shapes = [node.shape for node in train.state[: train.params]]
    try:
        if (least := (1 + shards) * train.params // slices) > MAX_SLOTS:  # before all of it is traced in vain
            raise TooLarge(f"a program has at most {MAX_SLOTS} slots, and these take {least} or more")
        if kind == "whole":
            return diloco_round(train, genesis, names, shards, rule, slices)
        algorithm = outer_of(name, rule, own)
        assert algorithm is not None, "a job that trains has one"
        if kind == "streaming":
            streaming = streaming_of(shapes, algorithm, rule.overlap)
            return streaming_round(streaming, train, genesis, names, shards)
        coded = algorithm if own is None else wrapped(own)
        return coded_round(coded, train, genesis, names, shards, slices)
    except TooLarge as error:
        tensors = f"{train.params} parameter tensor{'s' if train.params > 1 else ''}"
        way_out = "take fewer shards or a model with fewer and larger tensors (docs/scale.md)"
        if slices > 1:
            way_out = "write fewer slices in [outer]"
        elif not unsliced_because(name):
            needed = least_slices(shapes, shards)
            way_out = f"write slices = {needed} or more in [outer], or take fewer shards (docs/scale.md)"
        raise Stop(
            f"{tensors} of {shards} shards are too many for one outer step by {name}: {error}", hint=way_out
        ) from error


def native_loss(
    model: nn.Module, loss_fn: LossFunction, layout: Layout, genesis: dict[str, Tensor]
) -> NativeLoss:
    """Loss of a batch before the first step, as PyTorch computes it."""
    held = {**dict(model.named_parameters()), **dict(model.named_buffers())}.keys() & genesis.keys()

    def loss(batch: Tensor) -> Tensor:
        return loss_of(model, loss_fn, layout, {name: genesis[name].clone() for name in held}, batch)

    return loss


def _modules(model: nn.Module, loss_fn: LossFunction) -> list[nn.Module]:
    return [x for x in (model, loss_fn) if isinstance(x, nn.Module)]


def traced(
    model: nn.Module,
    loss_fn: LossFunction,
    optimiser: Optimiser,
    layout: Layout,
    batch: int,
    accumulate: int = 1,
) -> tuple[dict[str, Tensor], GraphModule, list[str]]:
    """Inner state before the first step by slot name, one step's graph, and parameters that do not affect the
    loss.

    The latter are frozen in `model`. Raises as `trace_step`.
    """
    example = torch.zeros((batch * accumulate, layout.record_size), dtype=torch.uint8)

    def once() -> tuple[dict[str, Tensor], GraphModule]:
        genesis = genesis_of(model, optimiser)
        step = step_function(model, loss_fn, optimiser, layout, accumulate)
        return genesis, trace_step(step, list(genesis.values()), example, _modules(model, loss_fn))

    try:
        return *once(), []
    except StepFailed as error:
        if not isinstance(error.__cause__, _Idle):
            raise
        idle = error.__cause__.names
    for name, parameter in model.named_parameters():
        if name in idle:
            parameter.requires_grad_(False)
    _check_model(model)
    return *once(), idle


def traced_round(
    model: nn.Module,
    loss_fn: LossFunction,
    optimiser: Optimiser,
    dataset: Dataset,
    *,
    batch: int,
    shards: int,
    outer: DiLoCo,
    algorithm: str = WHOLE,
    slices: int | None = None,
    accumulate: int = 1,
    seed: int = 0,
    description: dict[str, Any] | None = None,
    precisions: Precisions | None = None,
    held_out: int = 0,
    crew: int = 0,
    own: Algorithm | None = None,
) -> TracedRound:
    """Traces one step of `accumulate` times `batch` records, and the other programs of a round.

    `algorithm`: outer algorithm, by its name in ``training.catalogue``; `slices`: number of equal parameter
    blocks, each with its own outer step (None: parameters stay whole). `seed`: of random numbers in the
    program (dropout); `description`: the manifest's model entry; `precisions`: of the inner step's products,
    single by default; `held_out`: number of held-out records on which each round's parameters are evaluated;
    `crew`: number of members between whom the inner step rounds what crosses (0: nothing is rounded); `own`:
    the algorithm if `algorithm` is "own". Raises UnsupportedOperation, or Stop for a model that cannot be
    trained. Parameters that do not affect the loss are frozen in `model`.
    """
    _check_model(model)
    genesis, graph, idle = traced(model, loss_fn, optimiser, dataset.layout, batch, accumulate)
    modules = _modules(model, loss_fn)
    state, params = list(genesis.values()), len(_trainable(model))
    native = native_loss(model, loss_fn, dataset.layout, genesis)
    check_indices(native, dataset, batch, modules)
    if held_out:
        tested = dataset.held_out[: held_out * dataset.layout.record_size]
        check_indices(native, replace(dataset, records=tested), batch, modules)
    stored = as_stored(state, list(genesis))
    records = Records(dataset.records, dataset.layout.record_size)

    def lowered(choose: Choose) -> Lowered:
        return lower(graph, params=params, seed=seed, choose=choose)

    made, products = chosen(lowered, precisions or Precisions(), stored, records)
    train, places = made.program, {node: node for node in range(len(made.program.nodes))}
    if dataset.epochs:
        train, places = ordered(train, own_records(len(records), rows_read(train), shards))
    names, described, lead = list(genesis), dict(description or {}), 0
    blocks: Blocks | None = None
    if slices is not None:
        check_slices(algorithm)
        blocks = blocks_of(names[:params], [node.shape for node in train.state[:params]], slices)
        train, lead = blocks.program(train)
        stored = [*blocks.joined(stored[:params]), *stored[params:]]
        names = [*blocks.block_names, *names[params:]]
        described[PARAMETERS] = blocks.described
    whole = made_round(algorithm, train, stored, names, shards, outer, slices or 1, own)
    slots = _slots(model, optimiser)
    beside = [*slots.frozen, *slots.buffers]
    changed = [list(genesis)[slot] for slot in moving(made.program, len(beside))]
    settled = slices is None
    if changed and settled:
        whole = with_buffers(whole, changed, shards)
    if held_out:
        held = {name: genesis[name] for name in (*slots.params, *beside)}
        whole = with_held_out(whole, model, loss_fn, dataset, held, held_out, precisions, blocks)
    shift = whole.shift - train.slots + lead
    places = {old: new + shift for old, new in places.items()}
    if crew:
        inner, moved = with_rounded_boundaries(whole.inner, crew)
        whole = replace(whole, tasks=(*whole.tasks[: whole.main], inner, *whole.tasks[whole.main + 1 :]))
        places = {old: moved[new] for old, new in places.items() if new in moved}
    return TracedRound(
        **vars(whole),
        model=described,
        sites=tuple((site, how, tuple(places[node] for node in nodes)) for site, how, nodes in made.sites),
        chosen=products,
        unsettled=() if settled else tuple(changed),
        idle=tuple(idle),
        comparable=not (dataset.epochs or draws(graph)),
    )


def build_job(
    model: nn.Module,
    loss_fn: LossFunction,
    optimiser: Optimiser,
    dataset: Dataset,
    *,
    batch: int,
    accumulate: int = 1,
    keep: Keep = at_once,
    **options: Any,
) -> JobArtifacts:
    """Traces one step of `accumulate` times `batch` records and builds every file of the job.

    `options` are those of `traced_round`, which `keep` calls. Raises UnsupportedOperation, or Stop for a
    model that cannot be trained.
    """
    options |= {"batch": batch, "accumulate": accumulate}
    made = keep(traced_round, model, loss_fn, optimiser, dataset, **options)
    for name, parameter in model.named_parameters():
        if name in made.idle:  # as tracing does, where it is not done again
            parameter.requires_grad_(False)
    records = Records(dataset.records, dataset.layout.record_size)
    loss = None
    if made.comparable:
        modules = _modules(model, loss_fn)
        native = native_loss(model, loss_fn, dataset.layout, genesis_of(model, optimiser))
        loss = first_loss(native, records, batch, accumulate, modules)
    return JobArtifacts(**vars(made), records=records, held_out=dataset.held_out, native_loss=loss)
