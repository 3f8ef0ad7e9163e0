"""Presents one or more RPC endpoints of a chain as one node, with retries, failover and comparison.

Contract: a request is repeated, at another endpoint if there is one, with growing random pauses and timeouts,
until it is answered or its tries are used up. So an occasional failure costs a pause and not a whole poll.

An answer that lags behind what was seen (an older head, an unknown block) is requested again and never used
(``chain.eth.head_tracker``); if all answers lag, `EndpointLagging` is raised. Requests for the latest state
name the newest block's number, so that a node without it fails instead of answering from the past.

With several endpoints, logs, blocks, receipts and calls at a named block must be equal at two of them that
know the block. If they stay different, `EndpointsDisagree` is raised, since nobody can tell which lies; but
logs of a block named by its hash are proven by its header. The head is the lowest of those endpoints that
move on. A signed transaction is sent to all of them, so that none can withhold it. Not guaranteed: truth
while all but one endpoint are down, lag, or do not know the block; `counters` says how often that was.

Every request may be sent twice: a signed transaction has its nonce. A development node's own methods
(`evm_mine`, …) are neither repeated nor compared.
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from assay.chain.eth import answer_schemas
from assay.chain.eth.endpoint_comparison import RECEIPT, gist, has_one_answer
from assay.chain.eth.endpoint_stats import Endpoint, Watched
from assay.chain.eth.head_tracker import HEAD, Seen
from assay.chain.eth.receipts import proven_logs
from assay.chain.eth.rpc import TIMEOUT_S, HttpRpc, Rpc, RpcFailed
from assay.protocol.errors import RpcUnreachable

_OWN_METHODS = ("evm_", "anvil_", "hardhat_", "debug_")
_PASSING = (
    *("rate", "too many requests", "capacity", "throttl", "try again", "temporar", "overload", "busy"),
    *("unavailable", "internal error", "out of range"),
)
"""Texts of transient or node-specific errors. (A request that is too large stays too large.)"""
FRESH_S = 0.2
_REFUSED = "refused"
_LATEST: list[Any] = ["latest", False]
_SEND = "eth_sendRawTransaction"
_MOVING = (_SEND, RECEIPT, HEAD)
"""Methods after which this process may know more of the chain than its latest block."""
_OF_A_STATE = ("eth_call", "eth_estimateGas", "eth_getBalance", "eth_getCode")
"""Methods whose last parameter names a block."""
PROBES = 4
"""How often a new process requests the head: of two nodes behind one address it learns the newer head."""


class EndpointsDisagree(RpcUnreachable):
    """Two endpoints answer the same question differently."""

    code = "endpoints-disagree"


@dataclass(frozen=True)
class RetryPolicy:
    """Retry policy. Operator configuration."""

    tries: int = 6
    first_pause_s: float = 0.05
    longest_pause_s: float = 2.0
    first_limit_s: float = 2.0
    """Timeout of the first try of a method whose usual time is unknown; it doubles with each further try, up
    to `last_limit_s`."""
    least_limit_s: float = 0.5
    usual_times: float = 8.0
    """Timeout of a first try as a multiple of recent response times."""
    last_limit_s: float = TIMEOUT_S
    doubts: int = 3
    """How often an answer that contradicts another one is requested again."""
    behind_tries: int = 8
    """Maximum number of requests while answers lag or lack the named block."""
    probes: int = 1
    """How often the head is requested at start."""
    went_back_s: float = 60.0
    """Seconds after which a chain whose heads all lag counts as set back."""
    fresh_s: float = 0.0
    """Seconds for which the latest block is reused, unless a transaction was sent or mined meanwhile."""
    still_s: float = 60.0
    """Seconds after which an endpoint whose head stands still, while another's moves, is ignored."""


