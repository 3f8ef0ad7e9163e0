"""Chaos test of a market: injects faults into its nodes and chain, and checks that the result is unchanged.

Contract: `strikes` is a function of the seed: when, what, whom, for how long. The expected result is computed
by `undisturbed` in this process, without a market. A storm fails if outputs differ, an honest account has
lost anything, a possible kind of fault did not occur, or the goodput (stormy rounds compared with the calm
ones before) is too low. Kinds that this machine cannot run are left out by name. Not guaranteed: that the
same instant of a process is hit twice.
"""

from __future__ import annotations

import os
import random
import re
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assay.app.devnet_record import NodeRecord, process_alive, recorded
from assay.devnet.market import NodeSpec, default_nodes, restart_chain
from assay.job.read import JobFile, parse_job_file
from assay.job.templates import LOCAL, template
from assay.protocol.errors import AssayError
from assay.protocol.types import Kind, Wei
from drills.faulty_rpc import FaultyEndpoints
from drills.lineups import told
from drills.market_run import CLIENT, Life, Process, children_of

if TYPE_CHECKING:
    from assay.node.artifacts import State
    from assay.protocol.loops import Place

TOK = 10**18
TIMES = {**LOCAL, "task": "400s", "straggler": "600s", "outer": "20s", "vote": "300s", "move": "200s"}
TIMES["window"] = "20s"
"""Longer than consecutive strikes on one node can last."""
UNSETTLED, STAKE_TOK = 16, 2_130
"""Rounds that a false accusation holds up without stopping the others, which take about as long as its
longest move; and the stake that so many need (docs/protocol.md, 3.1)."""
BUDGET_A_ROUND = 130
"""Budget in tokens per round."""
NODES = (3, 3, 2)
"""Numbers of solvers, verifiers, whistleblowers."""
LIAR, ACCUSER = "solver-1", "whistle-2"
"""Cheats: first a solver lies about a weight, later an honest task is accused."""
CHEAT_EVERY = 10
CALM_ROUNDS = 3
"""Rounds before the storm; all but the first, which loads and compiles, set the calm pace."""
LOOK_S = 0.25
SPIKE_WEI = 200 * 10**9
"""A base fee about two hundred times the usual, below the nodes' maximum."""
JUMP_S = 20
DEEPEST = 6
"""Depth of a reorganisation in blocks: within the finality that nodes assume."""
Ends = Callable[[], object]
NEVER = {"read-only disk": "a file system in use can be remounted only with its machine's administrator"}


@dataclass(frozen=True)
class Strike:
    """A fault: `at_s` seconds after the storm began, for `lasts_s`; `node`: "" for the chain."""

    at_s: float
    kind: str
    node: str
    lasts_s: float


@dataclass(frozen=True)
class Fault:
    """A kind of fault.

    `begin` starts it and returns a function that ends it, or None if it hit nobody. `lasts_s`: minimum and
    maximum; `beside`: it affects one of two endpoints; `lacks`: why this machine cannot run it.
    """

    begin: Callable[[Storm, Strike], Ends | None]
    lasts_s: tuple[float, float] = (0.0, 0.0)
    of_chain: bool = False
    beside: bool = False
    lacks: Callable[[], str] = lambda: ""


def strikes(seed: int, names: Sequence[str], every_s: float) -> Iterator[Strike]:
    """The endless storm, by time. Every kind comes once before one comes twice."""
    rng, at_s = random.Random(seed), 0.0
    while True:
        kinds = sorted(name for name, fault in FAULTS.items() if not fault.lacks())
        rng.shuffle(kinds)
        for kind in kinds:
            at_s += rng.expovariate(1 / every_s)
            among = [name for name in names if not FAULTS[kind].beside or len(ends_of(name)) > 1]
            node = "" if FAULTS[kind].of_chain else rng.choice(among)
            yield Strike(at_s, kind, node, rng.uniform(*FAULTS[kind].lasts_s))


def ends_of(name: str) -> Sequence[str]:
    """Endpoints of a process: every second one has two, of which the first fails alone."""
    names = [*(node.name for node in default_nodes(*NODES)), CLIENT]
    return ("a", "b") if names.index(name) % 2 else ("a",)


def schedule_of(seed: int, every_s: float, count: int = 100) -> Iterator[str]:
    """The beginning of a storm, one line per strike."""
    for strike in islice(strikes(seed, [node.name for node in lineup()], every_s), count):
        yield f"{strike.at_s:8.1f} s  {strike.node or 'chain':<12} {strike.kind:<24} {strike.lasts_s:4.0f} s"


def left_out() -> dict[str, str]:
    """Kinds that cannot run here, and why."""
    found = {name: fault.lacks() for name, fault in FAULTS.items()}
    return {name: why for name, why in found.items() if why} | NEVER


