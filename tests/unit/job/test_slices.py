"""`[outer] slices`: how many an outer claim needs for its class is said before anything is published."""

from __future__ import annotations

import re

import pytest

from assay.job.build import build
from assay.job.read import JobFile, parse_job_file
from assay.job.templates import LOCAL, template
from assay.protocol.errors import Stop
from assay.training import models
from assay.training.models import from_description


def sliced(text: str, slices: int | None, shards: int, **changes: str) -> JobFile:
    """A job file's text with so many slices and shards, and lines changed."""
    stated = {"shards": str(shards), "min_shards": str(shards), **changes}
    lines = []
    for line in text.splitlines():
        name = line.partition(" = ")[0]
        lines.append(f"{name} = {stated[name]}" if name in stated else line)
        if line.startswith("[outer]") and slices is not None:
            lines.append(f"slices = {slices}")
    return parse_job_file("\n".join(lines), "a job")


def mlp(slices: int | None, **changes: str) -> JobFile:
    return sliced(template("mlp", source="digits", rounds=2, times=LOCAL), slices, 64, **changes)


def build_model(config: models.Config) -> dict[str, object]:
    """Its parameters by name."""
    return dict(models.build(config, 0).named_parameters())


@pytest.mark.long
def test_too_few_slices_for_the_class_are_refused_with_the_number_that_fits() -> None:
    """64 shards of the digits' model: what is said to be enough is, and less than half of it is refused."""
    small = {"state_bytes": "1000000", "step_bytes": "4000000", "solver_stake": '"99999tok"'}
    needed = []
    for slices in (None, 1, 2):
        with pytest.raises(Stop, match="more memory than the job's class allows") as no:
            build(mlp(slices, **small))
        needed.append(int(re.findall(r"write slices = (\d+) or more", no.value.hint)[0]))
    files = build(mlp(needed[-1], **small))
    assert files.slices == needed[-1] > 2 and abs(needed[0] - needed[1]) <= 1
    assert files.outer.state_bytes <= 1_000_000 and len(files.outer_genesis) == files.outer.slots
    with pytest.raises(Stop):
        build(mlp(needed[-1] // 2, **small))


def test_the_models_description_is_read_whatever_blocks_its_parameters_lie_in() -> None:
    """Sampling, evaluation and export build a fetched model from the manifest's model."""
    whole, cut = (build(mlp(slices)).model for slices in (None, 5))
    assert from_description(cut) == from_description(whole) and "parameters" in cut
    assert [name for name, _ in cut["parameters"]] == list(build_model(from_description(whole)))


@pytest.mark.parametrize(("name", "momentum"), [("streaming", 0.9), ("sparseloco", 0.0)])
def test_slices_of_what_works_on_whole_parameters_are_refused_with_the_reason(
    name: str, momentum: float
) -> None:
    file = mlp(4, algorithm=f'"{name}"')
    outer = file.outer.model_copy(update={"momentum": momentum})
    with pytest.raises(Stop, match=f"the outer step of {name} cannot be cut into slices"):
        build(file.model_copy(update={"outer": outer}))
