"""``assay job fetch``, ``verify``, ``eval`` and ``sample``: fetch and use a job's model."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from assay.app.ids import complete_job
from assay.app.invocation import App, app_of
from assay.app.output import Exit, table
from assay.protocol.errors import BlockNotFound, Stop

if TYPE_CHECKING:
    from rich.table import Table

    from assay.client.chain_check import OnChain
    from assay.client.receipt import Receipt
    from assay.client.replaying import Replayed
    from assay.client.verifying import Verified

JobArgument = Annotated[
    str,
    typer.Argument(
        help="The job's name, its id or the first 8 digits or more, or `latest`.", autocompletion=complete_job
    ),
]


def fetch(
    context: typer.Context,
    job: JobArgument,
    folder: Annotated[Path, typer.Option("--out", help="Folder for model, programs and receipt.")] = Path(
        "model"
    ),
) -> None:
    """Fetch the settled model or result, verified against the settled root, with its receipt. A result is
    also printed, with the CID of its file."""
    app = app_of(context)
    connection = app.view()
    looked_up = app.look_up(connection, job)
    job_id = looked_up.job_id
    from assay.app.resource_limits import RESOURCE_LIMITS
    from assay.client import results
    from assay.client.fetched import model_and_parameters
    from assay.client.fetching import fetch as fetch_model
    from assay.client.fetching import keep_others
    from assay.node.divergence import not_finite

    keep_others(folder, job_id)
    app.end_dry_run(f"fetch the model of job {job_id.hex()[:16]}, if it is settled, and write it to {folder}")
    market, storage = connection.market, app.storage("view")
    storage.follow(market)
    try:
        with app.output.working("fetching the model and checking every byte"), market.snapshot():
            params = fetch_model(
                market,
                storage.blocks,
                job_id,
                folder,
                RESOURCE_LIMITS,
                connection.chain,
                market.block,
            )
            there, asked_for = results.tasks_counted(market, job_id)
            going_on = results.going_on(market, job_id)
        found = results.numbers(params)
        cids = {name: results.file_of(storage.blocks, params[name]) for name in results.named(params)}
    finally:
        storage.close()
    told = [f"\n{name}: {value:.6f}" for name, value in found.items()]
    data: dict[str, object] = {"results": found, "cids": cids, "tasks": there, "tasksOfAll": asked_for}
    if going_on:
        told.append(f"\n{going_on}; fetch it again when it is closed")
    if there < asked_for:
        told.append(
            f"\n{asked_for - there} of {asked_for} tasks are not in it: its rounds closed without them"
        )
    if results.TOKENS in params:
        asked = results.prompts_of(model_and_parameters(folder)[0], params)
        data["answered"] = results.write_rows(folder, params, asked, looked_up.terms.record_size)
        told.append(f"\n{data['answered']} of {asked} prompts answered, in {folder / results.WRITTEN}")
    told += [f"\nthe file of {name} is {cid}" for name, cid in cids.items()]
    count = sum(x.numel() for x in params.values())
    bad = not_finite(list(params), len(params), list(params.values()))
    diverged = f"\nTHE TRAINING DIVERGED: {bad}; the receipt says at which step" if bad else ""
    app.output.result(
        "job-fetch",
        {"folder": str(folder), "tensors": len(params), "parameters": count, **data},
        f"wrote {len(params)} tensors ({count:,} parameters) to {folder};"
        f" check what you keep with `assay job verify {folder}`{''.join(told)}{diverged}",
    )


def _count(text: str) -> int | None:
    """Number of segments for `--replay`; None for all. Raises typer.BadParameter."""
    if text == "all":
        return None
    if not text.isdecimal() or not int(text):
        raise typer.BadParameter("write `all`, or the number of segments to draw")
    return int(text)


def verify(
    context: typer.Context,
    folder: Annotated[Path, typer.Argument(help="A fetched model.")],
    rpc: Annotated[
        bool, typer.Option("--rpc", help="Also check that these claims are settled on chain.")
    ] = False,
    replay: Annotated[
        str, typer.Option(help="Recompute `all` segments, or a number of them drawn at random.")
    ] = "",
) -> None:
    """Verify a fetched model against its receipt, offline; optionally also on chain and by replaying.

    Exit status 9 if anything does not hold.
    """
    from assay.client.receipt import BadReceipt, read_receipt

    app = app_of(context)
    count = _count(replay) if replay else 0
    chain = replayed = None
    try:
        receipt = read_receipt(folder)
        app.output.say(f"checking {folder}")
        from assay.client.verifying import verify as check

        found = check(folder)
        if rpc:
            chain = _compared(app, receipt)
        if count != 0:
            replayed = _replayed(app, receipt, count, peers=rpc)
    except BadReceipt as error:
        app.output.result(
            "job-verify", {"valid": False, "reason": error.message}, f"does NOT hold: {error.message}"
        )
        raise typer.Exit(int(Exit.FRAUD)) from None
    said = _said(found, chain, replayed)
    data = {"valid": True, "found": found, "chain": chain, "replayed": replayed, **said}
    app.output.result("job-verify", data, _table(found, said))


def _compared(app: App, receipt: Receipt) -> OnChain:
    from assay.client.chain_check import compare

    connection = app.view()
    return compare(receipt, connection.market, connection.chain, connection.market.block)


def _replayed(app: App, receipt: Receipt, count: int | None, peers: bool) -> Replayed:
    """Replays with blocks from the chosen account's store (without one, from what was fetched here), and with
    `peers` from the market's nodes."""
    from random import SystemRandom

    from assay.app.computing import engine_of
    from assay.app.resource_limits import RESOURCE_LIMITS
    from assay.client.replaying import replay

    storage = app.storage(app.settings.describe()["account"].value or "view")
    engine = engine_of(app.settings, brief=True)
    try:
        if peers:
            storage.follow(app.view().market)
        with app.output.working("replaying segments") as step:
            return replay(receipt, storage.blocks, RESOURCE_LIMITS, count, SystemRandom(), engine, step)
    except BlockNotFound as error:
        hint = "add --rpc to fetch from the market's nodes, or name an account that keeps it: --account NAME"
        raise error if peers else BlockNotFound(error.message, hint=hint) from error
    finally:
        storage.close()