# -- kinds of faults


def _process(storm: Storm, strike: Strike) -> Process | None:
    process = storm.processes[strike.node]
    return process if process_alive(process.pid) else None


def _is_over() -> None:
    """Ends a fault that ends by itself."""


def _kill(storm: Storm, strike: Strike) -> Ends | None:
    process = _process(storm, strike)
    return _is_over if process is not None and process.kill() else None


def _kill_worker(storm: Storm, strike: Strike) -> Ends | None:
    process = _process(storm, strike)
    workers = children_of(process.pid) if process is not None else []
    struck = process is not None and workers and process.kill(storm.rng.choice(workers))
    return _is_over if struck else None


def _signalled(pids: Sequence[int], number: int) -> bool:
    there = False
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)
            there = True
    return there


def _sleep(storm: Storm, strike: Strike) -> Ends | None:
    """Suspends the node and its workers, like a closed laptop."""
    process = _process(storm, strike)
    pids = [process.pid, *children_of(process.pid)] if process is not None else []
    return (lambda: _signalled(pids, signal.SIGCONT)) if _signalled(pids, signal.SIGSTOP) else None


def _full_disk(storm: Storm, strike: Strike) -> Ends | None:
    """Makes the node's files unable to grow."""
    import resource

    process = _process(storm, strike)
    if process is None:
        return None

    def limit(most: int | None) -> None:
        for pid in (process.pid, *children_of(process.pid)):
            with suppress(ProcessLookupError, PermissionError):
                _, hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)
                resource.prlimit(pid, resource.RLIMIT_FSIZE, (hard if most is None else most, hard))

    limit(0)
    return lambda: limit(None)


def _flip(storm: Storm, strike: Strike) -> Ends | None:
    """Flips a bit in a file of blocks, trained segments or replays."""
    home = storm.home / "nodes" / strike.node
    parts = ("store/blocks", "tasks", "replays/states")
    paths = (path for part in parts for path in (home / part).rglob("*"))
    with suppress(OSError):  # deleted meanwhile
        files = sorted(path for path in paths if path.is_file() and path.stat().st_size)
        if files:
            path = storm.rng.choice(files)
            at = storm.rng.randrange(path.stat().st_size)
            with path.open("r+b") as file:
                file.seek(at)
                (byte,) = file.read(1)
                file.seek(at)
                file.write(bytes([byte ^ 1 << storm.rng.randrange(8)]))
            return _is_over
    return None


def _over(fault: str, ends: int) -> Callable[[Storm, Strike], Ends | None]:
    """Fault on this many of a node's endpoints."""

    def begin(storm: Storm, strike: Strike) -> Ends | None:
        names = [f"{strike.node}/{end}" for end in ends_of(strike.node)[:ends]]
        storm.weather.over |= dict.fromkeys(names, fault)
        return lambda: [storm.weather.over.pop(name, None) for name in names]

    return begin


def _reorganise(storm: Storm, strike: Strike) -> Ends | None:
    storm.rpc.request("anvil_reorg", [storm.rng.randint(1, DEEPEST), []])
    return _is_over


def _stop_chain(storm: Storm, strike: Strike) -> Ends | None:
    pids = [storm.chain_pid()]
    return (lambda: _signalled(pids, signal.SIGCONT)) if _signalled(pids, signal.SIGSTOP) else None


def _restart_chain(storm: Storm, strike: Strike) -> Ends | None:
    found = recorded(storm.home)
    assert found is not None
    restart_chain(storm.app, found)
    return _is_over


def _jump(storm: Storm, strike: Strike) -> Ends | None:
    storm.rpc.request("evm_increaseTime", [JUMP_S])
    storm.rpc.request("evm_mine", [])
    return _is_over


def _spike(storm: Storm, strike: Strike) -> Ends | None:
    """Raises fees at once; they fall by an eighth per block."""
    for address in storm.addresses.values():
        storm.rpc.request("anvil_setBalance", [address, hex(100 * TOK)])
    storm.rpc.request("anvil_setNextBlockBaseFeePerGas", [hex(SPIKE_WEI)])
    return _is_over


def _no_prlimit() -> str:
    return "" if sys.platform == "linux" else "needs Linux: it limits another process"


