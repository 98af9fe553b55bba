"""What a replica of preprocess weighs, and what it must not load."""

import subprocess
import sys

import pytest

PROBE = """
import sys, time
import asyncio, resource
import stages.preprocess.stage
from stages.preprocess.preparation import Incoming, Preparation, Ready
from stages.preprocess.lanes import Lanes
from stages.preprocess.settings import PreprocessSettings
from schemas.codec import encode
from schemas.request import ChatMessage, Request
from tests.unit.preprocess.vocabularies import real_model

model = real_model()
ready_s = time.process_time()

def incoming(text):
    request = Request(id="r", session="s", messages=[ChatMessage("user", text)])
    return Incoming(encode(request), "", "t", time.time(), model)

async def main():
    lanes = Lanes(Preparation().prepare, PreprocessSettings())
    words = "The quick brown fox <b>jumps</b>, 42 times. "
    texts = [words, words * 300, *(f"{n} {words}" for n in range(500)), words * 100_000]
    outcomes = await asyncio.gather(*(lanes.do(incoming(text)) for text in texts))
    assert sum(isinstance(outcome, Ready) for outcome in outcomes) == 502
    lanes.close()

asyncio.run(main())
heavy = sorted({name.split(".")[0] for name in sys.modules} & {"torch", "vllm", "tensorflow", "jax"})
peak = next(line for line in open("/proc/self/status") if line.startswith("VmHWM")).split()[1]
print(",".join(heavy) or "none", int(peak) // 1024, ready_s)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_memory_start_and_imports() -> None:
    """No torch, no vllm; 350 MB at the most with the real tokenizer and 4 MB prompts; ready after 5 s of CPU."""
    answer = subprocess.run([sys.executable, "-c", PROBE], capture_output=True, text=True, timeout=60, check=False)
    assert answer.returncode == 0, answer.stderr
    heavy, megabytes, ready_s = answer.stdout.split()
    assert heavy == "none"
    assert int(megabytes) <= 350
    assert float(ready_s) <= 5