class Endpoints(Rpc):
    """The endpoints in the operator's order. Thread-safe."""

    def __init__(
        self,
        endpoints: Sequence[Endpoint],
        patience: RetryPolicy | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
        seed: int | None = None,
    ) -> None:
        if not endpoints:
            raise ValueError("at least one endpoint is needed")
        self._all = [Watched(endpoint, place, clock, sleep) for place, endpoint in enumerate(endpoints)]
        self.patience = patience or RetryPolicy()
        self.counters: Counter[str] = Counter()
        """Counters for a status page: `repeated`, `taken_over`, `doubted`, `awaited`, `uncompared`, `proven`,
        `disagreed`."""
        self._clock, self._sleep = clock, sleep
        self._random = random.Random(seed)
        self._lock = threading.Lock()
        self._seen = Seen(clock, self.patience.went_back_s)
        self._probes_left = self.patience.probes - 1
        self._latest: tuple[float, Any] | None = None
        self._denying: dict[str, tuple[float, str]] = {}
        """By endpoint: since when it denies a receipt, and the endpoint that has it."""

    def has_seen(self, block: int, file: Path) -> None:
        """Records that an earlier process has read up to this block, by `file`: older answers lag."""
        self._seen.head, self._seen.kept = max(self._seen.head, block), (block, file)
        self._latest = None  # it may be from before that block

    def troubles(self) -> dict[str, str]:
        """Present problem of each endpoint: its last error, a denied receipt, or an answer that lagged."""
        late, denying = self._clock() - self.patience.still_s, list(self._denying.items())
        denied = {
            url: f"it has no receipt of what {other} has in a block of both"
            for url, (since, other) in denying
            if since <= late
        }
        behind = {
            one.url: f"it is behind by {one.behind} block{'' if one.behind == 1 else 's'}"
            for one in self._all
            if one.is_behind()
        }
        slow = {
            one.url: f"it refuses more than some {rate:.2g} requests a second, so it is asked no more often"
            for one in self._all
            if (rate := one.pace.a_second)
        }
        return slow | denied | behind | {one.url: one.error for one in self._all if one.error}

    def request(self, method: str, params: list[Any]) -> Any:
        """Returns the result of one JSON-RPC call. Raises RpcFailed, RpcUnreachable, EndpointsDisagree."""
        if method.startswith(_OWN_METHODS):
            return self._all[0].ask(method, params, self.patience.last_limit_s)
        if self._probes_left > 0:
            times, self._probes_left = self._probes_left, 0
            self._probe(times)
        if method in _MOVING:
            self._latest = None
        if method in _OF_A_STATE and params[-1] == "latest":
            params = [*params[:-1], self._latest_block()["number"]]
        if len(self._all) > 1 and method == HEAD:
            return self._head()
        if len(self._all) > 1 and method == _SEND:
            return self._sent(params)
        if params == _LATEST and method == "eth_getBlockByNumber":
            return self._latest_block()
        return self._request_fresh(method, params)

    def _probe(self, times: int) -> None:
        """Requests the head several times: there may be several nodes behind one address."""
        for one in self._all if len(self._all) == 1 else ():
            with suppress(RpcFailed, RpcUnreachable):  # whoever asks next is told
                for _ in range(times):
                    known = self._seen.head
                    head = one.ask(HEAD, [], self._limit_s(0, one, HEAD))
                    if lag := self._seen.lag(HEAD, [], head, known):
                        one.fell_behind(lag)
                    else:
                        self._seen.note(HEAD, [], head)

    def _latest_block(self) -> Any:
        """The head block, reused while fresh; of several endpoints, the head that they share."""
        now, known = self._clock(), self._latest
        if known is not None and now - known[0] < self.patience.fresh_s:
            return known[1]
        if self._all[0].is_behind():  # so as not to follow the one that is
            self._probe(1)
        asked = [self._head(), False] if len(self._all) > 1 else _LATEST
        found = self._request_fresh("eth_getBlockByNumber", asked)
        self._latest = None if found is None else (now, found)
        return found

    def _sent(self, params: list[Any]) -> Any:
        """Sends a signed transaction to every endpoint that is not backing off; the first success, or else a
        normal request."""
        answers, now = [], self._clock()
        for one in self._all:
            if not (one.error and one.rests_until > now):
                with suppress(RpcFailed, RpcUnreachable):
                    answers.append(one.ask(_SEND, params, self._limit_s(0, one, _SEND)))
        return answers[0] if answers else self._repeated(_SEND, params)[0]

    # Repeating

    def _request_fresh(self, method: str, params: list[Any]) -> Any:
        """Repeats a request while its answer lags behind what was seen. Raises EndpointLagging if it always
        does."""
        for doubt in range(self.patience.behind_tries):
            known = self._seen.head
            answer, by = self._repeated(method, params)
            lag = self._seen.lag(method, params, answer, known)
            fell = doubt < self.patience.doubts and self._seen.fell(method, params, answer)
            if not lag and not fell:
                break
            self.counters["doubted"] += 1
            by.doubted()
            if lag:
                by.fell_behind(lag)
            if doubt + 1 < self.patience.behind_tries:
                self._pause(doubt)
        if lag:
            raise self._seen.behind(by.url, lag)
        if method == RECEIPT and len(self._all) > 1:
            self._note_denial(params, answer, by)
        if answer is not None and len(self._all) > 1 and has_one_answer(method, params):
            answer = self._compared(method, params, answer, by)
        self._seen.note(method, params, answer)
        return answer

    def _repeated(self, method: str, params: list[Any]) -> tuple[Any, Watched]:
        """Requests with retries; the answer and the endpoint that gave it."""
        tries, most = self.patience.tries, max(self.patience.tries, self.patience.behind_tries)
        for attempt in range(most):
            endpoint = self._next()
            try:
                answer = endpoint.ask(method, params, self._limit_s(attempt, endpoint, method))
            except RpcFailed as failure:
                if attempt + 1 >= (most if failure.lacks_block else tries) or not _passes(failure):
                    raise
                endpoint.doubted()
            except RpcUnreachable:
                if attempt + 1 >= tries:
                    raise
            else:
                if endpoint.place:
                    self.counters["taken_over"] += 1
                return answer, endpoint
            self.counters["repeated"] += 1
            self._pause(attempt)
        raise AssertionError("the last try returns or raises")

    def _next(self) -> Watched:
        """The first endpoint in order that is not backing off; if all are, the one that is ready first."""
        now = self._clock()
        return min(self._all, key=lambda one: (max(one.rests_until - now, 0.0), one.place))

    def _limit_s(self, attempt: int, endpoint: Watched, method: str) -> float:
        usual = endpoint.usual_s.get(method)
        first = self.patience.first_limit_s
        if usual is not None:
            first = max(self.patience.usual_times * usual, self.patience.least_limit_s)
        return float(min(first * 2**attempt, self.patience.last_limit_s))

    def _pause(self, attempt: int) -> None:
        pause = min(self.patience.first_pause_s * 2**attempt, self.patience.longest_pause_s)
        with self._lock:
            part = self._random.uniform(0.5, 1.5)
        self._sleep(pause * part)

    # Comparing

    def _head(self) -> str:
        """The lowest head of the endpoints that move on, and not behind what was seen if one of them has
        that.

        Raises RpcUnreachable if none answers, or all lag.
        """
        heads: dict[Watched, int] = {}
        known = self._seen.head
        for endpoint in self._all:
            if endpoint.error and endpoint.rests_until > self._clock():
                continue
            try:
                limit_s = self._limit_s(0, endpoint, HEAD)
                head = int(endpoint.ask(HEAD, [], limit_s), 16)
            except (RpcFailed, RpcUnreachable):
                self.counters["repeated"] += 1
                continue
            endpoint.stands_at(head)
            heads[endpoint] = head
        if not heads:
            return str(self._request_fresh(HEAD, []))
        highest = max(heads.values())
        if lag := self._seen.lag(HEAD, [], hex(highest), known):
            for endpoint, head in heads.items():
                endpoint.fell_behind(known - head)
            raise self._seen.behind(" and ".join(one.url for one in heads), lag)
        moving = [
            head for one, head in heads.items() if head == highest or one.still_s() < self.patience.still_s
        ]
        believed = min(moving) if highest < known else max(min(moving), known)
        self._seen.note(HEAD, [], hex(believed))
        return hex(believed)

    def _note_denial(self, params: list[Any], receipt: Any, by: Watched) -> None:
        """Records since when an endpoint denies a receipt that another has, of a block that it has.

        That is normal for a moment. After `still_s` it is reported, and no more: what is sent waits for the
        account's nonce all the same.
        """
        other = self._other(by) if receipt is None else None
        found = None
        if other is not None:
            with suppress(RpcFailed, RpcUnreachable):
                found = other.ask(RECEIPT, params, self._limit_s(0, other, RECEIPT))
        if other is None or found is None or not self._denies(by, found):
            self._denying.pop(by.url, None)
        else:
            self._denying.setdefault(by.url, (self._clock(), other.url))

    def _compared(self, method: str, params: list[Any], answer: Any, by: Watched) -> Any:
        """The answer, confirmed by another endpoint. Raises EndpointsDisagree."""
        for attempt in range(self.patience.doubts):
            other = self._other(by)
            second = None if other is None else self._second(method, params, other)
            if other is not None and second is None and method == RECEIPT:
                if self._denies(other, answer):
                    second = _REFUSED
                elif other.still_s() < self.patience.still_s:
                    self.counters["awaited"] += 1
                    return None  # it will know the block in a moment: until then nothing is mined
            if other is None or second is None:
                self.counters["uncompared"] += 1
                return answer
            if _same(method, params, answer, second):
                return answer
            if attempt + 1 < self.patience.doubts:  # the chain may have changed between the two
                self._pause(attempt)
                answer = self._asked_again(method, params, by, answer)
                if answer is None and method == RECEIPT:
                    return None  # as on a chain that has changed meanwhile
        if method == "eth_getLogs" and (proven := self._proven(params)) is not None:
            self.counters["proven"] += 1
            return proven
        self.counters["disagreed"] += 1
        others = ", ".join(one.url for one in self._all if one is not by)
        raise EndpointsDisagree(
            f"{by.url} and {others} give different answers to {method}, so one of them is wrong; nothing was"
            " done",
            hint="compare them with a third, and leave the wrong one out of --rpc-url",
        )

    def _proven(self, params: list[Any]) -> Any:
        """Logs of a block named by its hash, as its header proves them; None if no endpoint proves them."""
        block, addresses = params[0].get("blockHash"), params[0].get("address")
        for one in self._all if block and addresses else ():
            with suppress(RpcFailed, RpcUnreachable, answer_schemas.Misshapen):
                limit_s = self.patience.last_limit_s
                header = one.ask("eth_getBlockByHash", [block, False], limit_s)
                receipts = one.ask("eth_getBlockReceipts", [block], limit_s)
                if (logs := proven_logs(block, addresses, header, receipts)) is not None:
                    return answer_schemas.check("eth_getLogs", params, logs)
        return None

    def _second(self, method: str, params: list[Any], other: Watched) -> Any:
        """Another endpoint's answer; None if it has none or does not know the block."""
        for attempt in range(self.patience.doubts):
            try:
                answer = other.ask(method, params, self._limit_s(attempt, other, method))
            except RpcUnreachable:
                answer = None
            except RpcFailed as failure:
                if not _passes(failure):
                    return _REFUSED
                answer = None
            if answer is not None:
                return answer
            self._pause(attempt)
        return None

    def _asked_again(self, method: str, params: list[Any], by: Watched, answer: Any) -> Any:
        """The same endpoint's answer now; its first answer on a transient error."""
        try:
            return by.ask(method, params, self._limit_s(0, by, method))
        except RpcFailed as failure:
            if not _passes(failure):
                raise
            return answer

    def _denies(self, other: Watched, receipt: dict[str, Any]) -> bool:
        """True if an endpoint that does not know a receipt has a block at the receipt's height, or a head at
        or beyond it."""
        number = receipt["blockNumber"]
        if other.head >= int(number, 16):
            return True
        return self._second("eth_getBlockByNumber", [number, False], other) is not None

    def _other(self, by: Watched) -> Watched | None:
        now = self._clock()
        others = [one for one in self._all if one is not by and not (one.error and one.rests_until > now)]
        return others[0] if others else None


def _passes(failure: RpcFailed) -> bool:
    """True if a node's error is transient or specific to that node."""
    text = failure.text.lower()
    if failure.data.startswith("0x") or "revert" in text or failure.rpc_code in (3, 413):
        return False
    return failure.lacks_block or any(words in text for words in _PASSING)


def _same(method: str, params: list[Any], answer: Any, second: Any) -> bool:
    """True if two answers agree; a refusal or an empty answer agrees with none."""
    if answer is None or second is _REFUSED:
        return False
    return bool(gist(method, params, answer) == gist(method, params, second))


def http_endpoints(urls: Sequence[str], patience: RetryPolicy | None = None) -> Endpoints:
    """Creates the endpoints at these URLs."""
    return Endpoints([HttpRpc(url) for url in urls], patience or RetryPolicy(fresh_s=FRESH_S, probes=PROBES))