FAULTS: dict[str, Fault] = {
    "kill": Fault(_kill),
    "kill a worker": Fault(_kill_worker),
    "sleep": Fault(_sleep, (5.0, 30.0)),
    "full disk": Fault(_full_disk, (5.0, 20.0), lacks=_no_prlimit),
    "flipped bit": Fault(_flip),
    "cut off from the chain": Fault(_over("drop", 2), (5.0, 30.0)),
    "slow endpoint": Fault(_over("delay", 2), (5.0, 20.0)),
    "rate limit": Fault(_over("limit", 2), (5.0, 30.0)),
    "garbled endpoint": Fault(_over("garbled", 1), (5.0, 30.0)),
    "endpoint behind": Fault(_over("stale", 1), (5.0, 30.0)),
    "lying endpoint": Fault(_over("lie", 1), (5.0, 20.0), beside=True),
    "reorganisation": Fault(_reorganise, of_chain=True),
    "chain stops": Fault(_stop_chain, (3.0, 15.0), of_chain=True),
    "chain restarts": Fault(_restart_chain, of_chain=True),
    "clock jump": Fault(_jump, of_chain=True),
    "fee spike": Fault(_spike, of_chain=True),
}
"""All kinds but the cheat."""


# -- the storm


def job_text(rounds: int, steps: int) -> str:
    """Job file of a small network on scikit-learn's digits, in two shards."""
    text = template("mlp", source="digits", rounds=rounds, times=TIMES)
    for name, value in (
        ("steps_per_round", str(steps)),
        ("max_unsettled_rounds", str(UNSETTLED)),
        ("solver_stake", f'"{STAKE_TOK}tok"'),
    ):
        text = re.sub(rf"(?m)^{name} = [^ \n]*", f"{name} = {value}", text)
    return text


def lineup() -> list[NodeSpec]:
    """Eight nodes with stakes for many rounds. The third solver waits for a better price, until a shard is
    free."""
    own = {"solver-3": ("--waits",)}
    return [
        replace(
            told(node, *own.get(node.name, ())),
            tokens=Wei(80 * node.tokens),
            stake=Wei(40 * node.stake),
        )
        for node in default_nodes(*NODES)
    ]


def undisturbed(body: JobFile) -> list[str]:
    """Output roots of the job's outer claims, one per round, computed here."""
    from assay.app.resource_limits import RESOURCE_LIMITS
    from assay.app.wiring import open_storage
    from assay.job.build import build
    from assay.job.terms import terms_of
    from assay.node.artifacts import load_job, publish_job
    from assay.node.engine import Engine, ExecutorKind
    from assay.node.work import Work, put_together
    from assay.program.state import state_root
    from assay.protocol.types import ZERO_ADDRESS

    files = build(body)
    with tempfile.TemporaryDirectory() as folder:
        storage = open_storage(Path(folder))
        terms = terms_of(body, publish_job(storage.blocks, files), bytes(32), ZERO_ADDRESS, 0)
        loaded = load_job(storage.blocks, terms, RESOURCE_LIMITS)
        storage.close()
    work = Work(terms, loaded, engine=Engine("cpu", ExecutorKind.EAGER))
    genesis = {Kind.TASK: files.genesis, Kind.OUTER: files.outer_genesis}
    made: dict[Place, State] = {}
    roots = []
    for round_ in range(terms.rounds):
        tasks = [(Kind.TASK, round_, shard) for shard in range(terms.shards)]
        for place in (*tasks, (Kind.OUTER, round_, 0)):
            state = put_together(
                terms, place, lambda *_: True, lambda at, slot: made[at][slot], genesis[place[0]]
            )
            for segment in range(work.segments(place[0])):
                state = work.run(*place, segment, state)
            made[place] = state
        roots.append(state_root(made[Kind.OUTER, round_, 0]).hex())
        for place in [place for place in made if place[1] < round_]:
            del made[place]
    return roots


