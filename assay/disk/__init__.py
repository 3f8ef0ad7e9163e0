"""What every part of a node needs of its disk: records that are what was written, or known not to be."""
