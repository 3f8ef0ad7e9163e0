"""Job files that train by no outer algorithm: whole templates, weights, and what is refused."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import save, save_file

from assay.client.receipt import NoReceipt
from assay.job.build import build, read_prompts
from assay.job.estimate import counted
from assay.job.read import BadJobFile, JobFile, parse_job_file, read_job_file
from assay.job.templates import LOCAL, PUBLIC
from assay.job.use_sections import EVALUATE, GRPO, INFER, misplaced
from assay.job.use_templates import evaluation_template, grpo_template, inference_template, passes
from assay.job.weights import weights_of
from assay.protocol.cid import Cid
from assay.protocol.errors import Stop
from assay.training import datasets, models
from assay.training.catalogue import OTHER_USES
from assay.training.evaluate import with_parameters
from assay.training.grpo import Shape
from assay.training.policy import Policy
from assay.training.verifiable import Addition, Brackets, Sorting, Verifiable
from tests.marked import long
from tests.unit.cli.test_command_line import assay

SHAPE = models.GptConfig(n_layer=1, n_head=1, d_model=8, context=12)
DESCRIPTION = models.describe(SHAPE)
PROMPTS = ["ab", "hello", "x"]


def evaluation(times: dict[str, str] = LOCAL, records: int = 100) -> str:
    return evaluation_template(DESCRIPTION, "w.safetensors", "stdlib", records, 8, 2, times)


def inference(times: dict[str, str] = LOCAL) -> str:
    return inference_template(DESCRIPTION, "w.safetensors", "p.txt", len(PROMPTS), 5, 4, 0.5, times)


def grpo(times: dict[str, str] = LOCAL) -> str:
    return grpo_template(3, times)


SMALL = {"layers": "1", "heads": "1", "width": "8", "batch": "8", "group": "4", "warm_steps": "0"}


@pytest.mark.long
def test_grpo_begins_with_the_weights_it_is_given(folder: Path) -> None:
    theta = Policy(Addition(1), Shape(1, 1, 8, 6), seed=9).params
    save_file({**theta, "grpo.reward": torch.ones(())}, folder / "policy.safetensors")
    made = build(file(folder, grpo_template(3, LOCAL, "policy.safetensors"), **SMALL))
    assert made.records is None and counted(None) == (0, 0)
    assert (len(made.tasks), len(made.outers)) == (1, 4)
    assert made.slot_names[: len(theta)] == list(theta)
    for state in (made.genesis, made.outer_genesis):
        assert all(torch.equal(state[i], x) for i, x in enumerate(theta.values()))


@pytest.mark.long
def test_supervised_steps_say_how_far_they_are(folder: Path) -> None:
    said: list[str] = []
    build(file(folder, grpo(), **{**SMALL, "warm_steps": "23"}), say=said.append)
    counts = [int(line.split()[2]) for line in said]
    assert counts == [1, *range(2, 23, 2), 23]
    assert said[0] == "supervised step 1 of 23 before the job: [grpo] warm_steps"


def playing(task: str, sizes: str) -> str:
    """The template's job of another task, in 6 steps a round."""
    return grpo().replace('task = "addition"', f'task = "{task}"').replace("\ndigits = 1 ", f"\n{sizes} ")


