"""The limit: `load.generate` speaks to vLLM's engine core itself, tokens in, tokens out."""

from load.comparison.arms.arm import Arm, Endpoint
from load.comparison.setup import Setup


class EngineOnly(Arm):
    """Nothing to start: the engine core lives as long as a run of `load.generate`."""

    def start(self, setup: Setup) -> Endpoint:
        log = setup.folder / "gpu.jsonl"
        logs = [log] if setup.simulated else []
        return Endpoint("engine", "", setup.model, logs, setup.engine_settings(), setup.environ(log))
