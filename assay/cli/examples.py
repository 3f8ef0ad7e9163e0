"""Examples of commands for `--help` and docs/commands.md, and the start page."""

from __future__ import annotations

START = (
    "mkdir try && cd try && assay devnet up",
    "assay job init job.toml --template mlp --data digits",
    "assay job post job.toml --account client --budget 150tok",
    "assay job watch latest  # in another terminal: the line before serves the job's files",
)
"""Commands that run a job on a local market, in order."""

EXAMPLES: dict[str, tuple[str, ...]] = {
    "assay": START,
    "assay account": ("assay account new alice", "assay account use alice", "assay account balance"),
    "assay account new": (
        "assay account new alice",
        "assay account new ci --password-file secret.txt",
    ),
    "assay account use": ("assay account use alice",),
    "assay account import": ("assay account import alice < key.txt",),
    "assay account export": (
        "assay account export alice --out alice.json",
        "assay account export alice --private-key --yes",
    ),
    "assay account balance": ("assay account balance", "assay account balance alice --json"),
    "assay config": ("assay config show --origin", "assay config show --network testnet"),
    "assay crew": (
        "assay crew plan job.toml --members 3",
        "assay crew key alice.pem",
        "assay crew run crew.toml job.toml --key alice.pem --out part.safetensors",
        "assay crew invite invitation.json latest job.toml --members alice,bob,carol",
        "assay crew join invitation.json job.toml",
        "assay crew form invitation.json --consent CONSENT --consent CONSENT",
        "assay crew solve invitation.json crew.toml --key alice.pem",
        "assay crew status invitation.json",
        "assay crew replace invitation.json next.json bob=dave",
    ),
    "assay dashboard": ("assay dashboard --open",),
    "assay devnet": (
        "assay devnet up --solvers 2 --verifiers 2",
        "assay devnet status",
        "assay devnet down --wipe",
    ),
    "assay devnet up": ("assay devnet up --solvers 1 --verifiers 2 --whistleblowers 0",),
    "assay devnet warp": ("assay devnet warp 8d",),
    "assay dispute": ("assay dispute ls", "assay dispute explain 1", "assay dispute play 1 --account alice"),
    "assay doctor": ("assay doctor", "assay doctor --role solver --account gpu"),
    "assay job": (
        "assay job init job.toml",
        "assay job validate job.toml",
        "assay job post job.toml --budget 150tok",
        "assay job watch latest",
        "assay job fetch latest --out model",
    ),
    "assay job init": (
        "assay job init job.toml --template mlp --data digits",
        "assay job init job.toml --from my_model.py:build --rounds 4",
        "assay job init job.toml --data my_texts/ --algorithm diloco-4bit --held-out 64",
        "assay job init eval.toml --template eval --weights model",
    ),
    "assay job validate": ("assay job validate job.toml",),
    "assay job estimate": ("assay job estimate job.toml",),
    "assay job post": (
        "assay job post job.toml --budget 150tok --name first-try",
        "assay job post job.toml --budget 150tok --dry-run",
    ),
    "assay job serve": ("assay job serve --account client",),
    "assay job ls": ("assay job ls", "assay job ls --json"),
    "assay job name": ("assay job name latest first-try",),
    "assay job show": ("assay job show latest", "assay job show first-try"),
    "assay job watch": ("assay job watch latest", "assay job watch first-try --metrics runs/first"),
    "assay job fund": ("assay job fund latest 50tok --account client",),
    "assay job halt": ("assay job halt latest --account client",),
    "assay job fetch": ("assay job fetch latest --out model",),
    "assay job verify": (
        "assay job verify model",
        "assay job verify model --rpc",
        "assay job verify model --replay all",
    ),
    "assay job eval": ("assay job eval model job.toml",),
    "assay job export": ("assay job export model --out transformers",),
    "assay job sample": ("assay job sample model --prompt import",),
    "assay market": ("assay market offers", "assay market offers --json"),
    "assay solver": (
        "assay solver bench",
        "assay stake deposit 1000tok --role solver --account gpu",
        "assay solver run --account gpu",
        "assay solver earnings gpu",
    ),
    "assay solver bench": ("assay solver bench --device cuda",),
    "assay solver run": ("assay solver run --account gpu --device cuda:0",),
    "assay solver why": ("assay solver why latest --account gpu",),
    "assay solver earnings": ("assay solver earnings gpu",),
    "assay solver release": ("assay solver release latest --account gpu --later",),
    "assay stake": (
        "assay stake deposit 1000tok --role solver --account gpu",
        "assay stake unbond 400tok --role solver --account gpu",
        "assay stake withdraw --role solver --account gpu",
    ),
    "assay stake ls": ("assay stake ls gpu",),
    "assay token": ("assay token faucet gpu 2000tok", "assay token withdraw 400tok --account gpu"),
    "assay verifier": ("assay verifier classes", "assay verifier run --join --account attest"),
    "assay verifier run": ("assay verifier run --join --account attest",),
    "assay whistle": ("assay whistle scan latest", "assay whistle run --account watch"),
    "assay whistle scan": ("assay whistle scan latest",),
}
"""By a command's full name."""
