"""Which devices a devnet's nodes get: by role, by name, several, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from assay.app.devnet_record import Devnet, NodeRecord, recorded, write_devnet
from assay.app.invocation import App
from assay.app.output import Exit, Output
from assay.app.settings import Flags
from assay.devnet.devices import parse_devices, with_devices
from assay.devnet.market import default_nodes, node_command
from assay.protocol.errors import Ask
from tests.unit.cli.test_command_line import assay


def devices(text: str | None) -> dict[str, str]:
    nodes = with_devices(default_nodes(2, 1, 1), parse_devices(text))
    return {node.name: node.devices for node in nodes if node.devices}


def test_a_role_has_its_device_and_a_node_its_own() -> None:
    assert devices("solver:cuda,verifier:cpu") == {
        "solver-1": "cuda",
        "solver-2": "cuda",
        "verifier-1": "cpu",
    }
    assert devices("solver:cpu, solver-2:cuda:1") == {"solver-1": "cpu", "solver-2": "cuda:1"}
    assert devices("whistleblower:auto") == {"whistle-1": "auto"}
    assert devices(None) == devices("") == {}


def test_several_devices_of_one_name_are_several_workers() -> None:
    assert devices("solver-1:cuda:0,solver-1:cuda:1,solver-1:cpu") == {"solver-1": "cuda:0,cuda:1,cpu"}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("solver", "'solver' is not a role and a device"),
        ("cuda:0", "'cuda:0': there is no device '0'"),
        ("cuda:cuda", "'cuda' is neither a role nor a node of this devnet"),
        (":cpu", "':cpu' is not a role and a device"),
        ("solver:", "'solver:' is not a role and a device"),
        ("solver:cpu,", "'' is not a role and a device"),
        (
            "solver-9:cpu",
            "'solver-9' is neither a role nor a node of this devnet (solver-1, solver-2",
        ),
        ("solver:gpu", "there is no device 'gpu'"),
        ("solver:auto,solver:cpu", "there is no device 'auto,cpu'"),
    ],
)
def test_what_is_no_role_with_a_device_is_refused(text: str, said: str) -> None:
    with pytest.raises(Ask) as refused:
        devices(text)
    assert refused.value.code == "bad-devices" and said in refused.value.message and refused.value.hint


def test_a_node_is_started_with_its_devices_or_the_commands(tmp_path: Path) -> None:
    app = App(Flags(home=str(tmp_path), device="cpu"), Output(False, True), True, False, None)
    node = NodeRecord("solver-1", "solver", 0, "", devices="cuda:0,cuda:1")
    command = node_command(app, node)
    assert command[command.index("--device") + 1] == "cuda:0,cuda:1"
    command = node_command(app, NodeRecord("solver-2", "solver", 0, ""))
    assert command[command.index("--device") + 1] == "cpu"


def test_a_devnet_that_goes_on_has_the_devices_of_before(tmp_path: Path) -> None:
    write_devnet(
        tmp_path, Devnet("http://127.0.0.1:1", 0, (NodeRecord("a", "solver", 0, "", devices="cuda"),))
    )
    found = recorded(tmp_path)
    assert found is not None and found.nodes[0].devices == "cuda"


def test_the_command_refuses_a_bad_value_before_it_makes_anything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    home = tmp_path / "home"
    for text in ("solver=cuda", "solver-9:cpu"):
        status, _, err = assay("--home", str(home), "devnet", "up", "--devices", text)
        assert status == Exit.CONFIG and "bad-devices" in err
        assert not (home / "devnet.json").exists()
