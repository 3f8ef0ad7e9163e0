"""Job files that nobody could have meant: each is refused by name."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from assay.app.settings import _read_file
from assay.job.build import build
from assay.job.estimate import drafted, estimated
from assay.job.parts import rule_of, schedule_of
from assay.job.read import BadJobFile, JobFile, parse_job_file, read_job_file
from assay.job.templates import LOCAL, by_algorithm, stated, template
from assay.job.terms import conditions_of
from assay.job.use_templates import grpo_template
from assay.program.isa import Op
from assay.program.stages import boundaries, cut
from assay.protocol.errors import Ask, Stop
from assay.training.algorithms import Algorithm
from assay.training.catalogue import NUMBERS, outer_of
from assay.training.job import JobArtifacts
from tests.marked import long

HOSTILE = {
    "5,000 digits": b"rounds = " + b"9" * 5_000,
    "brackets without end": b"rounds = " + b"[" * 50_000,
    "no text": b"\xff\xfe\x00",
    "nothing": b"",
}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_a_job_file_that_cannot_be_read_is_refused_with_the_next_step(tmp_path: Path, text: bytes) -> None:
    path = tmp_path / "job.toml"
    path.write_bytes(text)
    with pytest.raises(BadJobFile) as caught:
        read_job_file(path)
    assert str(path) in caught.value.message and caught.value.hint


def test_a_folder_is_no_job_file(tmp_path: Path) -> None:
    with pytest.raises(BadJobFile) as caught:
        read_job_file(tmp_path)
    assert caught.value.message == f"cannot read {tmp_path}: is a directory"


def refused(key: str, instead: str) -> str:
    """What is said of a job file in which something else stands."""
    text = template("mlp", source="digits", rounds=1, times=LOCAL, optimiser="adamw")
    assert f"\n{key}" in text
    with pytest.raises(BadJobFile) as caught:
        parse_job_file(text.replace(f"\n{key}", f"\n{instead}", 1), "job.toml")
    return caught.value.message


@pytest.mark.parametrize(
    ("key", "instead", "says"),
    [
        (
            "momentum = 0.9",
            "momentun = 0.9",
            "outer.momentum is missing; outer.momentun is no key of a job file",
        ),
        (
            'algorithm = "diloco"',
            'algorithm = "dilco"',
            "outer.algorithm is 'dilco'; it is one of 'fedavg', ",
        ),
        ("shards = 2", "shards = -2", "training.shards: it should be greater than or equal to 1"),
        ("momentum = 0.9", "momentum = 1.0", "outer.momentum: it should be less than 1"),
        ("learning_rate = 0.7", "learning_rate = -0.7", "outer.learning_rate: it should be greater than or"),
        ("learning_rate = 0.7", "learning_rate = 0.0", "outer.learning_rate: by diloco with 0 nothing is"),
        ("learning_rate = 0.7", "learning_rate = nan", "outer.learning_rate: must be a finite"),
        ("learning_rate = 0.002", "learning_rate = -0.002", "optimiser.learning_rate: it should be gr"),
        ("beta2 = 0.95", "beta2 = 1.0", "optimiser.beta2: it should be less than 1"),
        ("epsilon = 1e-8", "epsilon = 0.0", "optimiser.epsilon: it should be greater than 0"),
        ("floor = 0.0", "floor = 1.5", "schedule.floor: it should be less than or equal to 1"),
        ('price_cap = "20tok"', 'price_cap = "-20tok"', "money.price_cap: '-20tok' is below 0, and"),
        (
            "rounds = 1",
            "round = 1",
            "training.rounds is missing; training.round is no key of a job",
        ),
        ("beta2 = 0.95", "betas2 = 0.95", "optimiser.beta2 is missing; optimiser.betas2 is no key of"),
        ("hidden = 64", "hiden = 64", "model.hidden is missing; model.hiden is no key of a job file; did"),
        ("products = ", "product = ", "precision.products is missing; precision.product is no key of a job"),
        ('name = "adamw"', 'name = "adam"', "optimiser.name is 'adam'; it is one of"),
        ('template = "mlp"', 'template = "mpl"', "model: write template = "),
    ],
)
def test_a_wrong_key_is_told_in_plain_words(key: str, instead: str, says: str) -> None:
    assert f"is not a valid job file: {says}" in refused(key, instead)


@pytest.mark.parametrize(
    ("key", "instead", "near"),
    [
        ("rounds = 1", "round = 1", "rounds"),
        ("hidden = 64", "heads = 2\nhidden = 64\nhiddn = 1", "hidden"),
        ("beta2 = 0.95", "betas2 = 0.95", "beta2"),
        ("hidden = 64", "hiden = 64", "hidden"),
        ("[times]", "[time]", "times"),
        ("[class]", "[clas]", "class"),
        ('algorithm = "diloco"', 'algorithm = "dilocco"', "diloco"),
        ('name = "adamw"', 'name = "adam"', "adamw"),
        ('template = "mlp"', 'template = "mpl"', "mlp"),
        ('decay = "constant"', 'decay = "cosin"', "cosine"),
    ],
)
def test_what_was_meant_is_named(key: str, instead: str, near: str) -> None:
    assert f"; did you mean {near!r}?" in refused(key, instead)


@pytest.mark.parametrize(
    ("key", "instead"),
    [("hidden = 64", "hidden = 64\ncontex = 3"), ("beta2 = 0.95", "beta2 = 0.95\nnesterv = 1")],
)
def test_no_key_of_another_kind_is_meant(key: str, instead: str) -> None:
    said = refused(key, instead)
    assert "is no key of a job file" in said and "mean" not in said


@pytest.mark.parametrize(
    ("key", "instead"),
    [
        ("rounds = 1", 'rounds = "1"'),
        ("rounds = 1", "rounds = true"),
        ("rounds = 1", "rounds = 1.0"),
        ("momentum = 0.9", 'momentum = "0.9"'),
        ("momentum = 0.9", "momentum = false"),
        ("floor = 0.0", "floor = false"),
        ("warmup_steps = 0", 'warmup_steps = "0"'),
        ("state_bytes = ", "state_bytes = 1.0 # "),
        ("learning_rate = 0.7", "top_k = true\nlearning_rate = 0.7"),
        ("learning_rate = 0.7", 'block_size = "64"\nlearning_rate = 0.7'),
    ],
)
def test_a_value_of_another_type_is_read_as_no_number(key: str, instead: str) -> None:
    text = template("mlp", source="digits", rounds=1, times=LOCAL, optimiser="adamw")
    assert f"\n{key}" in text
    with pytest.raises(BadJobFile) as caught:
        parse_job_file(text.replace(f"\n{key}", f"\n{instead}", 1), "job.toml")
    assert "it should be a valid" in caught.value.message
    there = instead.partition(" = ")[2].partition(" #")[0].partition("\n")[0]
    assert caught.value.message.endswith(f", not {there}"), "the value as the file has it"


def test_a_whole_number_may_stand_for_one_with_a_point() -> None:
    text = template("mlp", source="digits", rounds=1, times=LOCAL, optimiser="adamw")
    assert parse_job_file(stated(text, "outer.learning_rate", "1"), "job.toml").outer.learning_rate == 1.0


def test_what_is_like_nothing_is_guessed_at_by_nobody() -> None:
    text = template("mlp", source="digits", rounds=1, times=LOCAL, optimiser="adamw")
    with pytest.raises(BadJobFile) as caught:
        parse_job_file(text.replace("\nrounds = 1", "\nrounds = 1\nxyzzy = 3"), "job.toml")
    assert caught.value.message == "job.toml is not a valid job file: training.xyzzy is no key of a job file"


@pytest.mark.parametrize("text", [t for t in HOSTILE.values() if t])
def test_a_configuration_that_cannot_be_read_is_refused_with_the_next_step(
    tmp_path: Path, text: bytes
) -> None:
    path = tmp_path / "config.toml"
    path.write_bytes(text)
    with pytest.raises(Ask) as caught:
        _read_file(path)
    assert caught.value.code == "bad-config" and str(path) in caught.value.hint


def test_micro_steps_of_a_file_are_slots_of_its_job() -> None:
    text = template("mlp", source="digits", rounds=1, times=LOCAL)
    plain = build(parse_job_file(text, "a test"))
    made = build(parse_job_file(text.replace("micro_steps = 1 ", "micro_steps = 4 "), "a test"))
    added = [name for name in made.slot_names if name not in plain.slot_names]
    assert added == [*(f"grad_sum.{name}" for name in plain.slot_names[: plain.inner.params]), "micro_step"]
    assert made.inner.params == plain.inner.params and made.outer.root == plain.outer.root


def test_a_schedule_goes_by_the_optimisers_steps() -> None:
    text = stated(template("mlp", source="digits", rounds=3, times=LOCAL), "schedule.decay", '"cosine"')
    text = stated(stated(text, "schedule.warmup_steps", "10"), "training.micro_steps", "4")
    course = schedule_of(parse_job_file(text, "a test"))
    assert (course.warmup_steps, course.total_steps) == (3, 3 * 64 // 4)
    assert course.factor(torch.tensor(47.0)) < 0.01 < course.factor(torch.tensor(40.0)), (
        "it ends with the job"
    )
    course = schedule_of(parse_job_file(stated(text, "schedule.total_steps", "90"), "a test"))
    assert course.total_steps == 23


@pytest.mark.parametrize("name", ["demo", "data-parallel"])
def test_a_round_of_one_step_is_no_micro_step(name: str) -> None:
    text = by_algorithm(template("mlp", source="digits", rounds=3, times=LOCAL), name)
    with pytest.raises(BadJobFile, match="with 2 micro-steps most rounds would not change the model"):
        build(parse_job_file(stated(text, "training.micro_steps", "2"), "a test"))


def of_two_speeds(
    text: str, speeds: str = "[speeds]\nslow_shards = 1\nslow_by = 4\n", outer: str = ""
) -> str:
    """A template's job file by delayed Nesterov with a slow shard."""
    changed = text.replace(
        'algorithm = "diloco" ', 'algorithm = "delayed-nesterov"' + (outer or "\nmomentum_every = 2")
    )
    assert changed != text
    return changed + speeds


