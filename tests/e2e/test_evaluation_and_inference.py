"""A model trained, evaluated and asked by the market, all by commands and processes on a real chain; and a
solver that claims another loss than there is."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from assay.client.fetched import model_and_parameters
from assay.client.results import WRITTEN
from assay.devnet.market import take_down
from assay.job.build import build
from assay.job.parts import recipe_of
from assay.job.read import read_job_file
from assay.program.execute import Executor, StepContext
from assay.training.evaluate import evaluated, with_parameters
from assay.training.inference import RESULT, TOKENS
from assay.training.job import JobArtifacts
from tests.e2e.tutorials import Reader

pytestmark = pytest.mark.slow
TRAINED = """
```sh
mkdir -p .assay
assay devnet up --solvers 0 --verifiers 3 --whistleblowers 1 --block-time 0.5
assay job init train.toml --rounds 1
sed -i 's/^layers = 4/layers = 1/; s/^width = 128/width = 16/; s/^context = 64/context = 32/' train.toml
sed -i 's/^heads = 4/heads = 2/; s/^steps_per_round = 64/steps_per_round = 16/' train.toml
sed -i 's/^max_bytes = 4000000/max_bytes = 60000/; s/^shards = 2/shards = 1/' train.toml
sed -i 's/^min_shards = 2/min_shards = 1/; s/^challenge_window = .*/challenge_window = "8s"/' train.toml
assay account new eve
assay --yes token faucet eve 10000tok
assay --account eve --yes stake deposit 5000tok --role solver
```
```sh title="in another terminal, until it says: started"
assay --account eve --yes solver run --max-shards 1
```
```sh title="in another terminal, until it says: posted job"
assay --account client --yes job post train.toml --budget 400tok
```
```sh
assay job watch latest --no-losses
assay job fetch latest --out model
```
"""
EVALUATED = """
```sh
assay job init eval.toml --template eval --weights model --rounds 1
sed -i 's/^max_bytes = 4000000/max_bytes = 60000/; s/^steps_per_round = 64/steps_per_round = 4/' eval.toml
sed -i 's/^challenge_window = .*/challenge_window = "8s"/' eval.toml
assay job validate eval.toml
assay account new mallory
assay --yes token faucet mallory 10000tok
assay --account mallory --yes stake deposit 5000tok --role solver
```
```sh title="in another terminal, until it says: started"
python -m drills --account mallory --yes solver run --fault 0:3:SLOT:0
```
```sh title="in another terminal, until it says: posted job"
assay --account client --yes job post eval.toml --budget 400tok
```
```sh
until assay --json job show latest | grep -q '"convictions": 1'; do sleep 1; done
assay account new adam
assay --yes token faucet adam 10000tok
assay --account adam --yes stake deposit 5000tok --role solver
```
```sh title="in another terminal, until it says: started"
assay --account adam --yes solver run --max-shards 1
```
```sh
assay job watch latest --no-losses
assay --json job show latest > shown.json
assay --json job fetch latest --out loss > fetched.json
assay job verify loss --rpc --replay all
```
"""
ASKED = """
```sh
printf 'def f\\nimport o\\nclass\\n' > prompts.txt
assay job init infer.toml --template infer --weights model --prompts prompts.txt --new-bytes 8 \\
  --temperature 0.7
sed -i 's/^challenge_window = .*/challenge_window = "8s"/' infer.toml
assay job validate infer.toml
```
```sh title="in another terminal, until it says: posted job"
assay --account client --yes job post infer.toml --budget 400tok
```
```sh
assay job watch latest --no-losses
assay --json job fetch latest --out rows > written.json
assay job verify rows --rpc --replay all
```
"""


def test_loss_and_tokens_by_command(tmp_path: Path) -> None:
    reader = Reader(tmp_path)
    try:
        _told(reader, tmp_path, TRAINED)
        _, params = model_and_parameters(tmp_path / "model")
        slot = 1 + len(params) + 1  # after the result, the weights and the batch's loss: the sum
        said = _told(reader, tmp_path, EVALUATED.replace("SLOT", str(slot)))
        said += _told(reader, tmp_path, ASKED)
    finally:
        reader.close()
        take_down(tmp_path / ".assay")
    body = read_job_file(tmp_path / "eval.toml")
    made, training = recipe_of(body), body.training
    rows = made.dataset.held_out_batch(training.batch * training.shards * training.steps_per_round)
    native = evaluated(with_parameters(made.model, params), made.loss, made.dataset.layout, rows)
    fetched = json.loads((tmp_path / "fetched.json").read_text())["data"]
    (loss,) = fetched["results"].values()
    assert loss == pytest.approx(native.loss, rel=1e-3)
    (number,) = json.loads((tmp_path / "shown.json").read_text())["data"]["results"]
    assert number["value"] == loss
    assert said.count("segments give the receipt's roots") == 2
    rows = alone(build(read_job_file(tmp_path / "infer.toml")))
    _, found = model_and_parameters(tmp_path / "rows")
    assert torch.equal(found[RESULT], rows)
    lines = [json.loads(line) for line in (tmp_path / "rows" / WRITTEN).read_text().splitlines()]
    assert [line["prompt"] for line in lines] == ["def f", "import o", "class"]
    told = json.loads((tmp_path / "written.json").read_text())["data"]
    assert told["answered"] == 3 and list(told["cids"]) == [RESULT]


def alone(made: JobArtifacts) -> torch.Tensor:
    """The rows of the first round, by the task's program and no market."""
    run, found = Executor(made.inner), []
    for shard in range(2):
        state = list(made.genesis)
        for step in range(16):
            state = list(run.step(state, StepContext(made.records, bytes(32), shard, step)))
        found.append(state[made.slot_names.index(TOKENS)])
    return torch.cat(found)


def _told(reader: Reader, folder: Path, story: str) -> str:
    path = folder / "story.md"
    path.write_text(story.lstrip())
    return reader.follow(path)