@pytest.mark.parametrize(
    ("name", "sizes", "task"),
    [
        ("addition", "digits = 1", Addition(1)),
        long("sorting", "digits = 3", Sorting(3)),
        long("brackets", "depth = 3\nkinds = 2", Brackets(3, 2)),
    ],
)
def test_grpo_plays_the_task_that_the_file_names(
    folder: Path, name: str, sizes: str, task: Verifiable
) -> None:
    steps = str(task.length - 1)
    changes = {**SMALL, "warm_steps": "2", "steps_per_round": steps, "segment_steps": steps}
    made = build(file(folder, playing(name, sizes), **changes))
    at = made.slot_names.index("grpo.tokens")
    assert made.genesis[at].shape == (8, task.length) and made.genesis[at + 1].shape == (8, task.answer)
    assert made.genesis[0].shape == (task.vocabulary, 8), "the decoder has a row a token"
    with pytest.raises(Stop, match=f"takes {steps} steps") as caught:
        build(
            file(folder, playing(name, sizes), **{**changes, "steps_per_round": str(2 * (task.length - 1))})
        )
    assert caught.value.hint == f"write steps_per_round = {steps}"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (playing("subtraction", "digits = 1"), "task is 'subtraction'.* 'addition', 'sorting', 'brackets'"),
        (playing("brackets", "digits = 3"), "depth is missing.*kinds is missing.*digits is no key"),
        (playing("sorting", "depth = 3"), "digits is missing.*depth is no key"),
        (grpo().replace('task = "addition"', ""), "grpo.task is missing"),
    ],
)
def test_a_task_that_there_is_not_is_refused_with_those_that_there_are(text: str, why: str) -> None:
    with pytest.raises(BadJobFile, match=why):
        parse_job_file(text, "it")


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"group": "5"}, "no whole groups"),
        ({"steps_per_round": "10"}, "takes 5 steps"),
        ({"momentum": "0.9"}, "momentum cannot be set"),
        ({"epochs": "9"}, "more than 8 loops"),
        ({"clip_low": "0.0"}, "clipped between"),
    ],
)
def test_grpo_that_does_not_fit_is_refused(folder: Path, changes: dict[str, str], why: str) -> None:
    with pytest.raises(Stop, match=why):
        build(file(folder, grpo(), **{**SMALL, **changes}))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Weights and prompts, as the templates name them."""
    model = models.build(SHAPE, seed=4)
    save_file({n: p.detach().clone() for n, p in model.named_parameters()}, tmp_path / "w.safetensors")
    (tmp_path / "p.txt").write_text("\n".join(PROMPTS) + "\n")
    return tmp_path


def file(folder: Path, text: str, **changes: str) -> JobFile:
    for key, value in changes.items():
        text, found = re.subn(rf"(?m)^{key} = \S+", f"{key} = {value}", text)
        assert found, key
    (folder / "job.toml").write_text(text)
    return read_job_file(folder / "job.toml")


@pytest.mark.parametrize("times", [LOCAL, PUBLIC], ids=["local", "public"])
@pytest.mark.parametrize("made", [evaluation, inference, grpo])
def test_a_template_is_a_whole_job_file_without_a_default(
    made: Callable[[dict[str, str]], str], times: dict[str, str]
) -> None:
    text = made(times)
    parse_job_file(text, "it")
    for line in [line for line in text.splitlines() if " = " in line]:
        with pytest.raises(BadJobFile):
            parse_job_file(text.replace(line + "\n", "", 1), "a template without " + line)


@pytest.mark.parametrize(("records", "batch"), [(1, 8), (2, 8), (7, 2), (130, 8), (5_000, 8)])
def test_rounds_read_no_record_twice(records: int, batch: int) -> None:
    found = passes(records, batch, 3)
    read = found.batch * 2 * found.steps * found.rounds
    assert found.steps % found.segment == 0 and found.rounds >= 1
    assert read <= records or records < 2
    assert read > records / 2 or found.rounds == 3 or records < 2


@pytest.mark.parametrize(
    ("algorithm", "model", "given", "why"),
    [
        ("evaluate", "gpt", ["weights", "data", "precision"], r"\[evaluation\] is missing"),
        (
            "evaluate",
            "gpt",
            ["weights", "evaluation", "data", "precision", "optimiser", "schedule"],
            "no place",
        ),
        ("evaluate", "from", ["data"], "no place beside a model of your own"),
        ("infer", "from", ["weights", "inference"], "takes a template's model"),
        ("infer", "mlp", ["weights", "inference", "precision"], 'template = "gpt"'),
        ("infer", "gpt", ["weights", "inference", "precision", "data"], r"\[data\] has no place"),
        ("diloco", "gpt", ["data", "optimiser", "schedule", "precision", "weights"], r"\[weights\] has no"),
        ("diloco", "from", ["evaluation"], "no place"),
        ("grpo", "gpt", ["grpo", "optimiser", "schedule"], "decoder"),
        ("grpo", "decoder", ["optimiser", "schedule"], r"\[grpo\] is missing"),
        ("grpo", "decoder", ["grpo", "optimiser", "schedule", "precision"], "no place"),
        ("diloco", "decoder", [], "decoder is for"),
        ("diloco", "from", ["schedule"], "go together"),
    ],
)
def test_sections_that_do_not_fit_are_named(algorithm: str, model: str, given: list[str], why: str) -> None:
    assert re.search(why, misplaced(algorithm, model, given))


@pytest.mark.parametrize(
    ("algorithm", "model", "given"),
    [
        ("evaluate", "from", []),
        ("evaluate", "from", ["weights", "evaluation", "precision"]),
        ("infer", "gpt", ["weights", "inference", "precision"]),
        ("diloco", "from", ["optimiser", "schedule"]),
        ("diloco", "gpt", ["data", "optimiser", "schedule", "precision"]),
        ("grpo", "decoder", ["grpo", "optimiser", "schedule", "weights"]),
    ],
)
def test_sections_that_fit(algorithm: str, model: str, given: list[str]) -> None:
    assert misplaced(algorithm, model, given) == ""


def test_an_evaluation_has_the_weights_and_the_held_out_records(folder: Path) -> None:
    made = build(file(folder, evaluation(records=40), max_bytes="10000"))
    held = weights_of(str(folder / "w.safetensors"))
    for name, tensor in held.items():
        assert torch.equal(made.genesis[made.slot_names.index(name)], tensor)
    assert made.records is not None
    assert bytes(made.records.data) == datasets.standard_library(12, max_bytes=10_000).held_out


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"learning_rate": "0.7"}, "an inference trains nothing, so learning_rate cannot"),
        ({"rounds": "2"}, "2 rounds of 4 rows"),
        ({"context": "8"}, "do not fit the model"),
        ({"new_bytes": "9"}, "exceed the model's context of 12"),
        ({"prompt_bytes": "4"}, "prompt 2 has 5 bytes"),
        ({"steps_per_round": "4"}, "needs 8 steps"),
        ({"segment_steps": "3"}, "cannot be divided"),
        ({"temperature": "-0.5"}, "below 0"),
        ({"prompts": '"none.txt"'}, "cannot be read"),
    ],
)
def test_an_inference_that_does_not_fit_is_refused(folder: Path, changes: dict[str, str], why: str) -> None:
    wider = {"new_bytes": "2", **changes} if "context" in changes else changes
    with pytest.raises(Stop, match=why):
        build(file(folder, inference(), **wider))


def test_weights_are_read_by_their_cid(folder: Path) -> None:
    data = save({"w": torch.ones(2)})
    cid = str(Cid.of(data))

    class Kept:
        def read_file(self, name: str, max_bytes: int) -> bytes:
            assert name == cid and len(data) < max_bytes
            return data

    assert torch.equal(weights_of(cid, Kept())["w"], torch.ones(2))
    with pytest.raises(Stop, match="does not download weights"):
        weights_of(cid)
    text = evaluation().replace("w.safetensors", cid)
    weights = file(folder, text).weights
    assert weights is not None and weights.source == cid, "no path from the file's folder"


def test_weights_that_are_none_are_refused(folder: Path) -> None:
    for source, why in (("none", "no weights in"), ("p.txt", "no safetensors")):
        with pytest.raises(Stop, match=why):
            weights_of(str(folder / source))
    with pytest.raises(NoReceipt):
        weights_of(str(folder))  # a folder without a receipt
    with pytest.raises(Stop, match="do not have the same names"):
        with_parameters(models.build(SHAPE, 0), {"w": torch.ones(2)})


@pytest.mark.parametrize(
    ("lines", "says"),
    [
        (b"ab\n\nx\n", "no prompt on line 2, and"),
        (b"\n" + b"x\n\n" * 9, "no prompt on line 1, 3, 5, 7, 9, 11, 13, 15, ..., and"),
        (b"", "has no prompt"),
    ],
)
def test_an_empty_prompt_is_refused_where_the_file_is_begun(folder: Path, lines: bytes, says: str) -> None:
    (folder / "p.txt").write_bytes(lines)
    with pytest.raises(Stop, match=re.escape(says)):
        read_prompts(folder / "p.txt")
    with pytest.raises(Stop, match=re.escape(says)):
        build(file(folder, inference()))
    (folder / "manifest.json").write_text(json.dumps({"model": DESCRIPTION}))
    shutil.copy(folder / "w.safetensors", folder / "model.safetensors")
    given = ("job", "init", str(folder / "new.toml"), "--template", "infer", "--weights", str(folder))
    status, _, err = assay(*given, "--prompts", str(folder / "p.txt"))
    assert status and says in " ".join(err.split()) and not (folder / "new.toml").exists()


def test_a_line_is_a_prompt_and_its_end_is_not(tmp_path: Path) -> None:
    (tmp_path / "p").write_bytes(b"one\r\ntwo\n")
    assert read_prompts(tmp_path / "p") == [b"one", b"two"]


def test_a_model_that_no_template_makes_is_refused() -> None:
    for description in ({"kind": "own", "name": "mine.py"}, {**DESCRIPTION, "tied": True}):
        with pytest.raises(BadJobFile, match="no template makes"):
            evaluation_template(description, "w", "stdlib", 9, 1, 1, LOCAL)
    mlp = models.describe(models.MlpConfig())
    with pytest.raises(BadJobFile, match="only a GPT"):
        inference_template(mlp, "w", "p", 1, 1, 1, 0.0, LOCAL)
    assert 'source = "digits"' in evaluation_template(mlp, "w", "stdlib", 9, 1, 1, LOCAL)


def test_uses_have_the_names_that_rounds_know_them_by() -> None:
    """The job file is read without PyTorch, so it has them for itself."""
    assert {EVALUATE, INFER, GRPO} == OTHER_USES
