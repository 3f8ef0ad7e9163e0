"""``assay``, whose `crew solve` runs a member that lies (``tests.fakes.lying_crew``)."""

from __future__ import annotations

from assay.app.invocation import App
from assay.cli.command_factory import NodeKind, command_of
from assay.cli.commands import crew, crew_solve
from assay.cli.main import main


def _liar(_: App) -> NodeKind:
    from tests.fakes.lying_crew import LyingService

    return NodeKind(LyingService)


if __name__ == "__main__":
    (honest,) = [each for each in crew.commands.registered_commands if each.callback is crew_solve.command]
    honest.callback = command_of(crew_solve.solve, _liar)
    main()