def test_shards_of_two_speeds_are_in_the_terms_and_the_estimate() -> None:
    text = of_two_speeds(template("mlp", source="digits", rounds=3, times=LOCAL))
    file = parse_job_file(text, "a test")
    made = build(file)
    terms = drafted(file, made)
    train, compress = terms.loops
    assert (train.slow_from, train.slow_by, compress.slow_by) == (1, 4, 1)
    assert [terms.main.of(shard).steps for shard in range(2)] == [64, 16]
    assert estimated(terms, made, 32).steps == 3 * (64 + 16)
    count = made.inner.params
    kept = [made.outer_genesis[count + 3 * i + 2] for i in range(count)]
    assert all(x.shape == () and x.dtype == torch.int32 for x in kept), "the rounds so far"


def test_a_crews_job_is_rounded_where_its_plan_cuts() -> None:
    text = template("mlp", source="digits", rounds=3, times=LOCAL)
    crew = "[crew]\nmembers = 2\nboundary = 8\n"
    plain, made = (build(parse_job_file(text + more, "a test")) for more in ("", crew))
    wide, narrow = (boundaries(cut(each.inner, 2)) for each in (plain, made))
    assert max(narrow) < max(wide) and made.inner.root != plain.inner.root
    assert [how for _, how, _ in made.sites] == [how for _, how, _ in plain.sites]
    for _, _, nodes in made.sites:
        assert all(made.inner.nodes[node].op is Op.PRODUCT for node in nodes)
    for wrong in ("members = 9\nboundary = 8", "members = 2\nboundary = 4", "members = 2"):
        with pytest.raises(BadJobFile, match=r"crew\.(members|boundary)"):
            parse_job_file(f"{text}[crew]\n{wrong}\n", "a test")
    with pytest.raises(BadJobFile, match="has no place"):
        parse_job_file(grpo_template(1, LOCAL) + crew, "a test")


