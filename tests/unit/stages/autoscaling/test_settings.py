"""The autoscaler's settings."""

import pytest

from stages.autoscaling.settings import AutoscaleSettings
from stages.settings import SettingsError, load_settings


@pytest.mark.parametrize(
    ("variable", "value"), [("HEADRACE_AUTOSCALE_DOWN_BUSY", "0.9"), ("HEADRACE_AUTOSCALE_UP_BUSY", "0")]
)
def test_what_does_not_go_together_is_named(variable: str, value: str) -> None:
    """By the variable that would have to change."""
    with pytest.raises(SettingsError) as raised:
        load_settings(AutoscaleSettings, {variable: value})
    assert f"{variable}={value}" in str(raised.value)
