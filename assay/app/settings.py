"""Resolves settings: flag, ASSAY_*, ETH_*, assay.toml, then the home folder (its devnet, its chosen account).

A network is a named group of settings: a table [networks.NAME] of assay.toml. It is chosen as any setting is
(--network, ASSAY_NETWORK, `network = "NAME"` in assay.toml), and its values rank right below what chose it.

Contract: only this module reads the environment and configuration files. It validates once and names the
origin of each value (``assay config show --origin``). It never holds a private key, only paths of a keystore
and a password file. The home folder and assay.toml are the nearest in the current folder or above, so that a
command finds its keys from anywhere in a project. Without any, the home is the user's
(docs/decisions/0033-faces.md). Files above must belong to the user, so that nobody else's file in a shared
folder is used.
"""

from __future__ import annotations

import os
import re
import tomllib
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from assay.protocol.errors import Ask
from assay.protocol.words import masked_url, meant

CONFIG_FILE = "assay.toml"
HOME_FOLDER = ".assay"
USER_HOME = Path("~/.assay")
DEPLOYMENT_FILE = "deployment.json"
ACCOUNT_FILE = "account"
"""File in the home folder with the name of its default account."""
NETWORKS = "networks"
_PATHS = ("home", "deployment", "keystore", "password_file")
"""Settings that are paths: in assay.toml they are relative to its folder."""


@dataclass(frozen=True)
class Setting:
    """A value and its origin."""

    value: str
    origin: str


@dataclass(frozen=True)
class Flags:
    """Values given on the command line."""

    home: str | None = None
    rpc_url: str | None = None
    account: str | None = None
    password_file: str | None = None
    keystore: str | None = None
    deployment: str | None = None
    device: str | None = None
    executor: str | None = None
    threads: str | None = None
    ipfs: str | None = None
    max_fee: str | None = None
    emergency_fee: str | None = None
    token_worth: str | None = None
    tip: str | None = None
    fee_bump: str | None = None
    confirmations: str | None = None
    finality: str | None = None
    host: str | None = None
    announce_url: str | None = None
    private_peers: str | None = None
    network: str | None = None


_FOUNDRYS = {
    "rpc_url": ("ETH_RPC_URL",),
    "account": ("ETH_KEYSTORE_ACCOUNT",),
    "password_file": ("ETH_PASSWORD",),
    "keystore": ("ETH_KEYSTORE",),
}
"""Foundry's variables for the same settings."""
_ENVIRONMENT = {f.name: (f"ASSAY_{f.name.upper()}", *_FOUNDRYS.get(f.name, ())) for f in fields(Flags)}
"""Variables of each setting, the first that is set counts."""
ENDPOINTS = ("rpc_url", "ipfs")
_DEFAULTS = {
    "network": "",
    "device": "auto",
    "executor": "auto",
    "threads": "",
    "ipfs": "",
    "max_fee": "500gwei",
    "emergency_fee": "2000gwei",
    "token_worth": "",
    "tip": "auto",
    "fee_bump": "25",
    "confirmations": "0",
    "finality": "12",
    "host": "127.0.0.1",
    "announce_url": "auto",
    "private_peers": "",
}
"""Defaults that are the same everywhere; docs/operating.md explains them."""


_COMPUTING = {
    "device": (
        r"auto|(cpu|cuda(:\d{1,3})?)(,(cpu|cuda(:\d{1,3})?)){0,63}",
        "there is no device {!r}",
        "choose auto, cpu, cuda or one GPU, as cuda:1; several for a node with a worker on each",
    ),
    "executor": (
        r"auto|compiled|eager|reference",
        "there is no executor {!r}",
        "choose auto, compiled, eager or reference",
    ),
    "threads": (
        r"([1-9]\d{0,8})?",
        "{!r} is not a number of threads",
        "give a whole number from 1, or leave it out for all processors",
    ),
}
"""Pattern and error text of each setting. ``app.resource_limits`` checks whether the device exists."""


def check_computing(name: str, value: str) -> str:
    """Validates a setting of `_COMPUTING`. Raises Ask for an invalid value."""
    form, what, hint = _COMPUTING[name]
    if re.fullmatch(form, value, re.ASCII) is None:
        raise Ask(what.format(value), hint=hint, code=f"bad-{name}")
    return value


