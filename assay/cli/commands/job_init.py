"""``assay job init``: write a complete job file to start from."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from assay.app.invocation import App, app_of
from assay.protocol.errors import Ask
from assay.training.catalogue import CATALOGUE, defined_with
from assay.training.optimisers import OPTIMISERS

if TYPE_CHECKING:
    from assay.training.datasets import Dataset
    from assay.training.recipe import Recipe

TRAINING = ("gpt", "mlp", "cnn")
USES = ("eval", "infer", "grpo")
"""Templates of jobs that do not train."""


def init(
    asking: typer.Context,
    file: Annotated[Path, typer.Argument(help="Where to write the job file.")] = Path("job.toml"),
    model: Annotated[
        str,
        typer.Option(
            "--template",
            help="gpt, mlp or cnn: training; eval: a model's held-out loss; infer: what a GPT writes after"
            " prompts; grpo: reinforcement learning.",
        ),
    ] = "gpt",
    data: Annotated[
        str,
        typer.Option(
            help="gpt: stdlib, or a path to your text; mlp, cnn: digits.",
            show_default="stdlib; digits for mlp and cnn",
        ),
    ] = "stdlib",
    weights: Annotated[
        str,
        typer.Option(
            help="eval, infer, grpo: a folder of `job fetch`, a .safetensors file or a CID. To train on from"
            " weights, load them in your own build() (--from)."
        ),
    ] = "",
    prompts: Annotated[str, typer.Option(help="infer: a file with a prompt a line.")] = "",
    new_bytes: Annotated[int, typer.Option(min=1, help="infer: what the model writes after each.")] = 16,
    temperature: Annotated[
        float, typer.Option(min=0.0, help="infer: 0 takes the likeliest byte, else they are drawn.")
    ] = 0.0,
    own: Annotated[
        str, typer.Option("--from", help="Your own model: FILE.py:FUNCTION that returns a training Recipe.")
    ] = "",
    pretrained: Annotated[
        str,
        typer.Option(
            "--from-pretrained",
            help="Fine-tune the causal language model of this transformers folder (safetensors) on --data.",
        ),
    ] = "",
    tokenizer: Annotated[
        str,
        typer.Option(
            help="With --from-pretrained: the folder of its tokenizer.json.", show_default="the model's"
        ),
    ] = "",
    context: Annotated[
        int, typer.Option("--context", min=2, help="With --from-pretrained: tokens a record.")
    ] = 128,
    rank: Annotated[
        int, typer.Option("--lora", min=0, help="With --from-pretrained: adapters' rank; 0: all weights.")
    ] = 8,
    optimiser: Annotated[
        str,
        typer.Option(help=f"{', '.join(OPTIMISERS)}; by default the template's, or your Recipe's."),
    ] = "",
    algorithm: Annotated[
        str,
        typer.Option(help=f"How shards come together, with its paper's numbers: {', '.join(CATALOGUE)}."),
    ] = "diloco",
    batch: Annotated[int, typer.Option(min=1, help="With --from: rows a pass.")] = 8,
    rounds: Annotated[int, typer.Option(min=1)] = 3,
    published: Annotated[
        str, typer.Option("--preset", help="A published setting, on your --data: shakespeare-char.")
    ] = "",
    held_out: Annotated[
        int,
        typer.Option(
            min=0,
            help="Have the loss on so many held-out records computed every round; amounts that pay for it.",
        ),
    ] = 0,
    local: Annotated[bool, typer.Option(help="Deadlines for a chain on this machine.")] = True,
) -> None:
    """Write a complete job file to start from."""
    from assay.job.templates import LOCAL, PUBLIC, by_algorithm, template

    app = app_of(asking)
    if file.exists():
        raise Ask(
            f"{file} exists; nothing was written",
            hint="name a file in it" if file.is_dir() else "choose another name, or remove it",
            code="file-exists",
        )
    asked = rounds if _was_given(asking, "rounds") else 0
    templateless = (own or pretrained) and not _was_given(asking, "model")
    _check_given(asking, "" if templateless else model, own, pretrained, published)
    if algorithm in CATALOGUE and CATALOGUE[algorithm].one_round and asked:
        _not_read("--rounds", f"by {algorithm} all is one round")
    needed = defined_with(algorithm)
    if optimiser and needed and optimiser != needed:
        raise typer.BadParameter(f"--optimiser of {algorithm} is {needed}, not {optimiser}; leave it out")
    _check_data(model, "" if own or pretrained else data)
    times = LOCAL if local else PUBLIC
    if model == "infer":
        init_inference(app, file, weights, prompts, new_bytes, temperature, times)
        return
    if model == "eval":
        init_evaluation(app, file, weights, own, data, batch, rounds, times)
        return
    if model == "grpo":
        from assay.job.use_templates import grpo_template

        _write(app, file, grpo_template(rounds, times, _weights_from(file, weights) if weights else ""))
        _wrote(app, file, "in which actors play, and the outer claim learns from their rollouts")
        return
    if pretrained:
        if not _was_given(asking, "data"):
            raise Ask("a model is fine-tuned on a text of yours", hint="--data text.jsonl", code="usage")
        come_together = partial(by_algorithm, name=algorithm, rounds=asked)
        given = (pretrained, tokenizer or pretrained, data, context, rank)
        with recipe_written(file, *given) as own:
            what = (app, file, own, batch, rounds, times, optimiser, algorithm, come_together, held_out)
            init_own(*what, fine_tuned=rank > 0)
        return
    if own:
        come_together = partial(by_algorithm, name=algorithm, rounds=asked)
        init_own(app, file, own, batch, rounds, times, optimiser, algorithm, come_together, held_out)
        return
    if published:
        init_published(app, file, published, model, data, times, asked, held_out)
        return
    optimiser = optimiser or needed
    text = template(model, source=data, rounds=rounds, times=times, optimiser=optimiser)
    _write(app, file, _testing(by_algorithm(text, algorithm, rounds=asked), held_out, file))
    _wrote(app, file, "a toy that shows the market at work (its first lines say what to raise)")


def _check_given(context: typer.Context, model: str, own: str, pretrained: str, published: str) -> None:
    """Raises Ask for an option that this kind of job file does not use.

    `model`: the template; empty if --from or --from-pretrained replaces it.
    """
    uses = model in USES
    brought = "--from" if own else "--from-pretrained" if pretrained else ""
    if brought and model in TRAINING:
        _not_read("--template", f"{brought} brings the model")
    if own and pretrained:
        _not_read("--from", "--from-pretrained brings the model")
    for name, option, read in (
        ("weights", "--weights", uses),
        ("prompts", "--prompts", model == "infer"),
        ("new_bytes", "--new-bytes", model == "infer"),
        ("temperature", "--temperature", model == "infer"),
        ("own", "--from", model in ("", "eval")),
        ("pretrained", "--from-pretrained", not model),
        ("tokenizer", "--tokenizer", bool(pretrained)),
        ("context", "--context", bool(pretrained)),
        ("rank", "--lora", bool(pretrained)),
        ("optimiser", "--optimiser", not uses and not published),
        ("algorithm", "--algorithm", not uses and not published),
        ("batch", "--batch", bool(brought) or model == "eval"),
        ("rounds", "--rounds", model != "infer"),
        ("held_out", "--held-out", not uses),
        ("published", "--preset", not uses and not brought),
        ("data", "--data", not own and model not in ("infer", "grpo")),
    ):
        if not read and model in ("", *TRAINING, *USES) and _was_given(context, name):
            kind = brought if brought else f"--preset {published}" if published else f"--template {model}"
            load = "; load them in the function that makes the model" if name == "weights" and own else ""
            _not_read(option, f"{kind} does not read it{load}")


def _was_given(context: typer.Context, name: str) -> bool:
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def _not_read(option: str, why: str) -> NoReturn:
    raise typer.BadParameter(f"{option} has no place here: {why}")


def _check_data(model: str, data: str) -> None:
    """Raises BadParameter unless the template has this data."""
    if not data or data in ("stdlib", "digits"):
        return
    if model in ("mlp", "cnn"):
        raise typer.BadParameter(f"--data of {model} is digits, not {data!r}")
    if model in ("gpt", "eval") and not Path(data).exists():
        raise typer.BadParameter(f"--data: there is no file or folder {data}")


def _testing(text: str, records: int, file: Path, made: Recipe | None = None) -> str:
    """Adds the loss on this many held-out records to a job file, 0 for none. Raises Stop if there are
    fewer."""
    if not records:
        return text
    from assay.job.parts import recipe_of
    from assay.job.read import parse_job_file
    from assay.job.templates import with_held_out
    from assay.protocol.errors import Stop

    text = with_held_out(text, records, str(file))
    dataset = recipe_of(parse_job_file(text, str(file)), made).dataset
    there = len(dataset.held_out) // dataset.layout.record_size
    if records > there:
        raise Stop(
            f"--held-out {records}: the data hold out {there:,} records; nothing was written",
            hint=f"ask for {there:,} at most, or give more data",
        )
    return text


def init_published(
    app: App,
    file: Path,
    name: str,
    model: str,
    data: str,
    times: dict[str, str],
    rounds: int,
    held_out: int,
) -> None:
    """Writes the job file of a published setting; `rounds` 0: the published number."""
    from assay.job.templates import PRESETS, preset

    text = preset(name, source=data, times=times, rounds=rounds)
    if model != PRESETS[name].template:
        raise Ask(
            f"{name} is no preset of the template {model}",
            hint=f"leave --template out, or say --template {PRESETS[name].template}",
            code="bad-preset",
        )
    _write(app, file, _testing(text, held_out, file))
    _wrote(app, file, f"{name} as it was published (its first lines say what differs)")


def init_own(
    app: App,
    file: Path,
    own: str,
    batch: int,
    rounds: int,
    times: dict[str, str],
    optimiser: str,
    algorithm: str,
    come_together: Callable[..., str],
    held_out: int,
    fine_tuned: bool | None = None,
) -> None:
    """Traces a client's own model, and writes its job file if that succeeds.

    `come_together`: ``job.templates.by_algorithm`` with the chosen options; `fine_tuned`: by adapters, or
    whole.
    """
    from assay.job.build import build
    from assay.job.kept import traces
    from assay.job.outer import levels_of
    from assay.job.read import parse_job_file
    from assay.job.templates import by_own_algorithm, for_fine_tuning, own_template
    from assay.training.recipe import load, parts

    path, function = parts(own)
    made = load(own)
    if made.optimiser is None:
        optimiser = optimiser or defined_with(algorithm) or "adamw"
    source = f"{os.path.relpath(path, file.parent)}:{function}"
    precision = "auto" if made.precision is None else ""
    text = own_template(
        source, batch=batch, rounds=rounds, times=times, optimiser=optimiser, precision=precision
    )
    if fine_tuned is not None:
        text = for_fine_tuning(text, fine_tuned)
    if made.outer is not None and algorithm != "diloco":
        _not_read("--algorithm", f"{own} brings an outer algorithm of its own")
    if made.outer is not None:
        text = by_own_algorithm(text)
    else:
        text = come_together(text, levels=levels_of(name for name, _ in made.model.named_parameters()))
    text = _testing(text, held_out, file, made)
    body = parse_job_file(text, str(file))
    with app.output.working(f"tracing {own} into a program"):
        files = build(body, made, keep=traces(app, own).keep)
    _write(app, file, text)
    count = sum(x.numel() for x in files.genesis[: files.inner.params])
    data = {"file": str(file), "nodes": len(files.inner.nodes), "parameters": count}
    app.output.result(
        "job-init",
        data,
        f"{own} is a program of {len(files.inner.nodes):,} nodes that trains {count:,} parameters;"
        f" wrote {file}; check it with `assay job validate {file}`",
    )


@contextmanager
def recipe_written(
    file: Path, model: str, tokenizer: str, data: str, context: int, rank: int
) -> Iterator[str]:
    """Writes a recipe file beside the job file that fine-tunes a model, and yields its reference.

    The file is removed if the `with` block fails. Raises Ask if it exists.
    """
    from assay.job.templates import fine_tuning_recipe

    path = file.with_suffix(".py")
    if path.exists():
        raise Ask(f"{path} exists; nothing was written", hint="choose another name", code="file-exists")
    first, second, third = (os.path.relpath(place, file.parent) for place in (model, tokenizer, data))
    path.write_text(fine_tuning_recipe(first, second, third, context, rank))
    try:
        yield f"{path}:build"
    except BaseException:
        path.unlink()
        raise


def init_evaluation(
    app: App,
    file: Path,
    weights: str,
    own: str,
    data: str,
    batch: int,
    rounds: int,
    times: dict[str, str],
) -> None:
    """Writes the job file of an evaluation: of a fetched job's model, or an own model, on held-out
    records."""
    from assay.client.fetched import model_and_parameters
    from assay.job.parts import recipe_of
    from assay.job.read import parse_job_file
    from assay.job.use_templates import MAX_BYTES, evaluation_template, own_evaluation_template
    from assay.job.weights import is_of, limit_of, terms_in
    from assay.training.recipe import load, parts

    kept = _weights_from(file, weights) if weights else ""
    trained = terms_in(Path(weights)) if weights else None
    limit, same = MAX_BYTES, None
    if own:
        path, function = parts(own)
        made = load(own)
        source = f"{os.path.relpath(path, file.parent)}:{function}"
        dataset, precise = made.dataset, made.precision is None
        if trained is not None:
            same = is_of(dataset, trained)

        def text(count: int, limit: int) -> str:
            return own_evaluation_template(source, kept, count, batch, rounds, times, precise)
    else:
        if not weights:
            raise Ask(
                "an evaluation is of weights",
                hint="--weights FOLDER, which `assay job fetch` wrote",
                code="usage",
            )
        description, _ = model_and_parameters(Path(weights))

        def text(count: int, limit: int) -> str:
            return evaluation_template(description, kept, data, count, batch, rounds, times, limit)

        def dataset_of(limit: int) -> Dataset:
            return recipe_of(parse_job_file(text(1 << 20, limit), str(file))).dataset

        if trained is not None:
            found = limit_of(trained, MAX_BYTES, dataset_of)
            limit, same = found or limit, found is not None
        dataset = dataset_of(limit)
    count = len(dataset.held_out) // dataset.layout.record_size
    if not count:
        raise Ask(
            "no records are held out", hint="give the Recipe's Dataset some held_out records", code="usage"
        )
    _write(app, file, text(count, limit))
    warning = _other_data(own or data, same) if weights else ""
    if warning:
        app.output.say(f"WARNING: {warning}")
    what = f"whose result is the loss over records held out from training ({count:,} there are)"
    _wrote(app, file, what, sameData=same, warnings=[warning] if warning else [])


def _other_data(source: str, same: bool | None) -> str:
    """Note that a loss is not comparable with the training's, or may not be; empty if the data are the same.

    `same`: whether they are; None without a receipt.
    """
    if same is None:
        return (
            "no receipt says on which data these weights were trained; where they were others, the loss"
            " is no held-out one: write [data] of the job file that they were trained with"
        )
    if same:
        return ""
    return (
        f"the receipt says that the model was trained on other records than {source} gives: its held-out"
        " loss does not compare with that of its training; name the training's own with --data (or --from),"
        " or copy [data] of its job file"
    )


def init_inference(
    app: App,
    file: Path,
    weights: str,
    prompts: str,
    new_bytes: int,
    temperature: float,
    times: dict[str, str],
) -> None:
    """Writes the job file of a batch inference by a fetched GPT."""
    from assay.client.fetched import model_and_parameters
    from assay.job.build import read_prompts
    from assay.job.use_templates import inference_template

    if not weights or not prompts:
        raise Ask(
            "an inference is of weights, after prompts",
            hint="--weights FOLDER, which `assay job fetch` wrote, and --prompts FILE, one a line",
            code="usage",
        )
    description, _ = model_and_parameters(Path(weights))
    asked = read_prompts(Path(prompts))
    longest = max((len(prompt) for prompt in asked), default=0)
    paths = _weights_from(file, weights), os.path.relpath(prompts, file.parent)
    _write(
        app, file, inference_template(description, *paths, len(asked), longest, new_bytes, temperature, times)
    )
    _wrote(app, file, f"whose result is {new_bytes} bytes after each of {len(asked):,} prompts")


def _weights_from(file: Path, weights: str) -> str:
    """Weights as a job file names them: a path relative to its folder, or a CID."""
    from assay.job.read import is_cid

    return weights if is_cid(weights) else os.path.relpath(weights, file.parent)


def _write(app: App, file: Path, text: str) -> None:
    app.end_dry_run(f"write {file}")
    file.write_text(text)


def _wrote(app: App, file: Path, what: str, **more: object) -> None:
    app.output.result(
        "job-init",
        {"file": str(file), **more},
        f"wrote {file}, {what}; check it with `{app.command(f'job validate {file}')}`",
    )
