"""Replaying a job: every claim of a receipt, its votes, and what became of it (protocol.md, 3 to 6)."""

import json
import struct
from collections import Counter
from dataclasses import dataclass, field
from hashlib import sha256
from math import prod

import numpy as np
from files import Missing, Wrong, canonical, cid_of, keccak256, need, struct_of, tensor_root
from files import tree_root as root_of
from instructions import DTYPES, Context, decode, slot_roots, step

TASK, OUTER = 0, 1
OWN, OUT, GENESIS, PRESENT = range(4)
NO_SLOT = 2**16 - 1
COMMITTED, SEEDED, ACCEPTED, SETTLED, CONVICTED, VOID = range(1, 7)
PROVEN = ("arithmetic", "output")
"""How a game ends that shows the program's own arithmetic; others end by the clock or by a move's form."""


@dataclass
class Claim:
    id: bytes
    status: dict
    roots: list
    votes: list
    left_out: bool
    order: int
    fields: dict
    states: dict = field(default_factory=dict)
    """State at a segment's end (0: the input), where it is known to have the claim's root."""
    fault: int | None = None
    """First segment that is false; -1: the input is; None: nothing is."""
    checked: bool = False

    def __getattr__(self, name):
        return self.fields[name]

    @property
    def place(self):
        return self.kind, self.round, self.shard

    def __str__(self):
        return f"{'outer claim' if self.kind else 'task'} {self.round}/{self.shard} ({self.id.hex()[:8]})"