def _said(found: Verified, chain: OnChain | None, replayed: Replayed | None) -> dict[str, list[str]]:
    """What was checked, and what was not."""
    checked, unchecked = list(found.checked), []
    if chain is not None:
        checked.append(
            f"the chain has all {chain.claims} claims of the receipt, {chain.settled} of them settled, and"
            f" its disputes, as of block {chain.block}, by the word of the node that was asked"
        )
        if chain.moved:
            unchecked.append(f"{chain.moved} claims or disputes that were open when it was fetched")
        if chain.settled_rounds > found.rounds:
            unchecked.append(f"a newer model: the chain has settled {chain.settled_rounds} rounds by now")
    else:
        unchecked.append("whether the chain knows these claims and has settled them (--rpc)")
    if replayed is not None:
        which = "all" if replayed.segments == replayed.of else f"{replayed.segments} of the"
        checked.append(
            f"{which} {replayed.of} segments give the receipt's roots when they are replayed, and"
            f" {replayed.inputs} claims start from the states that they must start from"
        )
    if replayed is None or replayed.segments < replayed.of:
        unchecked.append("whether the arithmetic of every segment is right (--replay all)")
    return {"checked": checked, "notChecked": unchecked}


def _table(found: Verified, said: dict[str, list[str]]) -> Table:
    rows = table("the model is consistent with its receipt", "what", "value")
    for name, value in (
        ("job", found.job_id),
        ("chain, Jobs contract", f"{found.chain_id}, {found.jobs}"),
        ("output root of the last round", found.params_root),
        ("rounds", str(found.rounds)),
        ("tasks", str(found.tasks)),
        ("shards missing", ", ".join(f"{k} in round {r}" for r, k in found.missing) or "none"),
        ("segments that its verifiers answer for", f"{found.replayed_segments} of {found.segments}"),
        ("disputes", f"{found.disputes}, convictions {found.convictions}"),
        ("fetched at block", str(found.block)),
        ("Inf or NaN", found.not_finite or "none"),
        *((("the job, its client says", found.diverged),) if found.diverged else ()),
        *(("checked", line) for line in said["checked"]),
        *(("not checked", line) for line in said["notChecked"]),
    ):
        rows.add_row(name, value)
    return rows


