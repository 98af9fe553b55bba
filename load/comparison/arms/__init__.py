"""The arms of a comparison by name: each a system that is started, driven, and stopped."""

from collections.abc import Callable

from load.comparison.arms.arm import Arm
from load.comparison.arms.engine_only import EngineOnly
from load.comparison.arms.headrace import Headrace
from load.comparison.arms.smg import Smg
from load.comparison.arms.vllm_serve import VllmServe
from load.comparison.peers import PYTHON, RUST

ENGINE_ONLY = "engine-only"

ARMS: dict[str, Callable[[], Arm]] = {
    ENGINE_ONLY: EngineOnly,
    "headrace-nats": lambda: Headrace("nats"),
    "headrace-http": lambda: Headrace("http"),
    "vllm-serve": VllmServe,
    "vllm-serve-api2": lambda: VllmServe("--api-server-count", "2"),
    "vllm-serve-interval8": lambda: VllmServe("--stream-interval", "8"),
    "smg-python": lambda: Smg(PYTHON),
    "smg-rust": lambda: Smg(RUST),
}
"""Each makes an arm that is not started yet."""
