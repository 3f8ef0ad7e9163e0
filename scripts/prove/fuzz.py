"""Coverage-guided fuzzing of every decoder of bytes that strangers, disks or the chain give (atheris).

    python scripts/prove/fuzz.py [--runs 10000000] [--seconds S] [--only NAME ...]     (make fuzz)

Each target may raise what its contract names and nothing else, has to end within a second an input, and,
where one value has one encoding, has to give back the bytes it took. The runs are spread over the targets in
turn, one process at a time, and each target's corpus is kept in .assay/fuzz and begun from honest values.
Exits 1 at the first input that breaks a target; libFuzzer leaves it beside the corpus.

Contract: atheris runs in an environment of its own below .assay/tools, installed when it is not there, and
finds the project's dependencies in the project's. Not guaranteed: anything about what needs PyTorch or a
chain; those have tests of their own (tests/adversaries).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import subprocess
import sys
import sysconfig
import time
import venv
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
VERSION = "3.0.0"
INPUT_BYTES, INPUT_S, MEMORY_MB = 8192, 1, 2048


@dataclass(frozen=True)
class Target:
    """A fuzz target: a function of bytes, allowed exceptions, and valid seed inputs."""

    one: Callable[[bytes], object]
    refuses: tuple[type[BaseException], ...]
    seeds: tuple[bytes, ...]


def storage_targets() -> dict[str, Target]:
    """Targets for blocks, files, streams and requests of peers."""
    from assay.blocks import car, dagpb, unixfs, varint
    from assay.protocol.cid import DAG_PB, Cid
    from assay.protocol.errors import AssayError, BadCid

    leaf = Cid.of(b"leaf")
    node = dagpb.encode_node(dagpb.Node((dagpb.Link(leaf, "", 4),) * 3, dagpb.encode_file((4, 4, 4))))
    root = Cid.of(node, DAG_PB)

    def cid_text(data: bytes) -> None:
        text = data.decode("utf-8", "replace")
        assert str(Cid.parse(text)) == text

    def cid_bytes(data: bytes) -> None:
        assert Cid.from_bytes(data).to_bytes() == data

    def file(data: bytes) -> None:
        """The input is the root of a file; every other block is one of two."""
        blocks = {root: node, leaf: b"leaf"}
        top = Cid.of(data, DAG_PB)
        limits = unixfs.Limits(1 << 16)
        given = unixfs.read_file(top, lambda cid: data if cid == top else blocks.get(cid, b"leaf"), limits)
        assert len(given) <= limits.max_bytes

    def stream(data: bytes) -> None:
        parser = car.CarParser()
        for at in range(0, len(data), 97):
            for cid, block in parser.feed(data[at : at + 97]):
                assert cid.matches(block)
        parser.finish()

    whole = car.encode_header(root) + car.encode_block(root, node) + car.encode_block(leaf, b"leaf")
    return {
        "cid-text": Target(cid_text, (BadCid,), (str(leaf).encode(), str(root).encode())),
        "cid-bytes": Target(cid_bytes, (BadCid,), (leaf.to_bytes(), root.to_bytes())),
        "varint": Target(varint.decode, (ValueError, AssayError), (b"\x80\x01", b"\x00")),
        "dag-node": Target(lambda data: dagpb.decode_node(data, 1024), (dagpb.BadDag,), (node,)),
        "dag-file": Target(dagpb.decode_file, (dagpb.BadDag,), (dagpb.encode_file((4, 4, 4)),)),
        "file": Target(file, (dagpb.BadDag,), (node,)),
        "car": Target(stream, (car.BadCar, BadCid), (whole,)),
    }


def gateway_target() -> dict[str, Target]:
    """Target for requests to a node's web server: path, query and headers are the input's lines."""
    from assay.app.web import node_app
    from assay.blocks.blockstore import BlockStore

    store = BlockStore(mkdtemp())
    secret = store.root / "secret"
    secret.write_bytes(b"not for strangers")
    root = store.add_file(bytes(600_000)).encode()
    app, loop = node_app(store, dict, "solver"), asyncio.new_event_loop()

    def one(data: bytes) -> None:
        path, query, *rest = [*data.split(b"\n"), b"", b""]
        split = (line.partition(b": ") for line in rest)
        headers = [(name.lower(), value) for name, _, value in split if name]
        body = bytearray()

        asked = iter([{"type": "http.request", "body": b"", "more_body": False}])

        async def receive() -> dict[str, Any]:
            for message in asked:
                return message
            await asyncio.Event().wait()  # the client stays
            raise AssertionError

        async def send(message: Any) -> None:
            assert message.get("status", 200) < 500
            body.extend(message.get("body", b""))

        scope = {
            "type": "http",
            "http_version": "1.1",
            "method": "GET",
            "path": "/" + path.decode("utf-8", "replace").lstrip("/"),
            "raw_path": path,
            "query_string": query.lstrip(b"?"),
            "headers": headers,
            "client": ("192.0.2.1"),
            "server": ("127.0.0.1", 80),
            "scheme": "http",
        }
        loop.run_until_complete(app(scope, receive, send))
        assert b"not for strangers" not in body

    seeds = (b"/ipfs/" + root + b"\n?format=car\nx: y", b"/ipfs/" + root + b"\n?format=raw", b"/status\n")
    return {"gateway": Target(one, (), seeds)}


def market_targets() -> dict[str, Target]:
    """Targets for data of the chain, its node, clients and other nodes' manifests."""
    from assay.chain.contracts.artifacts import load_artifacts
    from assay.chain.contracts.bindings import INTERFACES
    from assay.chain.eth import abi, answer_schemas
    from assay.node.manifests import BadManifest
    from assay.node.slot_index import ENTRY_BYTES, SlotFile, decode_index, encode_index
    from assay.numerics.encoding import EncodingError
    from assay.numerics.packed import packed, unpacked
    from assay.numerics.packed_size import HEADER_BYTES
    from assay.protocol import bounded_json
    from assay.protocol.canonical_json import parse_canonical
    from assay.protocol.cid import Cid
    from assay.protocol.encoding import decode
    from assay.protocol.types import Claim, ClaimStatus, Terms, Vote

    artifacts = load_artifacts()
    entries = [entry for name in INTERFACES.values() for entry in artifacts[name].abi]
    functions = [entry for entry in entries if entry["type"] == "function" and entry["outputs"]]
    events = [entry for entry in entries if entry["type"] == "event"]
    kinds = (Terms, Claim, ClaimStatus, Vote)
    methods = ("eth_getLogs", "eth_getBlockByNumber", "eth_getTransactionReceipt", "eth_feeHistory")
    block = json.dumps({"number": "0x1", "hash": "0x" + "00" * 32, "timestamp": "0x2"}).encode()

    def result(data: bytes) -> None:
        abi.decode_result(functions[data[0] % len(functions)], data[1:])

    def log(data: bytes) -> None:
        event = events[data[0] % len(events)]
        count = 1 + sum(param["indexed"] for param in event["inputs"])
        words = [data[1 + 32 * i : 33 + 32 * i].ljust(32, b"\0") for i in range(count)]
        abi.decode_log(event, words, data[1 + 32 * count :])

    def struct(data: bytes) -> None:
        decode(kinds[data[0] % len(kinds)], data[1:], lambda raw: "0x" + raw.hex())

    def answer(data: bytes) -> None:
        answer_schemas.check(methods[data[0] % len(methods)], ["0x1", True], bounded_json.loads(data[1:]))

    def index(data: bytes) -> None:
        assert encode_index(decode_index(data, len(data) // ENTRY_BYTES)) == data

    def numbers(data: bytes) -> None:
        bits, body = data[0] % 18, data[1:]
        count = max((len(body) - HEADER_BYTES) * 8 // max(bits, 1), 1)
        assert packed(unpacked(body, bits, (count,)), bits) == body

    slots = encode_index([SlotFile(bytes(32), str(Cid.of(b"slot")))] * 2)
    canonical = b'{"schema":"assay/job/1","x":[1,2]}'
    return {
        "json": Target(bounded_json.loads, (ValueError,), (block, b'[[["\\u00e4"]]]')),
        "canonical": Target(
            lambda data: parse_canonical(data, 1 << 20), (ValueError, BadManifest), (canonical,)
        ),
        "abi-result": Target(result, (abi.MalformedData, IndexError), (bytes(65), bytes(513))),
        "abi-log": Target(log, (abi.MalformedData, IndexError), (bytes(97), bytes(1025))),
        "struct": Target(struct, (ValueError, IndexError), tuple(bytes([i]) + bytes(1024) for i in range(4))),
        "rpc-answer": Target(answer, (ValueError, IndexError), (b"\x01" + block, b"\x00[]")),
        "packed": Target(numbers, (EncodingError, IndexError), (b"\x04\xf9\xff\xff\xff\xe0\x78",)),
        "state-index": Target(index, (ValueError,), (slots,)),
    }


def local_targets() -> dict[str, Target]:
    """Targets for programs, records on disk, job files and typed text."""
    from assay.app import ids, units
    from assay.disk import record
    from assay.job.read import BadJobFile, parse_job_file
    from assay.program import isa
    from assay.protocol.errors import AssayError

    vectors = sorted((ROOT / "tests/vectors").glob("nodes.bin"))
    job = next(iter(sorted(ROOT.glob("examples/**/*.toml"))), None)

    def node(data: bytes) -> None:
        assert isa.decode_node(data).encode() == data

    def program(data: bytes) -> None:
        assert isa.encode(isa.decode(isa.MAGIC + data)) == isa.MAGIC + data

    def kept(data: bytes) -> None:
        """The input with a valid checksum, and as it is."""
        text = sha256(b"assay/x/1\n" + data).hexdigest().encode()
        head = record.encode("assay/x/1", 0).partition(sha256(b"assay/x/1\n0").hexdigest().encode())
        record.decode("assay/x/1", head[0] + text + head[2].replace(b"0", data, 1))

    def typed(data: bytes) -> None:
        text = data.decode("utf-8", "replace")
        for parse in (units.parse_amount, units.parse_duration, units.parse_bytes, ids.digits_of):
            try:
                parse(text)
            except AssayError:
                continue

    seed = vectors[0].read_bytes()[:4096] if vectors else b""
    return {
        "program-node": Target(
            node, (isa.MalformedProgram,), tuple(seed[i : i + 64] for i in range(0, 1024, 64))
        ),
        "program": Target(program, (isa.MalformedProgram,), (bytes(20), seed)),
        "record": Target(kept, (ValueError,), (b'{"a": [1, 2.5, "x"]}',)),
        "job-file": Target(
            lambda data: parse_job_file(data.decode("utf-8", "replace"), "it"),
            (BadJobFile,),
            (job.read_bytes() if job else b"[job]\n",),
        ),
        "typed": Target(typed, (), (b"12.5tok", b"3h", b"4MB", b"9" * 5000 + b"s", b"0x" + b"ab" * 32)),
    }


ROOMS: dict[Callable[[], dict[str, Target]], tuple[str, ...]] = {
    storage_targets: ("cid-text", "cid-bytes", "varint", "dag-node", "dag-file", "file", "car"),
    gateway_target: ("gateway",),
    market_targets: (
        "json",
        "canonical",
        "abi-result",
        "abi-log",
        "struct",
        "rpc-answer",
        "state-index",
        "packed",
    ),
    local_targets: ("program-node", "program", "record", "job-file", "typed"),
}
NAMES = tuple(name for names in ROOMS.values() for name in names)
SLOW = {"gateway": 0.02, "abi-result": 0.5, "abi-log": 0.3, "struct": 0.5, "job-file": 0.1}
"""Targets with less than an even share of the runs."""


def fuzz(name: str, arguments: list[str]) -> None:
    """Runs in the child: fuzzes one target until libFuzzer has done its runs."""
    import atheris

    with atheris.instrument_imports(include=["assay"]):
        target = next(make for make, names in ROOMS.items() if name in names)()[name]
    home = ROOT / ".assay/fuzz" / name
    home.mkdir(parents=True, exist_ok=True)
    for seed in target.seeds:
        (home / sha256(seed).hexdigest()[:16]).write_bytes(seed)

    def one(data: bytes) -> None:
        try:
            target.one(data)
        except target.refuses:
            return

    for seed in target.seeds:
        one(seed)  # what is loaded at first use is no input's fault
    limits = [f"-max_len={INPUT_BYTES}", f"-timeout={INPUT_S}", f"-rss_limit_mb={MEMORY_MB}"]
    given = [argument for argument in arguments if not argument.startswith("-")] or [str(home)]
    options = [argument for argument in arguments if argument.startswith("-")]
    atheris.Setup([name, *limits, f"-artifact_prefix={home.parent}/{name}-", *options, *given], one)
    atheris.Fuzz()


def interpreter() -> Path:
    """A Python with atheris, installed on first use."""
    home = ROOT / ".assay/tools" / f"atheris-{VERSION}"
    if not (home / "bin/python").exists():
        venv.create(home, with_pip=True)
        subprocess.run([str(home / "bin/pip"), "install", "--quiet", f"atheris=={VERSION}"], check=True)
    return home / "bin/python"


@contextmanager
def child(name: str, *limits: str) -> Iterator[subprocess.Popen[str]]:
    """A process that fuzzes one target; its output is libFuzzer's."""
    paths = os.pathsep.join([str(ROOT), sysconfig.get_paths()["purelib"]])
    command = ["nice", "-n", "19", str(interpreter()), __file__, "--target", name, *limits]
    environment = os.environ | {"PYTHONPATH": paths, "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True, cwd=ROOT) as process:
        yield process


def runs_of(name: str, runs: int, seconds: int) -> tuple[int, bool]:
    """Fuzzes one target; returns the number of inputs, and whether it passed.

    A slow input is tried again alone: a busy machine delays anything.
    """
    total, end = 0, time.monotonic() + seconds
    while total < runs and (left := int(end - time.monotonic())) > 0:
        done, code, said = run_child(name, f"-runs={runs - total}", f"-max_total_time={left}")
        total += done
        if code == 0:
            break
        slow = re.search(r"written to (\S+-timeout-\S+)", said)
        if slow is None or any(run_child(name, "-runs=1", slow[1])[1] for _ in range(3)):
            print(said[-4000:], flush=True)
            return total, False
        Path(slow[1]).unlink()
    return total, True


def run_child(name: str, *limits: str) -> tuple[int, int, str]:
    """Runs libFuzzer on one target: inputs tried, exit status, output."""
    with child(name, *limits) as process:
        assert process.stderr is not None
        said = process.stderr.read()
    done = [int(number) for number in re.findall(r"^#(\d+)", said, re.MULTILINE)]
    done += [int(number) for number in re.findall(r"Done (\d+) (?:runs|in)", said)]
    return max(done, default=0), process.returncode, said


def main() -> None:
    if len(sys.argv) > 2 and sys.argv[1] == "--target":
        return fuzz(sys.argv[2], sys.argv[3:])
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--runs", type=int, default=10_000_000)
    parser.add_argument("--seconds", type=int, default=3600)
    parser.add_argument("--only", nargs="+", choices=NAMES, default=list(NAMES))
    options = parser.parse_args()
    shares = {name: SLOW.get(name, 1.0) for name in options.only}
    whole, total, held = sum(shares.values()), 0, True
    for name, share in shares.items():
        start, part = time.monotonic(), share / whole
        done, sound = runs_of(name, int(options.runs * part) + 1, max(5, int(options.seconds * part)))
        total, held = total + done, held and sound
        took = time.monotonic() - start
        print(f"{name}: {done:,} inputs in {took:.0f} s{'' if sound else ', BROKEN'}", flush=True)
    print(f"{total:,} inputs in all, {'no' if held else 'A'} target broken")
    sys.exit(not held)


if __name__ == "__main__":
    main()