def evaluate(
    context: typer.Context,
    folder: Annotated[Path, typer.Argument(help="A fetched model.")],
    file: Annotated[Path, typer.Argument(help="The job file that it was trained with.")],
    records: Annotated[int, typer.Option(min=1, help="Maximum number of held-out records.")] = 10_000,
) -> None:
    """Compute a fetched model's loss and accuracy on the held-out records, in native fp32."""
    from assay.client.fetched import model_and_parameters, model_of
    from assay.job.read import read_job_file

    app = app_of(context)
    body, _ = read_job_file(file), model_of(folder)
    app.output.say(f"evaluating {folder} on the records that {file} holds out")
    from assay.job.parts import recipe_of
    from assay.training.evaluate import evaluated, with_parameters

    made = recipe_of(body)
    rows = made.dataset.held_out_batch(records)
    if not len(rows):
        raise Stop(
            "the dataset has no held-out records to evaluate on",
            hint="give the Recipe's Dataset some held_out records",
        )
    params = model_and_parameters(folder)[1]
    model = with_parameters(made.model, params)
    if buffers := [name for name, _ in model.named_buffers() if name not in params]:
        app.output.say(f"as build() made them, since they are not settled: {', '.join(buffers)}")
    found = evaluated(model, made.loss, made.dataset.layout, rows)
    right = "" if found.accuracy is None else f", {found.accuracy:.2%} right"
    app.output.result(
        "job-eval", found, f"held-out loss {found.loss:.4f}{right}, over {found.records:,} records"
    )


def sample(
    context: typer.Context,
    folder: Annotated[Path, typer.Argument(help="A fetched GPT.")],
    prompt: Annotated[str, typer.Option(help="Prompt: the beginning of the text.")] = "def ",
    count: Annotated[int, typer.Option(help="Number of bytes to generate.")] = 200,
    seed: Annotated[int, typer.Option()] = 0,
) -> None:
    """Generate text with a fetched GPT."""
    from assay.client.fetched import model_of, sample_text

    app = app_of(context)
    model_of(folder)
    app.output.say(f"reading the model in {folder}")
    text = sample_text(folder, prompt, count, seed)
    app.output.result("job-sample", {"prompt": prompt, "text": text}, prompt + text)


def export(
    context: typer.Context,
    folder: Annotated[Path, typer.Argument(help="A fetched GPT, or with --from another language model.")],
    out: Annotated[Path, typer.Option(help="Folder to write.")] = Path("transformers"),
    own: Annotated[
        str, typer.Option("--from", help="FILE.py:FUNCTION, whose Recipe has the model of transformers.")
    ] = "",
) -> None:
    """Export a fetched model as a folder for Hugging Face's transformers, with its receipt; adapters are
    merged."""
    from assay.client.fetched import model_of

    app = app_of(context)
    model_of(folder)
    app.end_dry_run(f"write the model in {folder} to {out}")
    app.output.say(f"reading the model in {folder}")
    from assay.client.exporting import export_gpt2, export_own

    count = export_own(folder, own, out) if own else export_gpt2(folder, out)
    tokens = "" if own else "; its tokens are bytes"
    app.output.result(
        "job-export",
        {"folder": str(out), "parameters": count},
        f"wrote {count:,} parameters to {out}:"
        f' transformers.AutoModelForCausalLM.from_pretrained("{out}"){tokens}',
    )
