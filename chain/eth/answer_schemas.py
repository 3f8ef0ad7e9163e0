"""Validates the shape of each method's answer, so that other code can rely on it.

Contract: `check` returns the answer, or raises `Misshapen`. A valid answer needs no further type checks, also
in web3's formatters: quantities are "0x" and hex digits within bounds, data is whole bytes of the right
length, and a block, receipt or log has every field that this package reads. Other fields of these objects are
dropped. Not guaranteed: that an answer is true. Methods not named here (a development node's own) are not
checked. Source: the Ethereum JSON-RPC specification (execution-apis), its schemas of quantities and data.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from pydantic_core import CoreSchema, SchemaValidator, ValidationError, core_schema

_LONGEST_EXTRA = 1 << 15
"""Maximum bytes of extra data: some chains keep signatures in it."""
_MOST_TOPICS = 4


class Misshapen(ValueError):
    """An answer does not have the shape of its method."""


def _below(bits: int, value: str) -> str:
    if int(value, 16) >> bits:
        raise ValueError(f"{int(value, 16)} is beyond all bounds")
    return value


def _number(bits: int) -> CoreSchema:
    text = core_schema.str_schema(pattern=r"^0x[0-9a-fA-F]{1,64}$", strict=True)
    return core_schema.no_info_after_validator_function(partial(_below, bits), text)


def _bytes(size: int | None = None, most: int | None = None) -> CoreSchema:
    digits = "*" if size is None else f"{{{size}}}"
    longest = None if most is None else 2 + 2 * most
    return core_schema.str_schema(pattern=rf"^0x([0-9a-fA-F]{{2}}){digits}$", max_length=longest, strict=True)


def _object(fields: dict[str, CoreSchema], **optional: CoreSchema) -> CoreSchema:
    """Schema of an object with these fields and optional ones; others are dropped."""
    needed = {name: core_schema.typed_dict_field(kind) for name, kind in fields.items()}
    may_be = {name: core_schema.typed_dict_field(kind, required=False) for name, kind in optional.items()}
    return core_schema.typed_dict_schema(needed | may_be)


def _null_or(kind: CoreSchema, *names: str) -> dict[str, CoreSchema]:
    return dict.fromkeys(names, core_schema.nullable_schema(kind))


_BLOCK, _GAS, _WEI, _ANY = map(_number, (62, 53, 128, 256))
"""Block numbers, nonces and gas also fit SQLite's integers, with room for arithmetic."""
_ADDRESS, _HASH, _DATA = _bytes(20), _bytes(32), _bytes()
_LOG = _object(
    {
        "address": _ADDRESS,
        "topics": core_schema.list_schema(_HASH, max_length=_MOST_TOPICS),
        "data": _DATA,
        "blockNumber": _BLOCK,
        "blockHash": _HASH,
        "logIndex": _BLOCK,
        "transactionHash": _HASH,
    },
    removed=core_schema.literal_schema([False]),  # where blocks or a transaction are asked about, none is
)
_LOGS = core_schema.list_schema(_LOG)
_RECEIPT = _object(
    {
        "transactionHash": _HASH,
        "blockHash": _HASH,
        "blockNumber": _BLOCK,
        "gasUsed": _GAS,
        "status": _number(1),
        "logs": _LOGS,
    },
    effectiveGasPrice=_WEI,
    **_null_or(_ADDRESS, "contractAddress"),
)
_TRANSACTION = _object(
    {"hash": _HASH, "from": _ADDRESS, "nonce": _number(64)}, input=_DATA, **_null_or(_ADDRESS, "to")
)
_PLACE = {"hash": _HASH, "number": _BLOCK, "timestamp": _BLOCK}
_HEADER = {
    **_null_or(_HASH, "parentHash", "sha3Uncles", "stateRoot", "transactionsRoot", "receiptsRoot", "mixHash"),
    **_null_or(_HASH, "withdrawalsRoot", "parentBeaconBlockRoot", "requestsHash", "blockAccessListHash"),
    **_null_or(_ADDRESS, "miner"),
    **_null_or(_bytes(256), "logsBloom"),
    **_null_or(_bytes(8), "nonce"),
    **_null_or(_bytes(most=_LONGEST_EXTRA), "extraData"),
    **_null_or(_WEI, "baseFeePerGas"),
    **_null_or(_ANY, "difficulty", "gasLimit", "gasUsed", "blobGasUsed", "excessBlobGas", "slotNumber"),
}
_TIPS = core_schema.list_schema(core_schema.list_schema(_WEI))


def _checked(kind: CoreSchema, *, null: bool = False) -> SchemaValidator:
    return SchemaValidator(core_schema.nullable_schema(kind) if null else kind)


_SHAPES = {
    "eth_chainId": _checked(_number(63)),
    "eth_blockNumber": _checked(_BLOCK),
    "eth_getTransactionCount": _checked(_BLOCK),
    "eth_getBalance": _checked(_ANY),
    "eth_maxPriorityFeePerGas": _checked(_WEI),
    "eth_estimateGas": _checked(_GAS),
    "eth_getTransactionReceipt": _checked(_RECEIPT, null=True),
    "eth_getLogs": _checked(_LOGS),
    "eth_feeHistory": _checked(_object({}, **_null_or(_TIPS, "reward"))),
    "eth_call": _checked(_DATA),
    "eth_getCode": _checked(_DATA),
    "eth_sendRawTransaction": _checked(_HASH),
}
_HEADERS = _checked(_object(_PLACE, **_HEADER, transactions=core_schema.list_schema(_HASH)), null=True)
_BLOCKS = _checked(
    _object({**_PLACE, "transactions": core_schema.list_schema(_TRANSACTION)}, **_HEADER), null=True
)


def check(method: str, params: list[Any], answer: Any) -> Any:
    """Returns the valid answer. Raises Misshapen."""
    shape = _SHAPES.get(method)
    if method == "eth_getBlockByNumber":
        shape = _BLOCKS if params[1:] == [True] else _HEADERS
    if shape is None:
        return answer
    try:
        found = shape.validate_python(answer)
    except ValidationError as error:
        raise Misshapen(_told(error)) from None
    if method in _ASKED:
        _ASKED[method](params, found)
    return found


def _told(error: ValidationError) -> str:
    """Short description of a validation error, whatever the node sent."""
    first = error.errors(include_url=False, include_context=False)[0]
    place = ".".join(str(part) for part in first["loc"])
    given = first["input"] if isinstance(first["input"], str) else type(first["input"]).__name__
    return f"{place or 'the answer'} is {given[:40]!r} ({first['msg'][:60]})"


def _of_this_block(params: list[Any], block: Any) -> None:
    asked = params[0]
    if block is None:
        if asked in ("latest", "earliest", "0x0"):
            raise Misshapen(f"the node has no block {asked}")
    elif asked.startswith("0x") and int(block["number"], 16) != int(asked, 16):
        raise Misshapen(f"block {int(block['number'], 16)} for block {int(asked, 16)}")


def _of_this_transaction(params: list[Any], receipt: Any) -> None:
    if receipt is not None and receipt["transactionHash"].lower() != params[0].lower():
        raise Misshapen("the receipt is another transaction's")


_ASKED: dict[str, Callable[[list[Any], Any], None]] = {
    "eth_getBlockByNumber": _of_this_block,
    "eth_getTransactionReceipt": _of_this_transaction,
}
"""Checks of an answer against its question."""
