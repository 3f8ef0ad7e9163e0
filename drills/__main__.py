"""``python -m drills``: nodes that cheat on purpose, and whole markets in which one does."""

from assay.cli import cycles


def main() -> None:
    """Run it. What is imported here is so much that the collector has to rest first."""
    cycles.rest()
    from assay.cli.main import main as run
    from drills.main import root

    run(root, "python -m drills")


if __name__ == "__main__":
    main()
