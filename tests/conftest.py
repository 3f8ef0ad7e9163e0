"""Fixtures of all tests: one arithmetic thread, deterministic property tests, a local chain on request."""

from __future__ import annotations

import gc
import os
import sys

# Before anything imports torch or numpy: a test process takes one core, and results do not depend on it.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("MKL_NUM_THREADS", "1")

from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

from assay.chain.contracts.artifacts import Artifacts, load_artifacts
from assay.chain.eth import keystore
from assay.chain.eth.rpc import HttpRpc
from assay.numerics import slow_paths
from tests.fakes.anvil import Anvil

# As in every node: eth_account's libraries raise the limit so far that a deep nest in C ends the process.
sys.setrecursionlimit(100_000)

settings.register_profile(
    "quick",
    deadline=None,
    max_examples=50,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile("long", parent=settings.get_profile("quick"), max_examples=2_000, derandomize=False)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "quick"))

# While tests are collected hundreds of modules are imported, and all that they make stays.
gc.disable()


def pytest_collection_finish() -> None:
    """Look for unused cycles among what the tests make, not again and again among all that was imported."""
    gc.freeze()
    gc.set_threshold(50_000, 10, 10)  # of a graph that is traced nothing is unused
    gc.enable()


@pytest.fixture(scope="session", autouse=True)
def _keys_guard_nothing() -> Iterator[None]:
    """A strong key costs half a second to make and each time it is opened; one test makes one."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(keystore, "STRONG_SCRYPT_N", keystore.DEVNET_SCRYPT_N)
        yield


@pytest.fixture(autouse=True)
def _nothing_is_slower(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each test begins as a process does, for which nothing was noted yet."""
    monkeypatch.setattr(slow_paths, "_kept", {})


@pytest.fixture(autouse=True)
def _pytorch_does_not_depend_on_other_tests() -> Iterator[None]:
    """Seed PyTorch's generator and restore its threads, so that a test does the same in any order."""
    torch = sys.modules.get("torch")
    if torch is None:
        yield
    else:
        torch.manual_seed(0)
        threads = torch.get_num_threads()
        yield
        torch.set_num_threads(threads)


@pytest.fixture
def anvil() -> Iterator[Anvil]:
    """A fresh local chain that mines a block for each transaction."""
    with Anvil() as node:
        yield node


@pytest.fixture
def rpc(anvil: Anvil) -> HttpRpc:
    """A connection to the fresh local chain."""
    return HttpRpc(anvil.url, timeout_s=10.0)


@pytest.fixture(scope="session")
def artifacts() -> Artifacts:
    """The project's compiled contracts."""
    return load_artifacts()
