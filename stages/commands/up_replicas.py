"""What of a `headrace up` can be changed while it runs."""

from collections.abc import Callable, Mapping, Sequence

from stages.commands.plan import HEALTH_PORT, UpOptions, first_health_port, patterns
from stages.process.child import ChildSpec
from stages.replicas import Replicas
from stages.supervisor import Supervisor


def changeable(
    supervisor: Supervisor,
    options: UpOptions,
    environ: Mapping[str, str],
    specs: Sequence[ChildSpec],
    told: Callable[[ChildSpec], ChildSpec],
    *,
    grace_s: float,
) -> Replicas:
    """The replicas of all stages. `specs` run already; `told` adds what processes are told of this `up`."""
    return Replicas(
        supervisor,
        {group: told(spec) for group, spec in patterns(options, environ, specs).items()},
        grace_s,
        port_variable=HEALTH_PORT,
        first_port=first_health_port(environ),
    )
