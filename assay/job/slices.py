"""Whether an outer claim fits the class of conditions that a job file names, and in how many slices it does.

Contract: refuses what `post` would refuse for its size, with the number of slices that it needs. Not
guaranteed: that this number is the least to the unit; what does not shrink with slices is not reckoned.
"""

from __future__ import annotations

from assay.job.read import JobFile
from assay.program.validate import measure
from assay.protocol.errors import Stop
from assay.training.job import JobArtifacts
from assay.training.round_names import unsliced_because


def check_outer(file: JobFile, files: JobArtifacts) -> None:
    """Raises Stop where an outer claim takes more memory than the class admits and slices would mend it."""
    if unsliced_because(file.outer.algorithm):
        return
    most, needed = file.conditions, files.slices
    for program in files.outers:
        sizes = (program.state_bytes, most.state_bytes), (measure(program).peak_bytes, most.step_bytes)
        needed = max(needed, *(-(-files.slices * taken // limit) for taken, limit in sizes))
    if needed > files.slices:
        slices = f"{files.slices} slices" if files.slices > 1 else "one piece"
        raise Stop(
            f"the outer step in {slices} takes more memory than the job's class allows, with"
            f" {file.training.shards} shards: {needed} slices are needed",
            hint=f"write slices = {needed} or more in [outer]",
        )