def storm_of(home: Path, seed: int, rounds: int, steps: int, every_s: float, **options: Any) -> Storm:
    """The storm for a seed."""
    text = job_text(rounds, steps)
    expected = undisturbed(parse_job_file(text, "the storm's job"))
    budget = Wei(BUDGET_A_ROUND * rounds * TOK)
    cheats = (LIAR, ACCUSER)[: rounds // CHEAT_EVERY]
    parts = {"seed": seed, "every_s": every_s, "expected": expected, **options}
    return Storm(home, text, lineup(), budget, cheats, limit_s=1_200.0 + 120.0 * rounds, **parts)


@dataclass
class Storm(Life):
    """A life under a storm. `expected`: output roots by round of an undisturbed run; `least`: required
    goodput."""

    seed: int = 1
    every_s: float = 10.0
    hours: float | None = None
    expected: Sequence[str] = ()
    least: float = 0.0
    say: Callable[[str], object] = print
    struck: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.rng = random.Random(self.seed)
        self._began = 0.0
        self._coming: Iterator[Strike] = iter(())
        self._next: Strike | None = None
        self._under_way: dict[str, threading.Timer] = {}
        """Running strike of each node or the chain."""
        self._rounds: list[float] = []
        """Times at which rounds were seen to end."""
        self._plots: dict[str, tuple[str, ...]] = {}
        """Options of the cheats."""
        self._cheated = 0

    # -- how its processes reach the chain

    def chain_begun(self, url: str) -> None:
        self.weather = FaultyEndpoints(url, self.seed)
        self.weather.__enter__()

    def endpoints(self, name: str) -> Sequence[str]:
        return [self.weather.path(f"{name}/{end}") for end in ends_of(name)]

    def chain_pid(self) -> int:
        """Pid of the chain's process."""
        found = recorded(self.home)
        assert found is not None
        return found.chain_pid

    def command(self, node: NodeRecord, port: int) -> list[str]:
        words, plot = super().command(node, port), self._plots.get(node.name, ())
        if plot:
            words[words.index("assay")] = "drills"
        return [*words, *plot]

    def stop(self) -> None:
        for timer in list(self._under_way.values()):
            timer.cancel()
            timer.function()
        super().stop()
        if hasattr(self, "weather"):
            self.weather.__exit__()

    # -- what happens

    def strike(self) -> None:
        time.sleep(LOOK_S)
        now, round_ = time.monotonic(), self._round()
        while len(self._rounds) < round_:
            self._rounds.append(now)
            self.say(f"round {len(self._rounds) - 1} is over")
        if len(self._rounds) < CALM_ROUNDS:
            return
        if self._next is None:
            names = [spec.name for spec in self.specs]
            self._coming, self._began = strikes(self.seed, names, self.every_s), now
            self._next = next(self._coming)
        if self.hours is not None and now - self._began > 3_600 * self.hours:
            self._halt()
            return
        self._cheat(round_)
        if now - self._began >= self._next.at_s:
            self._begin(self._next)
            self._next = next(self._coming)

    def _begin(self, strike: Strike) -> None:
        """Starts a strike; one at a time per node or chain."""
        if strike.node in self._under_way:
            return
        try:
            end = FAULTS[strike.kind].begin(self, strike)
        except AssayError as error:
            self.say(f"{strike.kind} did not come about: {error.message}")
            return
        if end is None:
            return
        self.struck[strike.kind] += 1
        whom, long = strike.node or "the chain", f", {strike.lasts_s:.0f} s" if strike.lasts_s else ""
        self.say(f"{time.monotonic() - self._began:7.1f} s: {strike.kind}, {whom}{long}")
        if strike.lasts_s:
            self._end_later(strike, end)

    def _end_later(self, strike: Strike, end: Ends) -> None:
        """Ends a strike in a thread of its own: it may wait for a stopped chain."""

        def over() -> None:
            end()
            self._under_way.pop(strike.node, None)

        timer = threading.Timer(strike.lasts_s, over)
        timer.daemon = True
        self._under_way[strike.node] = timer
        timer.start()

    def _round(self) -> int:
        return max((job.progress.round for job in self.jobs()), default=len(self._rounds))

    def _halt(self) -> None:
        """Halts the job once the storm's time is over; its process closes it."""
        jobs = self.jobs()
        if jobs and not jobs[0].progress.halted and not jobs[0].progress.closed:
            connection = self.app.connect(CLIENT)
            connection.writer.halt(f"storm/halt/{self.seed}", self.job_id())
            self.say("the hours are over: the client halts the job")

    def _cheat(self, round_: int) -> None:
        """Every tenth round somebody cheats in the next one."""
        number = (round_ + 1) // CHEAT_EVERY
        if round_ + 1 != number * CHEAT_EVERY or number <= self._cheated:
            return
        first, self._cheated = number == 1, number
        who = LIAR if first else ACCUSER
        plot = ("--fault", f"{round_ + 1}:9:0:5") if first else ("--accuse", f"{round_ + 1}:1")
        self._plots = {who: plot}
        self.processes[who].kill()
        self.struck["cheat"] += 1
        self.say(f"{who} is told {' '.join(plot)}")

    # -- what it came to

    def unsound(self) -> list[str]:
        found, roots, jobs = super().unsound(), self.model(), self.jobs()
        if roots != list(self.expected[: len(roots)]) or len(roots) < jobs[0].progress.settled_rounds:
            found.append(f"the outputs are others than those of an undisturbed run: {roots}")
        kinds = {name for name, fault in FAULTS.items() if not fault.lacks()}
        if missed := sorted(kinds - set(self.struck)):
            found.append(f"never struck: {', '.join(missed)}")
        if self.goodput() < self.least:
            found.append(f"goodput {self.goodput():.1%}, and {self.least:.0%} is asked for")
        return found

    def goodput(self) -> float:
        """Time of the stormy rounds at the calm pace, divided by their real time."""
        if len(self._rounds) <= CALM_ROUNDS:
            return 0.0
        pace = (self._rounds[CALM_ROUNDS - 1] - self._rounds[0]) / (CALM_ROUNDS - 1)
        stormy = self._rounds[CALM_ROUNDS - 1 :]
        return pace * (len(stormy) - 1) / (stormy[-1] - stormy[0])
