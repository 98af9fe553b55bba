"""How long a step of a simulated GPU takes."""

from dataclasses import dataclass

FORM = "`fast`, `h100-70b` or `a=5,b=0.02,c=0.02` (ms)"


@dataclass(frozen=True)
class GpuProfile:
    """A step takes `a_ms`, `b_ms` more for each decoding request and `c_ms` more for each token of a prompt."""

    a_ms: float
    b_ms: float
    c_ms: float

    def step_s(self, decode: int, prefill: int) -> float:
        """Seconds of a step with so many decoding requests and tokens of prompts."""
        return (self.a_ms + self.b_ms * decode + self.c_ms * prefill) / 1e3


PROFILES = {
    "fast": GpuProfile(5, 0.02, 0.02),
    "h100-70b": GpuProfile(25, 0.05, 0.12),
}


def gpu_profile(text: str) -> GpuProfile:
    """The profile of that name, or with those values. Raises `ValueError`."""
    if text in PROFILES:
        return PROFILES[text]
    values: dict[str, float] = {}
    for part in text.split(","):
        name, _, value = part.partition("=")
        try:
            values[name.strip()] = float(value)
        except ValueError:
            raise ValueError(f"a GPU profile is {FORM}, not {text!r}") from None
    if set(values) != {"a", "b", "c"} or any(not 0 <= value < float("inf") for value in values.values()):
        raise ValueError(f"a GPU profile is {FORM}, not {text!r}")
    return GpuProfile(values["a"], values["b"], values["c"])
