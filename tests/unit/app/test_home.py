"""Where keys and data are: found from wherever in a project a command is given, and otherwise the user's."""

from __future__ import annotations

from pathlib import Path

import pytest

from assay.app.settings import Flags, Settings
from assay.protocol.errors import Ask


@pytest.fixture(autouse=True)
def project(user: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with a sub-folder, in which commands are given."""
    (user / "project" / "deep" / "down").mkdir(parents=True)
    monkeypatch.chdir(user / "project" / "deep" / "down")
    return user / "project"


def test_without_any_the_home_is_the_users(tmp_path: Path) -> None:
    settings = Settings(Flags())
    assert settings.home == tmp_path / "user" / ".assay"
    assert settings.describe()["home"].origin == "default"
    assert settings.keystore == tmp_path / "user" / ".assay" / "keystore"


def test_the_nearest_home_above_is_found(project: Path) -> None:
    (project / ".assay").mkdir()
    assert Settings(Flags()).home == project / ".assay"
    (project / "deep" / ".assay").mkdir()
    assert Settings(Flags()).home == project / "deep" / ".assay"
    Path(".assay").mkdir()
    assert Settings(Flags()).home == Path(".assay")
    assert Settings(Flags(home="elsewhere")).home == Path("elsewhere")


def test_somebody_elses_folder_above_is_not_heeded(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (project / ".assay").mkdir()
    (project / "assay.toml").write_text('account = "mallory"\n')
    monkeypatch.setattr("os.geteuid", lambda: 54_321)
    settings = Settings(Flags())
    assert settings.describe()["home"].origin == "default" and settings.describe()["account"].value == ""


def test_a_configuration_above_is_found_and_its_paths_begin_at_it(project: Path) -> None:
    (project / "assay.toml").write_text('home = "data"\naccount = "ann"\nkeystore = "/keys"\n')
    settings = Settings(Flags())
    assert settings.home == project / "data" and settings.account == "ann"
    assert settings.keystore == Path("/keys")
    assert settings.describe()["account"].origin == str(project / "assay.toml")


@pytest.mark.parametrize(
    ("text", "says"),
    [("hom = 'x'", "no setting 'hom'"), ("threads = 4", "threads must be text"), ("home = ", "not a valid")],
)
def test_a_bad_configuration_is_refused_by_what_is_wrong(project: Path, text: str, says: str) -> None:
    (project / "assay.toml").write_text(text)
    with pytest.raises(Ask, match=says) as caught:
        Settings(Flags())
    assert caught.value.code == "bad-config"