class Job:
    """A receipt, its job's files, and what a replay of them finds."""

    def __init__(self, folder, blocks):
        self.folder, self.blocks, self.counts = folder, blocks, Counter()
        self.wrong, self.undecided, self.notes = [], [], []
        self.receipt = canonical((folder / "receipt.json").read_bytes())
        need(self.receipt["schema"] == "assay/receipt/1", "a receipt of another format")
        encoded, self.terms = bytes.fromhex(self.receipt["terms"]), struct_of("Terms", self.receipt["terms"])
        self.loops = [self.terms["loops"], self.terms["outerLoops"]]
        for loop in [*self.terms["loops"], *self.terms["outerLoops"]]:
            loop["segments"] = loop["steps"] // loop["segmentSteps"]
        chain, jobs = self.receipt["chain"], bytes.fromhex(self.receipt["chain"]["contracts"]["Jobs"][2:])
        head = chain["id"].to_bytes(32, "big") + bytes(12) + jobs + (96).to_bytes(32, "big")
        self.id = keccak256(head + encoded[32:])  # F6.1
        need(self.id.hex() == self.receipt["job"], "the job's id is not its terms' hash")
        self.claims = [self._claim(i, entry) for i, entry in enumerate(self.receipt["claims"])]
        self.decided = [d for d in self.receipt["disputes"] if d["decided"]]
        ballots = [d for d in self.decided if d["ballot"] and d["challengerWon"]]
        self.convicted = {(bytes.fromhex(d["claim"]), bytes.fromhex(d["defender"][2:])) for d in ballots}
        self._files()

    def _claim(self, order, entry):
        encoded = bytes.fromhex(entry["claim"])
        need(keccak256(encoded).hex() == entry["id"], "a claim's id is not its hash")
        fields, roots = struct_of("Claim", entry["claim"]), [bytes.fromhex(root) for root in entry["roots"]]
        need(fields["jobId"] == self.id, "a claim of another job")
        segments = sum(loop["segments"] for loop in self.loops[fields["kind"]])
        need(len(roots) == segments + 1, "another number of roots")
        said = fields["inputRoot"], fields["outputRoot"], fields["segmentsRoot"]
        need(said == (roots[0], roots[-1], root_of(roots)), "a claim's roots are not its own (1.6)")
        votes = [struct_of("Vote", vote["vote"]) for vote in entry["votes"]]
        for vote, told in zip(votes, entry["votes"], strict=True):
            vote["traces"] = [bytes.fromhex(trace) for trace in told["traces"]]
        self.counts["ids"] += 1
        status = struct_of("ClaimStatus", entry["status"])
        return Claim(bytes.fromhex(entry["id"]), status, roots, votes, entry["leftOut"], order, fields)

    def _files(self):
        """The job's files, out of its blocks, each led to its root (formats.md, section 4)."""
        t, receipt = self.terms, self.receipt
        for name, digest in receipt["files"].items():
            need(sha256((self.folder / name).read_bytes()).hexdigest() == digest, f"{name} has changed")
        body = (self.folder / "manifest.json").read_bytes()
        need(sha256(body).digest() == t["manifest"], "the receipt's manifest is another")
        self.manifest = canonical(body)
        need(self.manifest["schema"] == "assay/job/1" and t["slices"] == 1, "another format, or outer slices")
        self.programs = [self._programs("inner", TASK, "slots"), self._programs("outer", OUTER, "outerSlots")]
        size = t["records"] * t["recordSize"]
        raw = self.blocks.file(self.manifest["dataset"]["cid"], size) if size else b""
        need(len(raw) == size, "a dataset of another length")
        records = [raw[at : at + t["recordSize"]] for at in range(0, size, t["recordSize"] or 1)]
        root = root_of([sha256(b"\0" + record).digest() for record in records]) if records else bytes(32)
        need(root == t["datasetRoot"], "another dataset")
        self.dataset = np.frombuffer(raw, np.uint8).reshape(t["records"], t["recordSize"])
        places = zip(self.programs, ("genesis", "outerGenesis"), strict=True)
        self.genesis = [self._fetched(p[0], self.manifest[x]["cid"], t[x + "Root"]) for p, x in places]

    def _programs(self, name, kind, slots):
        found, t = [], self.terms
        for i, (entry, loop) in enumerate(zip(self.manifest[name], self.loops[kind], strict=True)):
            data, file = self.blocks.file(entry["cid"], 1 << 27), f"{name}-{i}" if i else name
            need(data == (self.folder / f"{file}.program").read_bytes(), f"another {name} program")
            program = decode(data)
            said = program.root, len(program.nodes), program.slots, program.params
            need(said == (loop["root"], loop["nodes"], t[slots], t["params"]), name)
            self.counts["nodes"] += len(program.nodes)
            found.append(program)
        return found

    def _fetched(self, program, cid, root):
        sizes = [prod(x.shape) * DTYPES[x.dtype].itemsize for x in program.nodes[: program.slots]]
        return program.load(self.blocks.state(cid, root, sizes))

    def stood(self, place, before):
        """The claim that stood at a place when claim number `before` was committed; None: it is missing."""
        found = [c for c in self.claims[:before] if c.place == place and not c.left_out and self.passed(c)]
        return found[-1] if found else None

    def passed(self, claim):
        """Whether it was ever accepted: an outer claim at once, a task when its seats are over (4.3, 4.7)."""
        accepted = claim.kind == OUTER or claim.status["phase"] in (ACCEPTED, SETTLED)
        over = all(vote["shown"] or vote["gone"] for vote in claim.votes)
        return accepted or (over and claim.status["seed"] != bytes(32))

    def input_of(self, claim):
        """The state that a claim must start from (4.4)."""
        r, order, kind, state = claim.round, claim.order, claim.kind, []
        past = (self.stood((kind, at, claim.shard), order) for at in range(r - 1, max(r - 129, -1), -1))
        latest = next((before for before in past if before is not None), None)
        genesis, own = self.genesis[kind], self.state(latest) if latest else self.genesis[kind]
        for link in self.terms["outerLinks" if kind else "links"]:
            origin, first, count = link["origin"], link["first"], link["count"]
            first += claim.shard // link["div"] % link["mod"] * link["stride"] if origin == OUT else 0
            for k in range(link["times"]):
                at, then = len(state), r - link["lag"]
                unit = 0 if link["source"] else (claim.shard + link["shift"] + k) % self.terms["shards"]
                source = self.stood((link["source"], then, unit), order) if origin in (OUT, PRESENT) else None
                if origin == OWN:
                    state += own[at : at + count]
                elif origin == GENESIS or then < 0:
                    state += genesis[at : at + count]
                elif origin == PRESENT:
                    state.append(np.array(source is not None))
                elif source is not None:
                    state += self.state(source)[first : first + count]
                else:
                    need(link["source"] == TASK, "a claim on a round that is not closed")
                    there, start = (genesis, at) if link["otherwise"] == NO_SLOT else (own, link["otherwise"])
                    state += there[start : start + count]
        return state

    def state(self, claim, leaf=-1):
        """The state at a leaf of a claim's segments tree: replayed, or as it is published (F5.1)."""
        leaf %= len(claim.roots)
        if leaf not in claim.states:
            listed = canonical(self.blocks.get(cid_of(claim.manifest))[1])
            need(listed["schema"] == "assay/checkpoint/1", "a checkpoint manifest of another format")
            need(index := listed["states"][leaf], "a state that is not published")
            claim.states[leaf] = self._fetched(self.programs[claim.kind][0], index, claim.roots[leaf])
        return claim.states[leaf]

    def run(self, claim, segment, keys=()):
        """The state at a segment's end from the claim's own at its start; traces of the last step by key."""
        state, traces, loops, number = claim.states[segment], [], self.loops[claim.kind], 0
        while segment >= loops[number]["segments"]:
            segment, number = segment - loops[number]["segments"], number + 1
        by = loops[number]["slowBy"] if claim.shard >= loops[number]["slowFrom"] else 1
        steps, program = loops[number]["segmentSteps"] // by, self.programs[claim.kind][number]
        first = claim.round * loops[number]["steps"] // by + segment * steps  # 2.6
        for i in range(steps):
            at = Context(self.dataset, self.terms["seed"], claim.shard, first + i)
            state, traces = step(program, state, at, keys if i == steps - 1 else ())
            self.counts["steps"] += 1
        return state, traces

    def samples(self, seed, verifier):  # 4.6
        drawn, before = [], 0
        for number, loop in enumerate(self.loops[TASK]):
            own, j, segments = [], 0, loop["segments"]
            while len(own) < loop["samples"]:
                digest = sha256(b"assay/sample/1" + seed + verifier + struct.pack(">II", number, j)).digest()
                at, j = int.from_bytes(digest[:8], "big") % segments, j + 1
                own += [] if at in own else [at]
            drawn, before = drawn + [before + at for at in own], before + segments
        return drawn

    def check(self, claim):
        """Input, segments and votes of a claim; faults go into `claim.fault`."""
        wanted = self.input_of(claim)
        self.counts["inputs"] += 1
        if root_of(slot_roots(wanted)) == claim.roots[0]:
            claim.states[0] = wanted
        else:
            claim.fault = -1
        asked, seed = {}, claim.status["seed"]
        for vote in claim.votes if claim.kind == TASK else ():
            if vote["traces"]:  # it called the claim valid, whatever became of it
                need(root_of(vote["traces"]) == vote["tracesRoot"], "a vote's traces are not its own")
                key = sha256(b"assay/key/1" + vote["verifier"] + seed).digest()
                drawn = self.samples(seed, vote["verifier"])
                need(len(drawn) == len(vote["traces"]), "another number of traces")
                for segment, trace in zip(drawn, vote["traces"], strict=True):
                    asked.setdefault(segment, []).append((key, trace, vote))
        for segment in range(len(claim.roots) - 1):
            self._segment(claim, segment, asked.get(segment, []))
        claim.checked = True

    def _segment(self, claim, segment, asked):
        try:
            self.state(claim, segment)
        except (Missing, Wrong) as error:
            self.notes.append(f"{claim}: segment {segment} cannot be had after a fault ({error})")
            return
        state, traces = self.run(claim, segment, [key for key, *_ in asked])
        self.counts["roots"] += 1
        if root_of(slot_roots(state)) == claim.roots[segment + 1]:
            claim.states[segment + 1] = state
        elif claim.fault is None:
            claim.fault = segment
        for true, (_, trace, vote) in zip(traces, asked, strict=True):
            self.counts["traces"] += 1
            lies = vote.setdefault("lies", [])
            if trace != true:
                lies.append(segment)
            if claim.fault == segment:
                self.notes.append(f"0x{vote['verifier'].hex()} passed false segment {segment} of {claim}")

    def judge(self):
        """Whether each claim ended as its replay says, and each decided game too."""
        by_id = {claim.id: claim for claim in self.claims}
        disputes = [(by_id[bytes.fromhex(d["claim"])], d) for d in self.decided]
        withheld = {d["claim"] for d in self.receipt["demands"] if d["outcome"] == "withheld"}
        for claim in self.claims:
            if not claim.checked:
                self.notes.append(f"{claim}: ended by nobody's fault, or not yet; not replayed")
                continue
            lost = [d for c, d in disputes if c is claim and not d["ballot"] and d["challengerWon"]]
            self._verdict(claim, lost, claim.id.hex() in withheld)
            for vote in claim.votes:
                self._vote(claim, vote)
        for claim, dispute in disputes:
            self.counts["games"] += 1
            said = f"game {dispute['game']} on {claim}"
            if dispute["ballot"] or not claim.checked or dispute["reason"] not in PROVEN:
                self.notes.append(f"{said}: {dispute['reason']}")
            elif claim.fault is None or dispute["segment"] < claim.fault:
                self.wrong.append(f"{said} was won on segment {dispute['segment']}, which replays")

    def _verdict(self, claim, lost, withheld):
        self.counts["verdicts"] += 1
        if claim.status["phase"] == SETTLED and claim.fault is not None:
            self.wrong.append(f"{claim} is settled and false in segment {claim.fault}")
        if claim.status["phase"] == CONVICTED:
            form = withheld or any(d["reason"] not in PROVEN for d in lost)
            where = {None: "nothing", -1: "its input"}.get(claim.fault, f"segment {claim.fault}")
            unfounded = claim.fault is None and not form
            (self.wrong if unfounded else self.notes).append(f"{claim} is convicted; false in it: {where}")

    def _vote(self, claim, vote):
        if "lies" not in vote:
            return
        self.counts["votes"] += 1
        who = "0x" + vote["verifier"].hex()
        convicted = (claim.id, vote["verifier"]) in self.convicted
        if vote["lies"]:
            known = convicted or claim.status["phase"] == CONVICTED
            line = f"{who} vouched for segments {vote['lies']} of {claim} with a false trace"
            (self.notes if known else self.wrong).append(line)
        elif convicted and claim.fault is None:
            self.wrong.append(f"{who} lost a vote on {claim} that is true")

    def check_model(self):
        """The parameters are those of the last settled outer claim."""
        raw = (self.folder / "model.safetensors").read_bytes()
        size = struct.unpack("<Q", raw[:8])[0]
        header, data = json.loads(raw[8 : 8 + size]), raw[8 + size :]
        names = dict(enumerate(self.manifest["slots"][: self.terms["params"]]))
        linked = [(x, j) for x in self.terms["links"] for j in range(x["count"] * x["times"])]
        for slot, (x, j) in zip(tuple(names), linked, strict=False):  # what other shards read in its place
            parts = range(1, x["mod"] if x["origin"] == OUT and x["source"] else 1)
            names |= {x["first"] + j + part * x["stride"]: f"{names[slot]}@{part}" for part in parts}
        place = OUTER, self.receipt["rounds"] - 1, 0
        (last,) = [c for c in self.claims if c.place == place and c.status["phase"] == SETTLED]
        roots = [tensor_root(data[slice(*header[name]["data_offsets"])]) for _, name in sorted(names.items())]
        need(roots == slot_roots(self.state(last)[: len(names)]), "another model")
        self.counts["parameters"] += len(names)

    def replay(self, say):
        for claim in self.claims:
            if claim.status["phase"] in (ACCEPTED, SETTLED, CONVICTED):
                try:
                    self.check(claim)
                    say(f"{claim}: " + ("as claimed" if claim.fault is None else f"false ({claim.fault})"))
                except (Missing, Wrong) as error:
                    self.undecided.append(f"{claim} cannot be replayed: {error}")
        settled = {c.place for c in self.claims if c.status["phase"] == SETTLED}
        for r in range(self.receipt["rounds"]):
            tasks = sum((TASK, r, k) in settled for k in range(self.terms["shards"]))
            need((OUTER, r, 0) in settled and tasks >= self.terms["minShards"], f"round {r} is not settled")
        self.judge()
        self.check_model()
