"""Jobs by hand on a running devnet: a job file, a posted, funded, halted job, and all that is refused."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from assay.app.invocation import App
from assay.app.output import Exit, Output
from assay.app.settings import Flags
from assay.app.web import serve_blocks
from assay.app.wiring import Connection, NodeStorage
from assay.cli.commands.job_post import FOUND
from assay.client.posting import open_class, publish
from assay.job.build import build
from assay.job.read import read_job_file
from assay.job.terms import conditions_of, terms_of
from assay.node.manifests import raw_cid
from assay.protocol.types import Role, Terms, Wei
from assay.protocol.words import show_amount
from assay.solver.release import RELEASED_FILE
from tests.integration.cli.conftest import Assay

TOK = 10**18
UNKNOWN = "ab" * 32


@pytest.fixture(scope="module")
def job_file(home: Path, assay: Assay) -> Path:
    """The smallest job that the templates give: 3 rounds of a tiny network on digits."""
    path = home / "job.toml"
    assert assay("job", "init", str(path), "--template", "mlp", "--rounds", "2").status == Exit.OK
    path.write_text(path.read_text().replace("hidden = 64", "hidden = 4"))
    return path


@pytest.fixture(scope="module")
def job(assay: Assay, job_file: Path) -> str:
    """Id of a posted job that nobody works on."""
    posted = assay("job", "post", str(job_file), "--budget", "200tok", "--no-serve")
    return str(posted.data["job"])


@pytest.mark.long
def test_what_pays_nobody_honest_is_said_before_it_is_posted(assay: Assay, job_file: Path) -> None:
    poor = job_file.with_name("poor.toml")
    cheap = job_file.read_text().replace('verifier_fee = "3tok"', 'verifier_fee = "2.2tok"')
    poor.write_text(cheap + "\n[held_out]\nrecords = 64\n")
    warnings = assay("job", "validate", str(poor)).data["warnings"]
    posted = assay("job", "post", str(poor), "--budget", "200tok", "--no-serve")
    (line,) = (one for one in warnings if "verifier_fee" in one)
    assert posted.data["job"] and f"WARNING: {line}" in posted.err


def test_a_job_file_is_written_once(assay: Assay, job_file: Path) -> None:
    before = job_file.read_text()
    again = assay("job", "init", str(job_file))
    assert again.status == Exit.CONFIG and again.error["code"] == "file-exists"
    assert job_file.read_text() == before


def test_a_sound_job_is_validated_with_its_worst_case(assay: Assay, job_file: Path) -> None:
    data = assay("job", "validate", str(job_file)).data
    # 2 rounds of 2 shards at 20 tok and 2 verifiers at 3 tok, and an outer step at 1 tok
    assert data["worstCase"] == str(2 * (2 * (20 + 2 * 3) + 1) * TOK)
    assert set(data) == {*FOUND, "wire", "inParts", "warnings"}, "each has words for a person"
    assert data["parameters"] > 0 and data["nodes"] > data["outerNodes"] > 0


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("batch = 32", "batch = 32\nbatches = 3", "training.batches"),
        ('price_cap = "20tok"', 'price_cap = "20s"', "money.price_cap"),
        ('task = "120s"', 'task = "120tok"', "times.task"),
        ("[model]", "[model", "not TOML"),
        ('source = "digits"', 'source = "stdlib"', "digits"),
        ("segment_steps = 4 ", "segment_steps = 5 ", "segment"),
        ("segments = 256", "segments = 8", "segments"),
        ('move = "3m"', 'move = "1s"', "move"),
    ],
)
def test_a_bad_job_file_is_refused_by_the_name_of_what_is_wrong(
    assay: Assay, job_file: Path, tmp_path: Path, old: str, new: str, says: str
) -> None:
    text = job_file.read_text()
    assert text.count(old) >= 1
    bad = tmp_path / "bad.toml"
    bad.write_text(text.replace(old, new, 1))
    refused = assay("job", "validate", str(bad))
    assert refused.status == Exit.USAGE
    assert says.lower() in refused.error["message"].lower()


def test_a_job_file_that_is_not_there_is_said(assay: Assay, tmp_path: Path) -> None:
    refused = assay("job", "validate", str(tmp_path / "none.toml"))
    assert refused.status == Exit.USAGE and "assay job init" in refused.error["hint"]


@pytest.mark.long
def test_a_posted_job_is_listed_and_shown(assay: Assay, home: Path, job: str) -> None:
    listed = {entry["job_id"]: entry for entry in assay("job", "ls").data}
    assert listed[job]["escrow"] == str(200 * TOK)
    with serving(home):
        shown = assay("job", "show", job.removeprefix("0x")).data
    assert shown["job"]["job_id"] == job and shown["paid"] in (0, "0")
    assert len(shown["tasks"]) == 4


def test_a_job_is_funded(assay: Assay, job: str) -> None:
    before = next(e for e in assay("job", "ls").data if e["job_id"] == job)["escrow"]
    assert assay("job", "fund", job, "5tok").status == Exit.OK
    after = next(e for e in assay("job", "ls").data if e["job_id"] == job)["escrow"]
    assert int(after) - int(before) == 5 * TOK


@pytest.mark.long
def test_a_stranger_cannot_halt_a_job_and_its_client_can(assay: Assay, job_file: Path) -> None:
    posted = assay("job", "post", str(job_file), "--budget", "110tok", "--no-serve").data["job"]
    assay("account", "new", "stranger")
    assay("token", "faucet", "stranger", "1tok")
    refused = assay("job", "halt", posted, account="stranger")
    assert refused.status == Exit.REVERTED and refused.error["hint"]
    assert assay("job", "halt", posted).status == Exit.OK
    (entry,) = [e for e in assay("job", "ls").data if e["job_id"] == posted]
    assert entry["progress"]["halted"] is True
    early = assay("job", "close", posted)
    assert (
        early.status != Exit.OK
        and early.error["code"] == "not-finished"
        and ", in " in early.error["message"]
    )
    assert assay("devnet", "warp", "300s").status == Exit.OK
    closed = assay("job", "close", posted)
    assert closed.status == Exit.OK, closed.err
    (entry,) = [e for e in assay("job", "ls").data if e["job_id"] == posted]
    assert entry["progress"]["closed"] is True and int(entry["escrow"]) == 0


@pytest.mark.long
def test_a_budget_below_the_worst_case_posts_nothing(assay: Assay, job_file: Path) -> None:
    jobs, balance = assay("job", "ls").data, assay("token", "balance").data
    refused = assay("job", "post", str(job_file), "--budget", "105tok", "--no-serve")
    assert refused.status == Exit.USAGE and refused.error["code"] == "over-budget"
    assert assay("job", "ls").data == jobs and assay("token", "balance").data == balance


def test_what_needs_no_program_is_refused_before_one_is_traced(
    assay: Assay, job_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def build(*_: object, **__: object) -> None:
        raise AssertionError("the step was traced")

    monkeypatch.setattr("assay.job.build.build", build)
    post = ("job", "post", str(job_file), "--no-serve", "--budget")
    assert assay(*post, "1tok", account="nobody").error["code"] == "no-account"
    poor = assay(*post, "99999999tok")
    assert poor.status == Exit.FUNDS and "99999999 tok" in poor.error["message"]
    assert assay(*post, "106tok").status == Exit.BUG, "the measure would notice"


def test_a_budget_that_the_client_has_not_got_posts_nothing(assay: Assay, job_file: Path) -> None:
    jobs = assay("job", "ls").data
    refused = assay("job", "post", str(job_file), "--budget", "99999999tok", "--no-serve")
    assert refused.status == Exit.FUNDS and refused.error["code"] == "unfunded"
    assert assay("job", "ls").data == jobs


@pytest.mark.parametrize(
    "command",
    [
        ("job", "show", UNKNOWN),
        ("job", "watch", UNKNOWN),
        ("job", "fetch", UNKNOWN, "--out", "nowhere"),
        ("job", "fund", UNKNOWN, "1tok"),
        ("job", "halt", UNKNOWN),
        ("solver", "why", UNKNOWN),
        ("whistle", "scan", UNKNOWN),
        ("dispute", "open", UNKNOWN, "--round", "0"),
        ("dispute", "show", "77"),
        ("dispute", "play", "77"),
        ("dispute", "ls", "--job", UNKNOWN),
    ],
    ids=lambda command: " ".join(command[:2]),
)
def test_what_does_not_exist_is_not_found(assay: Assay, home: Path, command: tuple[str, ...]) -> None:
    balance = assay("token", "balance").data
    refused = assay(*command)
    assert refused.status == Exit.NOT_FOUND, refused.out + refused.err
    assert refused.error["hint"] and assay("token", "balance").data == balance
    assert not Path("nowhere").exists()


def test_an_id_is_given_by_its_first_digits(assay: Assay, home: Path, job: str) -> None:
    with serving(home):
        assert assay("job", "show", job[:10]).data["job"]["job_id"] == job
    refused = assay("job", "show", "ab" * 31)
    assert refused.status == Exit.NOT_FOUND and refused.error["code"] == "no-such-job"


def test_there_are_no_games(assay: Assay) -> None:
    assert assay("dispute", "ls").data == []


def test_a_claim_that_does_not_stand_is_not_found(assay: Assay, home: Path, job: str) -> None:
    with serving(home):
        refused = assay("dispute", "open", job, "--round", "0", "--shard", "0")
    assert refused.status == Exit.NOT_FOUND and refused.error["code"] == "no-such-claim"


def test_a_model_that_is_not_settled_is_not_fetched(assay: Assay, job: str, tmp_path: Path) -> None:
    refused = assay("job", "fetch", job, "--out", str(tmp_path / "model"))
    assert refused.status == Exit.TIMEOUT and refused.error["code"] == "not-settled"
    assert not (tmp_path / "model").exists()


def test_a_folder_that_is_no_fetched_model_is_not_valid(assay: Assay, tmp_path: Path) -> None:
    checked = assay("job", "verify", str(tmp_path))
    assert checked.status == Exit.USAGE and checked.error["code"] == "not-fetched"
    (tmp_path / "receipt.json").write_text("{}")
    checked = assay("job", "verify", str(tmp_path))
    assert checked.status == Exit.FRAUD and checked.data["valid"] is False


def app_for(home: Path, account: str = "client") -> App:
    return App(Flags(home=str(home), account=account), Output(True, True), True, False, None)


class serving:
    """The client's blocks, served for the length of a `with` block."""

    def __init__(self, home: Path) -> None:
        self.app = app_for(home)

    def __enter__(self) -> tuple[Connection, NodeStorage]:
        connection, storage = self.app.connect(), self.app.storage("client")
        self._served = serve_blocks("client", connection, storage)
        self._served.__enter__()
        return connection, storage

    def __exit__(self, *_: object) -> None:
        self._served.__exit__(None, None, None)
        self.app.close()


