"""``python -m assay``: the ``assay`` command."""

import sys


def main() -> None:
    """Entry point. On Windows, whose files are not locked and synced as a node's must be, it ends at once."""
    if sys.platform == "win32":
        print(
            "Windows itself is not supported, and nothing was done: install Assay under WSL2"
            " (docs/running.md says what is supported)",
            file=sys.stderr,
        )
        raise SystemExit(3)
    from assay.cli.main import main as run

    run()


if __name__ == "__main__":
    main()
