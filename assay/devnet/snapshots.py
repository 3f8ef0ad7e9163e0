"""A whole devnet kept under a name, and gone back to.

Contract: everything is stopped while it is copied, so that chain, journals and stores fit one another; it
goes on afterwards on the same ports. Copies of keys have the mode of the originals.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from assay.app.devnet_record import DEVNET_FILE, Devnet, read_devnet, read_stopped, recorded
from assay.app.invocation import App
from assay.app.settings import DEPLOYMENT_FILE
from assay.devnet.folder import wipe_data
from assay.devnet.market import STATE_FILE, resume, take_down
from assay.protocol.errors import Ask, Stop

FOLDER = "snapshots"
PARTS = ("nodes", "keystore", STATE_FILE, DEPLOYMENT_FILE, DEVNET_FILE, "password")


def snapshot_names(home: Path) -> list[str]:
    """Names of a home's snapshots."""
    folder = home / FOLDER
    return sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []


def take_snapshot(app: App, name: str) -> Path:
    """Keep the devnet as it is; its folder. Raises Ask where none is, or the name is taken, Stop for a bad
    name, and what going on raises."""
    home = app.settings.home.resolve()
    target = _place(home, name)
    if recorded(home) is None:
        raise Ask(f"there is no devnet in {home}", hint="`assay devnet up` starts one", code="no-devnet")
    if target.exists():
        raise Ask(
            f"there is a snapshot {name!r} already",
            hint=f"choose another name, or remove {target}",
            code="taken",
        )
    running = read_devnet(home) is not None
    app.output.say("pausing the devnet")
    take_down(home)
    fresh = target.with_name(f".{name}.new")
    shutil.rmtree(fresh, ignore_errors=True)
    _copy(home, fresh)
    fresh.rename(target)
    if running:
        _go_on(app)
    return target


def restore_snapshot(app: App, name: str) -> Devnet:
    """Go back to a snapshot, and on from there. Raises Ask where there is none of this name."""
    home = app.settings.home.resolve()
    source = _place(home, name)
    if not source.is_dir():
        known = ", ".join(snapshot_names(home)) or "none"
        raise Ask(f"there is no snapshot {name!r}", hint=f"there are: {known}", code="not-found")
    take_down(home)
    wipe_data(home)
    _copy(source, home)
    return _go_on(app)


def _place(home: Path, name: str) -> Path:
    if not re.fullmatch(r"[A-Za-z0-9][\w.-]{0,63}", name):
        raise Stop(
            f"{name!r} is no name of a snapshot",
            hint="letters, digits, and -._ between them",
            code="bad-name",
        )
    return home / FOLDER / name


def _copy(source: Path, target: Path) -> None:
    target.mkdir(parents=True, exist_ok=True)
    for part in PARTS:
        place = source / part
        if place.is_dir():
            shutil.copytree(place, target / part, dirs_exist_ok=True, symlinks=True)
        elif place.exists():
            shutil.copy2(place, target / part)


def _go_on(app: App) -> Devnet:
    stopped = read_stopped(app.settings.home)
    if stopped is None:
        raise Stop(
            f"the devnet of {app.settings.home} cannot go on", hint="its record is not one of this version"
        )
    return resume(app, stopped)
