"""``python -m assay``: the ``assay`` command."""

from assay.cli import cycles


def main() -> None:
    """Run it. What is imported here is so much that the collector has to rest first."""
    cycles.rest()
    from assay.cli.main import main as run

    run()


if __name__ == "__main__":
    main()
