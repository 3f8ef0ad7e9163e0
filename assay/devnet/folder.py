"""Manages the folder of a devnet, and tells its files from the user's.

Contract: a devnet uses the user's own home only when told to, because keys for other chains are there. Files
for another chain are neither overwritten nor removed (docs/decisions/0033-faces.md).
"""

from __future__ import annotations

import shutil
from pathlib import Path

from assay.app.devnet_record import DEVNET_FILE, STATE_FILE, read_devnet, remove_devnet
from assay.app.ids import NAMES_FILE
from assay.app.invocation import App
from assay.app.settings import ACCOUNT_FILE, HOME_FOLDER, USER_HOME
from assay.protocol.errors import Ask

PREVIOUS_STATE = "chain.state.previous"
DAMAGED_STATE = "chain.state.damaged"
STATES = (STATE_FILE, PREVIOUS_STATE, DAMAGED_STATE)
DEPLOYER = "deployer"
"""Folder below `nodes` that only a devnet has: of the account that deploys its contracts."""


def own_folder(app: App) -> None:
    """Creates `.assay` here as home of this folder and those below, if no home is named or found, and says
    so."""
    if app.settings.find("home") is not None:
        return
    user = USER_HOME.expanduser()
    home = Path(HOME_FOLDER)
    home.mkdir(exist_ok=True)
    app.output.say(
        f"made {home.absolute()} for keys, blocks and chain: commands in this folder and below use it"
    )
    if (user / DEVNET_FILE).exists() and home.resolve() != user.resolve():
        app.output.say(f"the devnet in {user} stays as it is; `assay --home {user} devnet up` resumes it")


def holds_devnet(home: Path) -> bool:
    """True if the data in a home folder are a devnet's, running or not."""
    marks = (DEVNET_FILE, *STATES, f"nodes/{DEPLOYER}")
    return any((home / mark).exists() for mark in marks)


def begin_in(home: Path, deployment: Path) -> None:
    """Raises Ask if a devnet cannot start here: one runs, one is stopped, or there are data of another
    chain."""
    if (running := read_devnet(home)) is not None:
        raise Ask(
            f"a devnet is running in {home} ({running.rpc_url}); nothing was started",
            hint="stop it with `assay devnet down`, or choose another --home",
            code="devnet-running",
        )
    if not deployment.exists() and not any((home / "nodes").glob("*")):
        return
    if holds_devnet(home):
        raise Ask(
            f"{home} holds the data of an earlier devnet; nothing was started",
            hint="remove them with `assay devnet down --wipe`, or choose another --home",
            code="devnet-leftovers",
        )
    raise Ask(
        f"{home} may hold the keys and journals of another chain ({deployment} names its contracts); nothing"
        " was touched",
        hint="choose another --home, or `mkdir .assay` in an empty folder and start the devnet there",
        code="not-a-devnet",
    )


def wipe_data(home: Path) -> list[str]:
    """Removes a devnet's data from its home folder, and nothing else; returns the names of keys that were
    kept.

    Keys that somebody created or imported are kept: they may be for another chain. Without a devnet nothing
    is removed.
    """
    if not holds_devnet(home):
        return []
    for part in ("nodes", "logs", "view"):
        shutil.rmtree(home / part, ignore_errors=True)
    kept = _wipe_keys(home / "keystore")
    keys = () if kept else ("password", ACCOUNT_FILE)
    for part in (*STATES, "deployment.json", NAMES_FILE, *keys):
        (home / part).unlink(missing_ok=True)
    if read_devnet(home) is None:
        remove_devnet(home)
    return kept


def _wipe_keys(keystore: Path) -> list[str]:
    """Removes keys that a devnet created for itself; returns the others."""
    from assay.chain.eth.keystore import is_light

    for path in keystore.glob("*"):
        if is_light(path):
            path.unlink()
    kept = sorted(path.name for path in keystore.glob("*"))
    if not kept:
        shutil.rmtree(keystore, ignore_errors=True)
    return kept