def test_a_held_out_loss_is_one_loop_and_one_sample_more() -> None:
    text = template("mlp", source="digits", rounds=3, times=LOCAL)
    plain, file = (parse_job_file(text + more, "a test") for more in ("", "[held_out]\nrecords = 7\n"))
    terms, before = drafted(file, build(file)), drafted(plain, build(plain))
    assert [loop.steps for loop in terms.loops] == [1, *(loop.steps for loop in before.loops)]
    assert terms.main.steps == before.main.steps == 64
    assert conditions_of(file).samples == conditions_of(plain).samples + 1
    with pytest.raises(BadJobFile, match=r"held_out\.records"):
        parse_job_file(text + "[held_out]\nrecords = 0\n", "a test")
    with pytest.raises(BadJobFile, match="has no place"):
        parse_job_file(grpo_template(1, LOCAL) + "[held_out]\nrecords = 7\n", "a test")


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"speeds": "[speeds]\nslow_shards = 2\nslow_by = 4\n"}, "covers all 2 shards"),
        ({"speeds": "[speeds]\nslow_shards = 1\nslow_by = 3\n"}, "cannot be divided by 3"),
        ({"speeds": "[speeds]\nslow_shards = 0\nslow_by = 2\n"}, "speeds.slow_shards"),
        ({"speeds": "[speeds]\nslow_shards = 1\n"}, "speeds.slow_by"),
        ({"outer": "\n"}, "delayed-nesterov needs it"),
        ({"outer": "\nmomentum_every = 0"}, "outer.momentum_every"),
    ],
)
def test_speeds_that_nobody_could_mean_are_refused(changes: dict[str, str], why: str) -> None:
    text = template("mlp", source="digits", rounds=3, times=LOCAL)
    with pytest.raises(Stop, match=why):
        build(parse_job_file(of_two_speeds(text, **changes), "a test"))


def test_a_delay_of_no_delayed_momentum_is_refused() -> None:
    text = template("mlp", source="digits", rounds=3, times=LOCAL)
    with pytest.raises(BadJobFile, match="no other algorithm has it"):
        parse_job_file(
            text.replace("learning_rate = 0.7", "learning_rate = 0.7\nmomentum_every = 2"), "a test"
        )


