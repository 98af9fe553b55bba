"""How long something took, for a person to read."""


def seconds(value: float) -> str:
    """`0.41 s`; `4.2 ms` for what is shorter than that could show."""
    return f"{value:.2f} s" if value >= 0.01 else milliseconds(value)


def milliseconds(seconds: float) -> str:
    """`0.35 ms`, `12.3 ms`, `1 234 ms`."""
    value = seconds * 1000
    if value < 1:
        return f"{value:.2f} ms"
    return f"{value:.1f} ms" if value < 100 else f"{value:,.0f} ms".replace(",", " ")
