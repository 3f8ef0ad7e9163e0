"""A node's control process has neither PyTorch nor NumPy: workers alone compute."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CHECK = """
import sys
found = [name for name in ("torch", "numpy", "triton") if name in sys.modules]
assert not found, f"{found} were loaded"
print("none")
"""
SHARED = """
import assay.cli.main, assay.cli.node.run, assay.app.workers, assay.app.wiring
from assay.app.workers import workers_of
from assay.compute.pool import Pool
"""
IMPORTS = {
    "solver": (
        "import assay.solver.service, assay.cli.commands.solver, assay.cli.node.fitness,"
        " assay.cli.node.disk_budget"
    ),
    "crew member": (
        "import assay.solver.crew_node, assay.chain.contracts.crew_market, assay.cli.commands.crew_solve,"
        " assay.app.crews, assay.app.invitations"
    ),
    "verifier": "import assay.verifier.service, assay.cli.commands.verifier",
    "whistleblower": "import assay.whistleblower.service, assay.cli.commands.whistle",
}
DAY = """
from pathlib import Path
from types import SimpleNamespace
from assay.app.resource_limits import RESOURCE_LIMITS
from assay.app.settings import Flags, Settings
from assay.app.workers import workers_of
from assay.protocol.types import Address, ClockView, Seconds, StakeView, Wei
from contextlib import nullcontext


class Market:
    '''A market without a job, in which this account has nothing.'''

    me = Address("0x" + "11" * 20)

    def __getattr__(self, name):
        empty = {"snapshot": nullcontext(), "stake": StakeView(*[Wei(0)] * len(StakeView.__match_args__))}
        empty |= {"free": Wei(0), "subscription": bytes(32), "clock": ClockView(Seconds(0), Seconds(0), 0, 1)}
        return lambda *_: empty.get(name, [])


clock = SimpleNamespace(now=lambda: Seconds(1), block=lambda: 1, wait=lambda _: False)
folder = Path(sys.argv[1])
options = {"pool": workers_of(Settings(Flags(home=str(folder), device="cpu")), folder / "store")}
parts = (Market(), SimpleNamespace(), clock, folder / "node")
"""
SERVICES = {
    "solver": """
from assay.solver.observation import Limits
from assay.solver.service import SolverService
node = SolverService(*parts, Limits(Wei(0), 1, Seconds(5)), RESOURCE_LIMITS, **options)
""",
    "verifier": """
from assay.verifier.policy import Limits
from assay.verifier.service import VerifierService
limits = Limits(Seconds(5), Wei(0), Seconds(0), None, None)
node = VerifierService(*parts, bytes(32), limits, RESOURCE_LIMITS, weight_epoch=lambda: 1, **options)
""",
    "whistleblower": """
from assay.whistleblower.policy import Limits, Mode
from assay.whistleblower.service import WhistleblowerService
node = WhistleblowerService(*parts, bytes(32), Limits(Mode.PLAY, Wei(0)), RESOURCE_LIMITS, **options)
""",
}
LOOK = """
assert list(node.decide()) == []
node.tick()
assert not node.status.error.startswith("bug"), node.status.error
node.pool.close()
"""


def without_torch(program: str, *arguments: str) -> None:
    """Runs a program in a Python process that must not have imported PyTorch at its end."""
    command = [sys.executable, "-c", program + CHECK, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0 and done.stdout.splitlines()[-1] == "none", done.stderr


@pytest.mark.parametrize("role", IMPORTS)
def test_what_a_role_imports(role: str) -> None:
    without_torch(SHARED + IMPORTS[role])


@pytest.mark.parametrize("role", SERVICES)
def test_a_role_that_looks_and_decides(role: str, tmp_path: Path) -> None:
    without_torch("import sys\n" + DAY + SERVICES[role] + LOOK, str(tmp_path))


def test_this_would_be_seen() -> None:
    with pytest.raises(AssertionError, match="torch"):
        without_torch("import assay.node.work")
