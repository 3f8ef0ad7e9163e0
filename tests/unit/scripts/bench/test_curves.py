"""The curves' bench: both forms see the same batches, and the picture has every look."""

from __future__ import annotations

from pathlib import Path

from scripts.bench import curves as bench
from scripts.bench.curves import NATIVE, OURS, Found
from scripts.generate.pictures import drawn


def found() -> Found:
    one = {NATIVE: [(0, 2.0, 0.1), (10, 1.0, 0.5)], OURS: [(0, 2.0, 0.1), (10, 1.2, 0.6)]}
    other = {NATIVE: [(0, 2.0, 0.1), (10, 1.4, 0.7)], OURS: [(0, 2.0, 0.1), (10, 1.0, 0.4)]}
    return {"GPT": [one, other]}


def test_a_row_has_the_last_looks_mean_and_the_seeds_spread() -> None:
    native, ours = bench.rows(found())
    assert native == ["GPT", NATIVE, "10", "1.2000", "0.4000", "60.00", "20.00"]
    assert ours == ["GPT", OURS, "10", "1.1000", "0.2000", "50.00", "20.00"]


def test_the_picture_has_a_panel_of_each_kind_and_the_highest_loss_on_top() -> None:
    svg = drawn(bench.picture(found()))
    assert svg.count(bench.COLOURS[OURS]) == 3, "two curves, and a key"
    assert 'M60.0 40.0 420.0 240.0"' in svg, "of ours, which ends with the least loss"


def test_a_few_steps_of_both_forms_end_near_each_other_and_a_run_goes_on(tmp_path: Path) -> None:
    task = bench.tasks(quick=True)["GPT"]

    def run(form: str, steps: int, name: str) -> bench.Curve:
        return bench.curve(task, form, 0, steps, 2, None, tmp_path / name)

    native, ours = run(NATIVE, 6, "native"), run(OURS, 6, "ours")
    assert [look[0] for look in ours] == [0, 2, 4, 6] and native[0] == ours[0]
    assert all(abs(a[1] - b[1]) < 1e-3 for a, b in zip(native, ours, strict=True))
    assert ours[-1][1] < ours[0][1] and native[-1] != ours[-1], "it learns, in two arithmetics"
    assert run(NATIVE, 4, "again") == native[:3] and run(NATIVE, 6, "again") == native