def streamed(numbers: str, algorithm: str = "streaming") -> str:
    """A template's job file by Streaming DiLoCo, with these numbers."""
    text = template("mlp", source="digits", rounds=3, times=LOCAL)
    return text.replace('algorithm = "diloco" ', f'algorithm = "{algorithm}"{numbers}')


@pytest.mark.long
def test_streamings_numbers_are_published_and_the_usual_ones_without_them() -> None:
    def made(numbers: str) -> JobArtifacts:
        return build(parse_job_file(streamed(numbers), "a test"))

    plain = made("")
    usual = made("\nfragments = 4\noverlap_rounds = 1\nalpha = 0.5")
    assert (usual.tasks, usual.outers, usual.links) == (plain.tasks, plain.outers, plain.links)
    assert plain.links[1].lag == 2
    other = made("\nfragments = 5\noverlap_rounds = 3\nalpha = 0.25")
    assert other.links[1].lag == 4 and other.links[2:] == plain.links[2:]
    kept = made("\nalpha = 0.25")
    assert kept.links == plain.links and kept.outers == plain.outers
    assert [x.root == y.root for x, y in zip(kept.tasks, plain.tasks, strict=True)] == [False, True, True]


@pytest.mark.parametrize(
    ("numbers", "why"),
    [
        ("\nfragments = 0", r"outer\.fragments: it should be greater than or equal to 1"),
        ("\nfragments = 9999", "9999 fragments are asked for"),
        ("\noverlap_rounds = -1", r"outer\.overlap_rounds"),
        ("\nfragments = 300\noverlap_rounds = 255", r"outer\.overlap_rounds"),
        ("\nfragments = 2\noverlap_rounds = 2", "sent again after 2 rounds"),
        ("\noverlap_rounds = 4", "sent again after 4 rounds"),
        ("\nalpha = 1.0", r"outer\.alpha is 1\.0; .* learns nothing"),
        ("\nalpha = -0.1", r"outer\.alpha is -0\.1"),
        ("\nalpha = nan", r"outer\.alpha"),
    ],
)
def test_numbers_that_no_streaming_can_have_are_refused(numbers: str, why: str) -> None:
    with pytest.raises(Stop, match=why):
        build(parse_job_file(streamed(numbers), "a test"))


@pytest.mark.parametrize("number", ["fragments = 4", "overlap_rounds = 1", "alpha = 0.5"])
@pytest.mark.parametrize("algorithm", ["diloco", "diloco-4bit"])
def test_streamings_numbers_are_refused_of_other_algorithms(number: str, algorithm: str) -> None:
    key = number.partition(" ")[0]
    with pytest.raises(BadJobFile, match=rf"outer\.{key}: streaming may have it, and no other"):
        parse_job_file(streamed(f"\n{number}", algorithm), "a test")


@pytest.mark.parametrize("name", ["diloco-4bit", *map(long, ("diloco-u8", "streaming"))])
def test_a_block_of_the_files_own_is_what_the_wire_has(name: str) -> None:
    def file(numbers: str) -> JobFile:
        return parse_job_file(streamed(numbers, name), "a test")

    def sent_by(numbers: str) -> Algorithm | None:
        return outer_of(name, rule_of(file(numbers)))

    usual = NUMBERS["block_size"].usual[name]
    assert sent_by("") == sent_by(f"\nblock_size = {usual}") != sent_by("\nblock_size = 32")
    made = build(file("\nblock_size = 32"))
    named = zip(made.slot_names, made.inner.state, strict=True)
    wire = {node.shape for slot, node in named if slot.startswith("wire")}
    assert (128, 32) in wire, "of a matrix of 64 x 64"
    assert (1, 10) in wire, "fewer numbers than a block are one, and nothing is filled up"


@pytest.mark.parametrize(
    ("algorithm", "block", "why"),
    [
        ("diloco-4bit", "0", r"outer\.block_size: it should be greater than or equal to 1"),
        ("diloco-4bit", "4097", r"outer\.block_size is 4097, and at most 4096: the arbiter"),
        ("diloco-4bit", "64.5", r"outer\.block_size"),
        ("diloco", "64", r"outer\.block_size .* has a scale for a block: .*diloco-4bit.*; not for diloco"),
        ("sparseloco", "64", r"outer\.block_size .*; not for sparseloco"),
    ],
)
def test_a_block_that_cannot_be_is_refused(algorithm: str, block: str, why: str) -> None:
    with pytest.raises(BadJobFile, match=why):
        parse_job_file(streamed(f"\nblock_size = {block}", algorithm), "a test")


def test_a_model_for_which_there_is_no_memory_is_no_bug_of_ours() -> None:
    text = template("mlp", source="digits", rounds=1, times=LOCAL)
    with pytest.raises(Stop, match="too little memory for the parameters"):
        build(parse_job_file(stated(text, "model.hidden", "100000000"), "a test"))
