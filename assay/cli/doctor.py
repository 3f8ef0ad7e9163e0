"""``assay doctor``: check that this machine, its keys and its chain are ready, with a fix for each problem.

Contract: reads only. Every check gives a line (ok, note or bad) with its fix, and none stops later ones. Not
guaranteed: that the chain's node is honest, or that the machine computes right; `assay solver bench` checks
that.
"""

from __future__ import annotations

import os
import shutil
import stat
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import typer

from assay.app.invocation import App
from assay.app.network_addresses import is_loopback, private_peers
from assay.app.node_problems import troubles
from assay.app.node_status import answer_of, networks_of, whole_answer
from assay.app.output import Exit, table
from assay.app.resource_limits import FORMS_FOLDER, limits_of
from assay.app.times import show_span
from assay.app.units import show_amount, show_bytes
from assay.node.deadlines import ANY_TIME, offline_allowance
from assay.node.roles import NODE_ROLES
from assay.protocol import bounded_json
from assay.protocol.errors import Ask, AssayError
from assay.protocol.types import Address, JobView, Role
from assay.protocol.words import masked_url

if TYPE_CHECKING:
    from assay.app.wiring import Connection
    from assay.blocks.public_net import Network
    from assay.chain.contracts.view import ChainView

LEAST_DISK_BYTES = 5 << 30
CLOCK_OFF_S = 120
PEER_S, PEER_BYTES = 2.0, 1 << 12
"""Timeout and size limit of a stranger's answer."""
ROLES = ("client", *NODE_ROLES)
LARGE_SHOWN = 4
"""Maximum number of jobs named as too large for a device."""


@dataclass(frozen=True)
class Line:
    """Result of one check. `state`: ok, note (may be intended) or bad."""

    check: str
    state: str
    found: str
    fix: str = ""


def examine(app: App, role: str) -> Iterator[Line]:
    """Runs every check for a role, in order of dependency."""
    yield from _tried("package", _package)
    yield from _tried("home", lambda: _home(app))
    yield from _tried("keys", lambda: _keys(app))
    connection: list[Connection] = []
    yield from _tried("chain", lambda: _chain(app, connection))
    if connection:
        yield from _tried("bytecode", lambda: _bytecode(app, connection[0]))
        yield from _tried("clock", lambda: _clock(connection[0]))
        yield from _tried("account", lambda: _account(app, connection[0], role))
        yield from _tried("storage", lambda: _peers(app, connection[0]))
    yield from _tried("compiler", lambda: _compiler(app))
    if role != "client":
        devices: list[str] = []
        yield from _devices(app, role, devices)
        if connection and devices:
            yield from _tried("jobs", lambda: _jobs(app, connection[0], role, devices))


def _tried(check: str, look: Callable[[], Iterator[Line]]) -> Iterator[Line]:
    try:
        yield from look()
    except AssayError as error:
        yield Line(check, "bad", error.message, error.hint)
    except OSError as error:
        yield Line(check, "bad", f"{error.filename}: {error.strerror}", "mend its path or permissions")
    except Exception as error:  # noqa: BLE001 - each check is the top of its own
        fix = "this check has a bug: please report it with what it found"
        yield Line(check, "bad", f"{type(error).__name__}: {error}", fix)


def _home(app: App) -> Iterator[Line]:
    home = app.settings.home
    origin = app.settings.describe()["home"].origin
    there = next(folder for folder in (home, *home.absolute().parents) if folder.exists())
    if not os.access(there, os.W_OK):
        yield Line("home", "bad", f"{home} ({origin}) cannot be written", "choose another --home")
        return
    yield Line("home", "ok", f"{home.absolute()} ({origin})")
    free = shutil.disk_usage(there).free
    state = "ok" if free >= LEAST_DISK_BYTES else "note"
    fix = "" if state == "ok" else "free some space: states and blocks of jobs take gigabytes"
    yield Line("disk", state, f"{free / (1 << 30):.1f} GiB free", fix)


def _package() -> Iterator[Line]:
    from assay.cli.error_reports import others_of

    if others := others_of("assay"):
        fix = "one of the two is broken: install assay-market in an environment of its own"
        yield Line("package", "bad", f"{', '.join(others)} has a package assay here, too", fix)


