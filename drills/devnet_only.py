"""Refuses drills on any chain but a devnet, where nobody can lose anything.

Contract: sends nothing. A devnet is what its record in the home folder says: the chain at its URL, with the
chain id of devnets, and the contracts in the deployment file.
"""

from __future__ import annotations

from assay.app.devnet_record import Devnet, read_devnet, recorded
from assay.app.invocation import App
from assay.protocol.errors import Ask

REFUSED = "no-devnet"


def require_devnet(app: App) -> Devnet:
    """The running devnet of the home folder. Raises Ask if none runs, or this command's chain or contracts
    are others."""
    from assay.chain.contracts.deploy import parse
    from assay.chain.eth.anvil import AnvilOptions
    from assay.chain.eth.rpc import HttpRpc, identity

    settings = app.settings
    devnet = read_devnet(settings.home)
    if devnet is None:
        raise _refused(f"no devnet runs in {settings.home}", "`python -m drills up NAME` starts one")
    own = identity(HttpRpc(devnet.rpc_url))
    if own.split(":")[0] != str(AnvilOptions.chain_id):
        what = f"the record in {settings.home} names chain {own}, and a devnet's is {AnvilOptions.chain_id}"
        raise _refused(what, "choose the devnet's folder with --home")
    for url in settings.rpc_urls:
        if (chain := identity(HttpRpc(url))) != own:
            what = f"the node is on chain {chain}, which is not that of the devnet in {settings.home}, {own}"
            raise _refused(what, "leave out -r, ETH_RPC_URL and rpc_url in assay.toml")
    if (chain := parse(settings.deployment).chain) != own:
        what = f"{settings.deployment} describes contracts on chain {chain}, not on the devnet's, {own}"
        raise _refused(what, "leave out --deployment, or choose the devnet's folder with --home")
    return devnet


def refuse_other_chain(app: App) -> None:
    """Raises Ask if another chain than the home folder's devnet is configured: a new devnet starts its own
    chain."""
    given, devnet = app.settings.find("rpc_url"), recorded(app.settings.home)
    if given is not None and (devnet is None or given.value != devnet.rpc_url):
        what = f"this command starts a chain of its own, and {given.origin} names another one"
        raise _refused(what, "leave out -r, ETH_RPC_URL and rpc_url in assay.toml")


def _refused(what: str, hint: str) -> Ask:
    return Ask(f"{what}; a drill is for a devnet alone, so nothing was sent", hint=hint, code=REFUSED)
