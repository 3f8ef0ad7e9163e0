"""``python -m drills``: runs nodes that cheat on purpose, and scenarios with such nodes."""

from assay.cli.main import main
from drills.main import root

if __name__ == "__main__":
    main(root, "python -m drills")