def _keys(app: App) -> Iterator[Line]:
    from assay.chain.eth.keystore import Keystore

    stored = Keystore(app.settings.keystore).list()
    if not stored:
        fix = app.command("account new NAME")
        yield Line("keys", "bad", f"no account in {app.settings.keystore}", f"make one: {fix}")
        return
    yield Line("keys", "ok", f"{', '.join(a.name for a in stored)} in {app.settings.keystore}")
    path = app.settings.password_file
    if not path.exists() and app.settings.find("password_file"):
        yield Line("password", "bad", f"{path} is not there", "name the file: --password-file")
    elif not path.exists():
        fix = "a node that nobody starts by hand needs one: --password-file"
        yield Line("password", "note", f"{path} is not there: it is asked for at a terminal", fix)
    elif stat.S_IMODE(path.stat().st_mode) & 0o077:
        yield Line("password", "bad", f"others can read {path}", f"chmod 600 {path}")


def _chain(app: App, connection: list[Connection]) -> Iterator[Line]:
    connection.append(app.view())
    found = connection[0]
    number = found.clock.block()
    yield Line("chain", "ok", f"block {number} at {masked_url(app.settings.rpc_url)}")
    for url, trouble in found.rpc.troubles().items():
        fix = "its answers from behind are not used: name one whose nodes are in step, or two (--rpc-url)"
        yield Line("chain", "note", f"{url}: {trouble}", fix)
    yield Line("contracts", "ok", f"those of {app.settings.deployment}, with the code that it names")


def _bytecode(app: App, connection: Connection) -> Iterator[Line]:
    """Compares the code on chain with the artifacts; the deployment file alone proves nothing."""
    from assay.chain.contracts.artifacts import load_artifacts
    from assay.chain.contracts.code_check import differing
    from assay.chain.contracts.deploy import parse

    addresses = parse(app.settings.deployment).addresses
    other = set(differing(connection.rpc, addresses, load_artifacts()))
    if own := sorted(other - {"Token"}):
        said = f"{', '.join(own)}: not what these sources compile to"
        fix = "use the version that the market was deployed from, or another market: its rules are not those"
        yield Line("bytecode", "bad", said, f"{fix} of this version's documents")
    elif other:
        said = f"{len(addresses) - 1} contracts are what these sources compile to; the token is another"
        yield Line("bytecode", "note", said, f"all is paid in {addresses['Token']}: look at what it is")
    else:
        yield Line("bytecode", "ok", f"{len(addresses)} contracts are what these sources compile to")


def _clock(connection: Connection) -> Iterator[Line]:
    off = connection.clock.now() - int(time.time())
    if abs(off) <= CLOCK_OFF_S:
        yield Line("clock", "ok", f"the last block is {show_span(off)} from this machine's clock")
        return
    fix = "set this machine's clock, or wait for the node to sync; a devnet that was warped is ahead"
    yield Line(
        "clock", "note", f"the chain's clock is {show_span(off)} {'ahead' if off > 0 else 'behind'}", fix
    )


def _account(app: App, connection: Connection, role: str) -> Iterator[Line]:
    from assay.app.accounts import resolve

    name = app.settings.describe()["account"].value
    if not name:
        yield Line("account", "note", "none is chosen", "pass --account NAME, or set ETH_KEYSTORE_ACCOUNT")
        return
    address, market = resolve(app, name), connection.market
    ether = connection.ether(address)
    yield Line(
        "gas",
        "ok" if ether else "bad",
        f"{name} has {show_amount(ether, 'ether')}",
        "" if ether else "send it some, or on a devnet: " + app.command(f"token faucet {name} 100tok"),
    )
    tokens = market.free(address) + market.wallet(address)
    yield Line(
        "tokens",
        "ok" if tokens else "note",
        f"{show_amount(market.wallet(address))} in the wallet,"
        f" {show_amount(market.free(address))} free in the vault",
        "" if tokens else "send it some; budgets, bonds and stakes are paid from there",
    )
    if role in ("solver", "verifier"):
        yield _stake(app, connection, address, Role[role.upper()])
    if role != "client":
        now = int(connection.clock.now())
        yield Line("sleep", "ok", f"its node may sleep {offline_allowance(market, address, now) or ANY_TIME}")
        yield from _tried("node", lambda: _node(app, connection, role, address))


