"""web3 over what asks a node, with everything switched off that would ask, fill in or wait by itself.

Contract: `eth_module` gives web3's `eth` module. Its middleware sets no fees, nonces, gas or sender, resolves
no names, and caches nothing. A contract cannot send it to a URL (CCIP-read, EIP-3668); an answer comes
checked for its shape, so web3's formatters do not meet any other. Errors of `ask` pass unchanged. Not to be
used: `get_block` by a hash, for which web3 chooses the method in an object that all threads share.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from assay.chain.eth.accounts import account_library

if TYPE_CHECKING:
    from web3.eth import Eth
    from web3.types import RPCEndpoint, RPCResponse


def eth_module(ask: Callable[[str, list[Any]], Any]) -> Eth:
    """web3's methods over `ask`, which gives the result of a method with its parameters."""
    account_library()  # before web3 imports it, with the pairing curve
    from web3 import Web3
    from web3.eth import Eth
    from web3.middleware import ExtraDataToPOAMiddleware
    from web3.providers import BaseProvider

    class Provider(BaseProvider):
        global_ccip_read_enabled = False

        def make_request(self, method: RPCEndpoint, params: Any) -> RPCResponse:
            return {"jsonrpc": "2.0", "id": 0, "result": ask(str(method), list(params))}

    middleware = [ExtraDataToPOAMiddleware]  # blocks of some chains have more than 32 bytes of it
    return Web3(Provider(), middleware=middleware, modules={"eth": Eth}).eth
