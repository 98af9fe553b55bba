"""The autoscaler's settings."""

import pytest

from stages.autoscaling.settings import AutoscaleSettings
from stages.settings import SettingsError, load_settings


@pytest.mark.parametrize(
    ("environ", "overrides", "named"),
    [
        ({"HEADRACE_AUTOSCALE_DOWN_BUSY": "0.9"}, {}, "HEADRACE_AUTOSCALE_DOWN_BUSY='0.9'"),
        ({"HEADRACE_AUTOSCALE_UP_BUSY": "0"}, {}, "HEADRACE_AUTOSCALE_UP_BUSY='0'"),
        ({"HEADRACE_AUTOSCALE_UP_BUSY": "0.5"}, {}, "HEADRACE_AUTOSCALE_UP_BUSY='0.5'"),
        ({"HEADRACE_AUTOSCALE_UP_BUSY": "0.8"}, {"down_busy": "0.9"}, "--set down_busy='0.9'"),
    ],
)
def test_what_does_not_go_together_is_named(environ: dict[str, str], overrides: dict[str, str], named: str) -> None:
    """By the option or the variable that somebody set, not by one that has its default."""
    with pytest.raises(SettingsError) as raised:
        load_settings(AutoscaleSettings, environ, overrides)
    assert str(raised.value).startswith(f"{named}: ")
