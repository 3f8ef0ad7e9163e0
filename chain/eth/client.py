"""Creates web3's `eth` module over our own transport, without middleware.

Contract: it sets no fees, nonces, gas or sender, resolves no names and caches nothing. A contract cannot
redirect it to a URL (CCIP-read, EIP-3668). Answers are checked for their shape before web3's formatters see
them. Errors of `ask` pass unchanged. Do not use `get_block` by hash: web3 then selects the method in an
object shared by all threads.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from assay.chain.eth.accounts import account_library

if TYPE_CHECKING:
    from web3.eth import Eth
    from web3.types import RPCEndpoint, RPCResponse


def eth_module(ask: Callable[[str, list[Any]], Any]) -> Eth:
    """web3's methods over `ask(method, params)`."""
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