class Settings:
    """Resolved settings of one command. Raises Ask for an invalid assay.toml and an unknown network."""

    def __init__(self, flags: Flags) -> None:
        self._flags = flags
        self._file_path = nearest(CONFIG_FILE)
        self._file, networks = _read_file(self._file_path)
        chosen = self._found("network")
        if chosen is not None and chosen.value not in networks:
            raise Ask(
                f"there is no network {chosen.value!r} ({chosen.origin}); assay.toml has:"
                f" {', '.join(networks) or 'none'}{meant(chosen.value, networks)}",
                hint=f"write its rpc_url and deployment into a table [{NETWORKS}.{chosen.value}] there",
                code="no-network",
            )
        self._network_by_flag = flags.network is not None
        self._network: dict[str, Setting] = {}
        if chosen is not None:
            origin = f"{self._file_path}, [{NETWORKS}.{chosen.value}]"
            self._network = {n: Setting(v, origin) for n, v in networks[chosen.value].items()}

    def find(self, name: str) -> Setting | None:
        """The setting by precedence, before defaults."""
        found, of_network = self._found(name), self._network.get(name)
        first = ("flag",) if self._network_by_flag else ("flag", *_ENVIRONMENT[name])
        if of_network is not None and (found is None or found.origin not in first):
            return of_network
        if found is None and name == "home" and (folder := nearest(HOME_FOLDER)) is not None:
            return Setting(str(folder), "the nearest here or above")
        return found

    def _found(self, name: str) -> Setting | None:
        """The setting from a flag, a variable or the top level of assay.toml."""
        given = getattr(self._flags, name)
        if given is not None:
            return Setting(str(given), "flag")
        for variable in _ENVIRONMENT[name]:
            if value := os.environ.get(variable):
                return Setting(value, variable)
        if name in self._file:
            return Setting(self._file[name], str(self._file_path))
        return None

    def describe(self) -> dict[str, Setting]:
        """Every setting with its origin."""
        return {name: self.find(name) or self._default(name) for name in _ENVIRONMENT}

    def shown(self) -> dict[str, Setting]:
        """As `describe`, for people and logs: endpoints, which often contain a key, are reduced to the
        host."""
        found = self.describe()
        return found | {name: replace(found[name], value=masked(found[name].value)) for name in ENDPOINTS}

    def _default(self, name: str) -> Setting:
        if name in _DEFAULTS:
            return Setting(_DEFAULTS[name], "default")
        if name == "home":
            return Setting(str(USER_HOME.expanduser()), "default")
        if name == "rpc_url" and (url := self._devnet_url()):
            return Setting(url, f"the devnet in {self.home}")
        if name == "account" and (chosen := chosen_account(self.home)):
            return Setting(chosen, "assay account use")
        below = {"deployment": DEPLOYMENT_FILE, "keystore": "keystore", "password_file": "password"}
        return Setting(str(self.home / below[name]) if name in below else "", "default")

    def _devnet_url(self) -> str | None:
        from assay.app.devnet_record import read_devnet

        devnet = read_devnet(self.home)
        return devnet.rpc_url if devnet else None

    def value(self, name: str) -> str:
        """A setting as text, whatever its origin."""
        return (self.find(name) or self._default(name)).value

    @property
    def home(self) -> Path:
        return Path(self.value("home")).expanduser()

    @property
    def rpc_urls(self) -> list[str]:
        """The chain's endpoints, preferred first. Raises Ask if there is neither a URL nor a devnet, and for
        an invalid URL."""
        urls = [url.strip() for url in self.value("rpc_url").split(",") if url.strip()]
        if not urls:
            raise self._without_chain()
        for url in urls:
            if not is_http(url):  # what stands after a slash may be a key, and is not repeated
                raise Ask(
                    f"{url.split('/')[0]!r} is not the URL of a chain's node; nothing was sent",
                    hint="give the whole URL, such as -r http://127.0.0.1:8545 (-r, ETH_RPC_URL or"
                    " assay.toml)",
                    code="bad-config",
                )
        return urls

    def _without_chain(self) -> Ask:
        from assay.app.devnet_record import read_stopped

        if read_stopped(self.home) is not None:
            home = "" if self.find("home") else f"--home {self.home} "
            said = f"the devnet in {self.home} is stopped"
            next_step = f"`assay {home}devnet up` resumes it"
        else:
            said = f"no chain is configured, and no devnet runs in {self.home}"
            next_step = "start one with `assay devnet up`, or go to the folder of one that runs"
        return Ask(said, hint=f"{next_step}; or pass -r URL or set ETH_RPC_URL", code="no-chain")

    @property
    def rpc_url(self) -> str:
        """The preferred endpoint. Raises Ask if there is none."""
        return self.rpc_urls[0]

    @property
    def deployment(self) -> Path:
        return Path(self.value("deployment")).expanduser()

    @property
    def keystore(self) -> Path:
        return Path(self.value("keystore")).expanduser()

    @property
    def password_file(self) -> Path:
        return Path(self.value("password_file")).expanduser()

    @property
    def account(self) -> str:
        """The chosen account. Raises Ask if there is none."""
        name = self.value("account")
        if not name:
            raise Ask(
                "this command acts for an account, and no account is chosen",
                hint="pass --account NAME, or set a default with `assay account use NAME`; `assay account ls`"
                " lists them",
                code="no-account",
            )
        return name

    @property
    def device(self) -> str:
        """The device setting. Raises Ask for an invalid one."""
        return check_computing("device", self.value("device"))

    @property
    def executor(self) -> str:
        """The executor setting. Raises Ask for an unknown one."""
        return check_computing("executor", self.value("executor"))

    @property
    def threads(self) -> str:
        """Number of threads; empty: PyTorch's default. Raises Ask for an invalid number."""
        return check_computing("threads", self.value("threads"))