def _node(app: App, connection: Connection, role: str, address: Address) -> Iterator[Line]:
    """Problems that the account's own node reports, and whether others can fetch its blocks."""

    market = connection.market
    url = market.endpoints().get(address)
    if not url:
        start = app.command(f"{NODE_ROLES[role].command} run")
        yield Line("node", "note", "none of this account announces where it serves", f"start it: {start}")
        return
    yield from _reach(app, market, address, url)
    status = answer_of(url, networks_of(app, address))
    wrong = troubles(status)
    for one in wrong:
        state = "note" if one.ready else "bad"
        yield Line("node", state, str(one), "the line says what to do; `status` has all of them")
    if not wrong:
        yield Line("node", "ok", f"{url} says that nothing is wrong")


def _reach(app: App, market: ChainView, address: Address, url: str) -> Iterator[Line]:
    """Checks that other nodes can fetch from this account's announced URL."""
    fix = "announce what others can reach: --host or --announce-url (docs/chains.md)"
    if is_loopback(url) and not all(map(is_loopback, app.settings.rpc_urls)):
        yield Line("reach", "bad", f"{url} is announced, which is each machine's own address", fix)
        return
    others = [at for who, at in market.endpoints().items() if who != address][-8:]
    private = private_peers(app.settings)
    told = [said for said in (_reached(at, address, private) for at in others) if said is not None]
    if not told:
        yield Line("reach", "note", f"no other node says whether it can fetch from {url}", fix)
    elif not any(told):
        yield Line("reach", "bad", f"none of {len(told)} other node(s) could fetch from {url}", fix)
    else:
        yield Line("reach", "ok", f"{sum(told)} of {len(told)} other node(s) fetched from {url}")


def _reached(peer: str, address: Address, private: Sequence[Network]) -> bool | None:
    """True if another node can fetch from this account's; None if it does not say."""
    try:
        said = bounded_json.loads(whole_answer(f"{peer}/reach/{address}", private, PEER_S, PEER_BYTES))
    except Exception:  # noqa: BLE001 - whatever asking one peer brings about is its failure
        return None
    return said.get("reached") if isinstance(said, dict) and isinstance(said.get("reached"), bool) else None


def _stake(app: App, connection: Connection, address: Address, role: Role) -> Line:
    name = role.name.lower()
    stake = connection.market.stake(address, role)
    said = f"{show_amount(stake.active)} as {name}, {show_amount(stake.locked)} of it locked"
    if stake.active:
        return Line("stake", "ok", said)
    return Line("stake", "bad", said, app.command(f"stake deposit AMOUNT --role {name}"))


def _peers(app: App, connection: Connection) -> Iterator[Line]:
    private, urls = private_peers(app.settings), list(connection.market.endpoints().values())[-8:]
    answered = sum(_answers(url, private) for url in urls)
    fix = "" if answered else "job files come from other nodes: check that theirs and this network are up"
    state = "ok" if answered or not urls else "note"
    yield Line("storage", state, f"{answered} of the last {len(urls)} nodes that serve blocks answer", fix)
    for account, said in list(connection.market.unusable().items())[-8:]:
        found = f"{account} announces {said[:80]!a}, which is no base URL"
        yield Line("storage", "note", found, "nobody is asked there; its owner has to announce another")


def _answers(url: str, private: Sequence[Network]) -> bool:
    """True if a stranger's node answers."""
    try:
        return bool(whole_answer(f"{url}/healthz", private, PEER_S, PEER_BYTES))
    except Exception:  # noqa: BLE001 - whatever asking one peer brings about is its failure
        return False


def _compiler(app: App) -> Iterator[Line]:
    found = next(filter(None, map(shutil.which, ("cc", "gcc", "clang"))), None)
    fix = "" if found else "install gcc or clang: training takes several times longer without"
    yield Line("compiler", "ok" if found else "note", found or "no C compiler", fix)


def _devices(app: App, role: str, devices: list[str]) -> Iterator[Line]:
    """Checks each device that a node has a worker on; `devices` gets one entry per worker."""
    from assay.app.workers import devices_of

    def named() -> Iterator[Line]:
        settings = app.settings
        found, _ = devices_of(settings.device), (settings.executor, settings.threads)
        devices.extend(found)
        if len(found) > 1:
            yield Line("workers", "ok", f"{len(found)}, on {', '.join(found)}")

    yield from _tried("device", named)
    for device in dict.fromkeys(devices):
        yield from _tried("device", partial(_device, app, role, device))
    yield from _tried("forms", lambda: _forms(app))


