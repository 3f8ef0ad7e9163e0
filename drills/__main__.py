"""``python -m drills``: nodes that cheat on purpose, and whole markets in which one does."""

from assay.cli.main import main
from drills.main import root

if __name__ == "__main__":
    main(root, "python -m drills")
