"""Runs the demonstration: trains a model through a market on a local chain, catches a cheat, and verifies the
model.

Usage: demo.py [--json] [--quick] [--open] [--data PATH] [--devices LIST] [--home FOLDER]; the environment
variables DATA, OPEN and DEVICES are equivalent to --data, --open and --devices. Exit status 0 only if all of
it happened. It is ``python -m drills run one-ulp`` in a folder of its own.
"""

from __future__ import annotations

import argparse
import os
import sys

HOME = ".assay/demo"


def main() -> None:
    """Replaces this process by the scenario's, so that a signal ends the market."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="one object on stdout")
    parser.add_argument("--quick", action="store_true", help="a smaller model and two rounds, about a minute")
    parser.add_argument("--data", default=os.environ.get("DATA") or "stdlib", help="your own text")
    devices = "devices by role or node, such as solver:cuda,verifier:cpu"
    parser.add_argument("--devices", default=os.environ.get("DEVICES"), help=devices)
    parser.add_argument("--open", action="store_true", help="open the dashboard in a browser")
    parser.add_argument("--home", default=HOME, help="folder for the market; an earlier run is removed")
    options = parser.parse_args()
    command = [sys.executable, "-m", "drills", "--home", options.home]
    command += ["--json"] if options.json else []
    command += ["run", "one-ulp", "--fresh", "--dashboard", "--data", options.data]
    command += ["--quick"] if options.quick else []
    command += ["--devices", options.devices] if options.devices else []
    command += ["--open"] if options.open or os.environ.get("OPEN") else []
    os.execv(sys.executable, command)


if __name__ == "__main__":
    main()