def _forms(app: App) -> Iterator[Line]:
    """Reports compiled forms that gave wrong bits: their jobs run several times slower."""
    for note in sorted((app.settings.home / FORMS_FOLDER).glob("*.refused")):
        fix = f"check this machine's memory and compiler, then remove {note}"
        yield Line("forms", "bad", f"a compiled form is not used: {note.read_text()[:300]}", fix)


def _jobs(app: App, connection: Connection, role: str, devices: list[str]) -> Iterator[Line]:
    """For each device, the jobs whose steps fit its memory; workers of one device share it. Verifiers
    and whistleblowers replay those streamed that do not fit the machine's memory."""
    from assay.app.computing import room_of
    from assay.app.workers import sharing

    def named(jobs: list[JobView]) -> str:
        names = [
            f"{job.job_id.hex()[:16]} ({show_bytes(job.terms.step_bytes)})" for job in jobs[:LARGE_SHOWN]
        ]
        more = [f"{len(jobs) - LARGE_SHOWN} more"] if len(jobs) > LARGE_SHOWN else []
        return ", ".join([*names, *more])

    opened = [job for job in connection.market.jobs() if not (job.progress.closed or job.progress.halted)]
    for device in dict.fromkeys(devices):
        room, streamed = room_of(device) // devices.count(device), []
        if role != "solver":
            limits = limits_of(None, sharing(app.settings), app.settings.home)
            room, most = min(room, limits.memory_bytes), limits.step_bytes
            streamed = [job for job in opened if limits.memory_bytes < job.terms.step_bytes <= most]
        large = [job for job in opened if job.terms.step_bytes > room]
        none = [job for job in large if job not in streamed]
        fits = f"{len(opened) - len(large)} of {len(opened)} open jobs fit {device}: a worker there has"
        said = f"{fits} {show_bytes(room)} for a step"
        if streamed:
            said += f"; replayed streamed from disk, slowly, if their widest node fits: {named(streamed)}"
        if none:
            said += f"; too large: {named(none)}"
        if large:
            leave = app.command(f"{NODE_ROLES[role].command} run --memory {room // 10**6}MB")
            fix = f"`{leave}` leaves these to larger machines" if none else "more memory makes it faster"
            yield Line("jobs", "note", said, fix)
        else:
            yield Line("jobs", "ok", said)


def _device(app: App, role: str, device: str) -> Iterator[Line]:
    from assay.app.computing import memory_of
    from assay.cli.node.fitness import found, machine_of
    from assay.program.execute import open_device

    open_device(device)
    machine = machine_of(device)
    yield Line(
        "device",
        "ok",
        f"{machine['device']} ({machine['processor']}), {show_bytes(memory_of(device))} of memory,"
        f" PyTorch {machine['torch']}",
    )
    again = replace(app, flags=replace(app.flags, device=device)).command("solver bench")
    result = found(app.settings.home, device)
    if result is None:
        state = "note" if role == "whistleblower" else "bad"
        yield Line("exactness", state, f"{device} was not compared yet", again)
    elif not result.fit:
        yield Line("exactness", "bad", f"{device} failed the comparison", again)
    else:
        yield Line("exactness", "ok", f"{device}: every bit that was compared is right")
        if speed := result.operations_per_second:
            yield Line("speed", "ok", f"{device}: {speed:.3g} operations a second at best")
    for why in result.slower if result is not None else ():
        yield Line("slower", "bad", f"{device}: {why}", f"mend that, then {again}")


def doctor(app: App, role: str) -> None:
    """Prints every check. Raises Ask for an unknown role; ends with status 3 if something is bad."""
    if role not in ROLES:
        raise Ask(f"there is no role {role!r}", hint=f"choose {', '.join(ROLES)}", code="bad-role")
    app.output.say(f"looking at what a {role} needs")
    lines = list(examine(app, role))
    rows = table(f"ready as a {role}?", "check", "state", "found", "fix")
    for line in lines:
        rows.add_row(line.check, line.state, line.found, line.fix)
    app.output.result("doctor", {"role": role, "checks": lines}, rows)
    if any(line.state == "bad" for line in lines):
        raise typer.Exit(int(Exit.CONFIG))
