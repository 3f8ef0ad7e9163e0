"""Where a node listens and what it announces."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest
from starlette.testclient import TestClient

from assay.app.network_addresses import Reach, Reaches, is_loopback, private_peers, reach_of
from assay.app.settings import Flags, Settings
from assay.app.web import WebServer, node_app
from assay.blocks.blockstore import BlockStore
from assay.blocks.public_net import LOOPBACK, networks
from assay.chain.contracts.deploy import Deployment
from assay.protocol.errors import Ask
from assay.protocol.types import Address

ME = Address("0x" + "11" * 20)


pytestmark = pytest.mark.usefixtures("user")


def reach(host: str | None = None, announce_url: str | None = None) -> Reach:
    return reach_of(Settings(Flags(host=host, announce_url=announce_url)), 4001)


def test_loopback_and_its_own_address_are_the_default() -> None:
    assert reach() == Reach("127.0.0.1", 4001, "auto")
    assert reach().announced("http://127.0.0.1:4001") == "http://127.0.0.1:4001"


def test_what_is_announced_is_what_the_operator_says() -> None:
    behind_proxy = reach("0.0.0.0", "https://node.example.org/assay/")
    assert behind_proxy.announced("http://0.0.0.0:4001") == "https://node.example.org/assay"
    assert reach("::", "none").announced("http://[::]:4001") == ""
    assert reach("::1", "http://[2001:db8::7]:4001").announced("x") == "http://[2001:db8::7]:4001"


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "[::]"])
def test_a_wildcard_is_nobodys_address(host: str) -> None:
    with pytest.raises(Ask, match="every address"):
        reach(host)


@pytest.mark.parametrize(
    "url",
    [
        "node.example.org",
        "ftp://node.example.org",
        "http://",
        "http://0.0.0.0:4001",
        "http://[::]:1",
        "http://user:pass@node.example.org",
        "http://node.example.org?x=1",
        "http://node.example.org:0",
        "http://node.example.org:99999",
        "http://[::1",
        "https://node.example.org/" + "a" * 300,
    ],
)
def test_what_nobody_could_fetch_from_is_refused(url: str) -> None:
    with pytest.raises(Ask, match="no base URL"):
        reach(announce_url=url)


def deployed(folder: Path, chain: str) -> Settings:
    """Settings of a market on this chain."""
    path = folder / "deployment.json"
    Deployment(f"{chain}:0x{'ab' * 32}", 0, "", {"Jobs": "0x" + "11" * 20}, {"Jobs": "0x"}).save(path)
    return Settings(Flags(deployment=str(path), private_peers="10.0.0.0/8"))


def test_this_machine_is_asked_for_blocks_on_a_local_chain_alone(tmp_path: Path) -> None:
    own = networks("10.0.0.0/8")
    assert private_peers(deployed(tmp_path, "31337")) == [*own, *LOOPBACK]
    assert private_peers(deployed(tmp_path, "1")) == own
    assert private_peers(Settings(Flags(deployment=str(tmp_path / "absent")))) == []
    with pytest.raises(Ask, match="private_peers"):
        private_peers(Settings(Flags(private_peers="10.0.0.1/8")))


def test_an_ipv6_address_serves_and_is_written_in_brackets(tmp_path: Path) -> None:
    store = BlockStore(tmp_path / "store")
    cid = store.put(b"a block")
    server = WebServer(node_app(store, dict, "client"), "::1", 0)
    url = server.start()
    try:
        assert url.startswith("http://[::1]:")
        assert httpx.get(f"{url}/ipfs/{cid}?format=raw", trust_env=False).content == b"a block"
    finally:
        server.stop()


def test_a_node_that_is_not_ready_says_why(tmp_path: Path) -> None:
    status = {
        "action": "looking",
        "error": "tick: http://one is behind by 8 blocks: block 70 was seen",
    }
    server = WebServer(node_app(BlockStore(tmp_path), lambda: status, "whistleblower"), "127.0.0.1", 0)
    url = server.start()
    try:
        answer = httpx.get(url + "/readyz")
        assert answer.status_code == 503 and "behind by 8 blocks" in answer.json()["reason"]
        status["error"] = ""
        assert httpx.get(url + "/readyz").json() == {"ready": True}
    finally:
        server.stop()


def test_w16_a_node_says_whether_it_can_fetch_from_where_another_announces() -> None:
    asked, now, url = list[str](), [0.0], {ME: "http://10.0.0.1:4001"}

    def answers(where: str, within_s: float) -> bool:
        asked.append(where)
        return where.endswith("4001")

    reaches = Reaches(url.get, answers, lambda: now[0])
    client = TestClient(
        node_app(BlockStore(Path("store")), lambda: {"role": "solver"}, "solver", reaches=reaches)
    )
    for _ in range(3):
        assert client.get(f"/reach/{ME}").json() == {"reached": True}
    assert asked == ["http://10.0.0.1:4001"], "once a minute, whoever asks"
    url[ME] = "http://10.0.0.1:9"
    assert client.get(f"/reach/{ME}").json() == {"reached": False}
    assert client.get("/reach/0xnobody").status_code == 404
    now[0] += 61
    assert client.get(f"/reach/{ME}").json() == {"reached": False} and len(asked) == 3


def test_attack_T70_urls_that_do_not_answer_hold_one_thread_of_the_server() -> None:
    asked, told = list[str](), list[bool | None]()

    def silent(where: str, within_s: float) -> bool:
        asked.append(where)
        if len(asked) == 1:  # somebody else asks meanwhile
            told.append(reaches(Address("0xother")))
        return False

    reaches = Reaches({ME: "http://10.0.0.1:1", Address("0xother"): "http://10.0.0.2:1"}.get, silent)
    assert reaches(ME) is False and told == [None] and asked == ["http://10.0.0.1:1"]


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1:4001", "http://[::1]:1", "http://localhost:8", "http://127.9.9.9"]
)
def test_each_machines_own_address_is_nobody_elses(url: str) -> None:
    assert is_loopback(url) and not is_loopback("http://10.0.0.1:4001") and not is_loopback("https://x.org")