def masked(urls: str) -> str:
    """A comma-separated list of endpoints without parts that may be a key."""
    return ",".join(masked_url(url.strip()) for url in urls.split(",") if url.strip())


def is_http(url: str) -> bool:
    """True if the URL is an HTTP URL."""
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname)
    except ValueError:
        return False


def nearest(name: str) -> Path | None:
    """The nearest file or folder of this name, in the current folder or above, that belongs to this user;
    None if none does."""
    here = Path.cwd()
    if (here / name).exists():
        return Path(name)
    for folder in here.parents:
        found = folder / name
        try:
            if found.stat().st_uid == os.geteuid() and found != USER_HOME.expanduser():
                return found
        except OSError:
            continue
    return None


def chosen_account(home: Path) -> str:
    """Account chosen for a home folder; empty if none."""
    try:
        return (home / ACCOUNT_FILE).read_text().strip()
    except (OSError, ValueError):  # also Unicode's, and a path that none can be
        return ""


def _read_file(path: Path | None) -> tuple[dict[str, str], dict[str, dict[str, str]]]:
    """Settings of an assay.toml, and of each of its networks; empty if missing.

    Raises Ask for invalid TOML, an unknown key, or a value that is not text.
    """
    if path is None:
        return {}, {}
    try:
        body = tomllib.loads(path.read_text())
    except (OSError, ValueError, RecursionError) as error:  # also TOML's errors, and Unicode's
        raise _bad_config(path, str(error)) from error
    networks = body.pop(NETWORKS, {})
    if not isinstance(networks, dict) or not all(isinstance(table, dict) for table in networks.values()):
        raise _bad_config(path, f"{NETWORKS} holds tables, such as [{NETWORKS}.devnet]")
    return _stated(path, body), {name: _stated(path, table) for name, table in networks.items()}


def _stated(path: Path, table: dict[str, Any]) -> dict[str, str]:
    """Settings of one table."""
    for name, value in table.items():
        if name not in _ENVIRONMENT:
            raise _bad_config(path, f"there is no setting {name!r}; there are {', '.join(_ENVIRONMENT)}")
        if not isinstance(value, str):
            raise _bad_config(path, f"{name} must be text in quotes")
    return {n: str(path.parent / Path(v).expanduser()) if n in _PATHS else v for n, v in table.items()}


def _bad_config(path: Path, why: str) -> Ask:
    return Ask(
        f"{path} is not a valid configuration: {why}", hint=f"mend or remove {path}", code="bad-config"
    )
