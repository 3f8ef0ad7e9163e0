"""``python -m assay``: the ``assay`` command."""

from assay.cli import cycles

cycles.rest()  # before what is imported next

from assay.cli.main import main  # noqa: E402

if __name__ == "__main__":
    main()
