"""What a flood's measurement says and keeps."""

import json
from pathlib import Path

import pytest

from load.flood import Findings, Told, parser, save


def test_the_figures_are_kept_where_they_are_asked_for(tmp_path: Path) -> None:
    """`--json FILE` names a file, which then has each party's counts and its times in ms."""
    file = parser().parse_args(["--json", str(tmp_path / "figures.json")]).json
    quiet = Told(asked=2, answered=2, ttft=[0.1, 0.3])
    flood = Told(asked=3)
    flood.refused["busy"] = 3
    save(Findings(quiet, quiet, flood), file)

    kept = json.loads((tmp_path / "figures.json").read_text())
    assert list(kept) == ["alone", "beside", "flood"]
    assert (kept["alone"]["asked"], kept["alone"]["ttft_p99_ms"]) == (2, pytest.approx(298, abs=3))
    assert kept["flood"]["refused"] == {"busy": 3}


def test_a_file_that_cannot_be_is_refused_with_the_option(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Before anything is measured, by the option's name."""
    with pytest.raises(SystemExit):
        parser().parse_args(["--json", str(tmp_path)])
    assert f"--json: '{tmp_path}': is a folder" in capsys.readouterr().err
