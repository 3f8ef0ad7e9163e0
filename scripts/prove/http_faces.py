"""The HTTP faces against schemathesis: a node's, and the dashboard's.

    python scripts/prove/http_faces.py [--examples 500]

Every operation is called with generated values, good and bad, through ASGI. No answer may be a server's error
(5xx), but where the operation says that a service is unavailable, and none may hold what is no block: a file
with a secret lies beside the store. Exits 1 at the first that is otherwise.

Contract: schemathesis runs in an environment of its own below .assay/tools, installed when it is not there.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
VERSION = "4.32.5"
SECRET = b"not for strangers"


def faces() -> dict[str, Any]:
    """The web applications, with what they need."""
    from assay.app.web import node_app
    from assay.blocks.blockstore import BlockStore
    from assay.dashboard.server import dashboard_app
    from assay.protocol.errors import Stop

    store = BlockStore(mkdtemp())
    (store.root / "secret").write_bytes(SECRET)
    store.add_file(bytes(600_000))

    class NoPage:
        made, error, view, text = type("Made", (), {"is_set": lambda self: True})(), {"code": "x"}, None, "{}"

    class Feed:
        def page(self, topic: object) -> NoPage:
            return NoPage()

    def replay(game_id: int) -> dict[str, Any]:
        raise Stop("there is no such game", hint="look at the list", code="no-such-game")

    return {
        "a node's": node_app(store, dict, "solver"),
        "the dashboard's": dashboard_app(Feed(), replay, ["*"]),  # type: ignore[arg-type]
    }


def exercise(examples: int) -> None:
    """The child's part: call everything."""
    import schemathesis

    broken = []
    for name, app in faces().items():
        schema = schemathesis.openapi.from_asgi("/openapi.json", served(app))
        for found in schema.get_all_operations():
            operation = found.ok()
            if "/events/" in operation.path:
                continue  # a stream without end
            calls, fault = called(operation, examples)
            broken += [f"{operation.label}: {fault}"] if fault else []
            print(f"{name} {operation.label}: {calls} calls{', BROKEN' if fault else ''}", flush=True)
    sys.exit("\n".join(broken) or 0)


def called(operation: Any, examples: int) -> tuple[int, str]:
    """Call one operation with many values; how often, and what was wrong."""
    from hypothesis import HealthCheck, given, settings

    calls = [0]

    @settings(max_examples=examples, deadline=None, suppress_health_check=list(HealthCheck))
    @given(case=operation.as_strategy())
    def call(case: Any) -> None:
        calls[0] += 1
        answer = case.call()
        assert answer.status_code < 500, f"{answer.status_code} for {case.path_parameters}"
        assert SECRET not in answer.content

    try:
        call()
    except AssertionError as error:
        return calls[0], str(error)
    return calls[0], ""


def served(app: Any) -> Any:
    """The application, with the schema that it does not show to strangers."""
    from fastapi.responses import JSONResponse

    app.add_route("/openapi.json", lambda request: JSONResponse(app.openapi()))
    return app


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--examples", type=int, default=500)
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        return exercise(options.examples)
    home = ROOT / ".assay/tools" / f"schemathesis-{VERSION}"
    if not (home / "bin/python").exists():
        venv.create(home, with_pip=True)
        subprocess.run([home / "bin/pip", "install", "--quiet", f"schemathesis=={VERSION}"], check=True)
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), sysconfig.get_paths()["purelib"]])}
    command = [str(home / "bin/python"), __file__, "--child", "--examples", str(options.examples)]
    sys.exit(subprocess.run(command, env=environment, cwd=ROOT).returncode)


if __name__ == "__main__":
    main()
