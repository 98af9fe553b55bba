"""What is not as it has to be: the wanted configuration of streams and consumers against the one found. Pure."""

from dataclasses import dataclass

from broker.connection import BrokerError
from broker.jetstream_api import Json
from broker.layout import StreamPlan

_DURATIONS = ("max_age", "duplicate_window", "ack_wait")


@dataclass(frozen=True)
class Difference:
    """One thing that is not as it has to be. `where` is a stream, or `stream/consumer`."""

    where: str
    field: str
    wanted: object
    found: object

    def __str__(self) -> str:
        return (
            f"{self.where}: {self.field} is {_shown(self.field, self.found)}, wanted {_shown(self.field, self.wanted)}"
        )


class TopologyMismatch(BrokerError):
    """The streams are not those of this program and these settings; each `Difference` says where."""

    def __init__(self, differences: list[Difference]) -> None:
        super().__init__(
            "the streams differ from what is wanted; what exists is never changed, so ask for what is there, or take"
            " another store:\n" + "\n".join(f"  {d}" for d in differences)
        )
        self.differences = differences


def stream_differences(
    plans: list[StreamPlan], existing: dict[str, Json], missing_counts: bool = True
) -> list[Difference]:
    """Where the streams in `existing` (configurations by name) are not as planned."""
    differences: list[Difference] = []
    for plan in plans:
        found = existing.get(plan.name)
        if found is not None:
            differences += differences_in(plan.name, plan.config, found)
        elif missing_counts:
            differences.append(Difference(plan.name, "stream", "there", "missing"))
    return differences


def differences_in(where: str, wanted: Json, found: Json) -> list[Difference]:
    """What of `wanted` is otherwise in `found`; what the server adds of its own does not count."""
    differences: list[Difference] = []
    for name, value in wanted.items():
        if name == "metadata":
            differences += differences_in(where, value, found.get(name) or {})
        elif found.get(name, False if isinstance(value, bool) else None) != value:  # false ones are left out
            differences.append(Difference(where, name, value, found.get(name)))
    return differences


def raise_if(differences: list[Difference]) -> None:
    """Raises `TopologyMismatch` where there are any."""
    if differences:
        raise TopologyMismatch(differences)


def _shown(name: str, value: object) -> str:
    if name in _DURATIONS and isinstance(value, int):
        return f"{value / 1e9:g} s"
    return "missing" if value is None else repr(value)
