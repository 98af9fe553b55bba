"""How long the steps of a simulated GPU take."""

import pytest

from load.gpu.profile import PROFILES, GpuProfile, gpu_profile


def test_a_step() -> None:
    """Milliseconds of the step, of each decoding request and of each token of a prompt add up, in seconds."""
    assert GpuProfile(5, 0.02, 0.01).step_s(decode=64, prefill=512) == pytest.approx(0.0114)
    assert GpuProfile(5, 0.02, 0.01).step_s(0, 0) == 0.005


def test_by_name_and_by_value() -> None:
    """A profile can be named or spelled out, in any order."""
    assert gpu_profile("h100-70b") == PROFILES["h100-70b"] == GpuProfile(25, 0.05, 0.12)
    assert gpu_profile("c=0.02,a=5, b=0.02") == PROFILES["fast"]
    assert gpu_profile("a=0,b=0,c=0").step_s(9, 9) == 0


@pytest.mark.parametrize("text", ["", "slow", "a=5", "a=5,b=1,c=1,d=1", "a=x,b=1,c=1", "a=-1,b=1,c=1", "a=inf,b=1,c=1"])
def test_nonsense(text: str) -> None:
    """What is no profile is refused with what one looks like."""
    with pytest.raises(ValueError, match="h100-70b"):
        gpu_profile(text)