@pytest.fixture(scope="module")
def sound_terms(home: Path, job_file: Path) -> Iterator[Terms]:
    app = app_for(home)
    body = read_job_file(job_file)
    connection, storage = app.connect(), app.storage("client")
    me, class_id = connection.writer.me, open_class(connection.writer, conditions_of(body))
    yield publish(storage.blocks, build(body), lambda files: terms_of(body, files, class_id, me, 7))
    storage.close()
    app.close()


def manifest_with(**changes: Any) -> Callable[[dict[str, Any]], dict[str, Any]]:
    return lambda body: {**body, **changes}


def with_program(body: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """The manifest with its first task program described otherwise."""
    first, *others = body["inner"]
    return {**body, "inner": [{**first, **changes}, *others]}


HOSTILE: dict[str, Any] = {
    "not JSON": b"\xff\xfe not JSON",
    "deep nesting": b"[" * 100_000,
    "huge": b" " * ((1 << 20) + 1),
    "another schema": manifest_with(schema="assay/job/2"),
    "a wrong root": lambda body: {**body, "genesis": {**body["genesis"], "root": "00" * 32}},
    "another file's CID": lambda body: with_program(body, cid=body["genesis"]["cid"]),
    "no CID at all": lambda body: with_program(body, cid="../../etc/passwd"),
    "records without end": lambda body: {**body, "dataset": {**body["dataset"], "records": 1 << 60}},
}


@pytest.mark.long
@pytest.mark.parametrize("kind", HOSTILE)
def test_attack_43_a_hostile_manifest_is_refused_by_every_reader(
    assay: Assay, home: Path, sound_terms: Terms, kind: str
) -> None:
    import json

    from assay.protocol.canonical_json import canonical_json

    with serving(home) as (connection, storage):
        body = HOSTILE[kind]
        if callable(body):
            sound = json.loads(storage.blocks.get(raw_cid(sound_terms.manifest)))
            body = canonical_json(body(sound))
        storage.blocks.put(body)
        terms = replace(sound_terms, manifest=sha256(body).digest(), nonce=secrets.randbits(60))
        market = connection.writer
        market.deposit(connection.intent("deposit"), Wei(110 * TOK))
        job_id = market.post(connection.intent("post"), terms, Wei(110 * TOK)).hex()
        for command in (("job", "show", job_id), ("whistle", "scan", job_id)):
            refused = assay(*command)
            assert refused.status == Exit.USAGE, refused.err
            assert refused.error["code"] in ("bad-manifest", "bad-cid")
        why = assay("solver", "why", job_id)
        assert why.status == Exit.OK and why.data["reason"]


def test_files_that_nobody_serves_are_missing(assay: Assay, sound_terms: Terms, home: Path) -> None:
    app = app_for(home)
    connection = app.connect()
    market = connection.writer
    terms = replace(sound_terms, manifest=sha256(b"withheld").digest(), nonce=secrets.randbits(60))
    market.deposit(connection.intent("deposit"), Wei(110 * TOK))
    job_id = market.post(connection.intent("post"), terms, Wei(110 * TOK)).hex()
    app.close()
    refused = assay("job", "show", job_id)
    assert refused.status == Exit.NOT_FOUND and refused.error["code"] == "block-not-found"


@pytest.mark.long
def test_an_owner_gives_back_what_its_operator_holds(assay: Assay, sound_terms: Terms, home: Path) -> None:
    """Also of a job that is closed, where nobody could expire it and a stolen key never would."""
    for name in ("boss", "hand"):
        assert assay("account", "new", name).status == Exit.OK
        assert assay("token", "faucet", name, "2000tok").status == Exit.OK
    consent = assay("operator", "consent", "boss", account="hand").data
    signed = ("--expiry", str(consent["expiry"]), "--consent", consent["signature"])
    assert assay("operator", "bind", "hand", *signed, account="boss").status == Exit.OK
    stake = ("stake", "deposit", "1000tok", "--role", "solver", "--for", "hand")
    assert assay(*stake, account="boss").status == Exit.OK
    client, hand = app_for(home), app_for(home, "hand")
    market, penalty = client.connect().writer, sound_terms.miss_penalty
    market.deposit("release/deposit", Wei(110 * TOK))
    terms = replace(sound_terms, nonce=secrets.randbits(60))
    posted = market.post("release/post", terms, Wei(110 * TOK))
    hand.connect().writer.take_shard("release/take", posted, 0)
    market.halt("release/halt", posted)
    assert assay("devnet", "warp", f"{terms.task_time + 1}s").status == Exit.OK
    market.close("release/close", posted)
    release = ("solver", "release", posted.hex(), "--for", "hand")
    assert assay(*release, account="client").status == Exit.REVERTED
    assert assay(*release, "--later", account="boss").status != Exit.OK
    locked = int(assay("stake", "ls", "hand").data["solver"]["locked"])
    done = assay(*release, account="boss")
    assert done.status == Exit.OK and done.data["released"] == [0], done.err
    assert int(assay("stake", "ls", "hand").data["solver"]["locked"]) == locked - penalty
    client.close()
    hand.close()


@pytest.mark.long
def test_a_shard_is_let_go_with_its_cost_said_before(assay: Assay, sound_terms: Terms, home: Path) -> None:
    app = app_for(home)
    connection = app.connect()
    market, penalty = connection.writer, sound_terms.miss_penalty
    terms = replace(sound_terms, nonce=secrets.randbits(60))
    market.deposit(connection.intent("deposit"), Wei(1_110 * TOK))
    market.stake_up(connection.intent("stake"), Role.SOLVER, Wei(1_000 * TOK))
    posted = market.post(connection.intent("post"), terms, Wei(110 * TOK))
    job_id = posted.hex()
    market.take_shard(connection.intent("take"), posted, 1)
    refused = assay("solver", "release", job_id, "--shard", "0")
    assert refused.error["code"] == "not-held" and "[1]" in refused.error["hint"]
    dry = assay("--dry-run", "solver", "release", job_id)
    assert dry.data["amount"] == str(penalty)
    refused = assay("solver", "release", job_id, yes=False)
    assert refused.status == Exit.CONFIRM and f"costs {show_amount(penalty)} at most" in refused.err
    assert assay("solver", "release", job_id, "--later").data["released"] == []
    before = int(assay("stake", "ls").data["solver"]["active"])
    done = assay("solver", "release", job_id)
    assert done.data["released"] == [1] and done.data["shards"]["1"]["penalty"] == str(penalty)
    assert int(assay("stake", "ls").data["solver"]["active"]) == before - penalty
    assert (home / "nodes" / "client" / RELEASED_FILE).is_file()
    again = assay("solver", "release", job_id[:12], "--again")
    assert again.data == {"job": "0x" + job_id, "released": [], "again": True}
    assert assay("solver", "release", job_id).error["code"] == "not-held"
    app.close()
