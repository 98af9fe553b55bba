"""vLLM's engine core alone, on the simulated GPU: token ids in, token ids out, the limit of every server around it."""

import asyncio
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from tokenizers import Tokenizer

from load.generator.record import Record, clock
from load.generator.target import Failed, Unreachable
from load.workload.chats import Chat
from schemas.ticket import EngineSampling
from stages.inference.bundled_model import bundled_model_path
from stages.inference.engine import Advance, EngineDead, EngineRequest, EngineUnavailable
from stages.inference.hardware import detect, set_environment
from stages.inference.vllm_engine import VllmProcess
from stages.inference.vllm_options import VllmOptions

OPTIONS: dict[str, Any] = {
    "distributed_executor_backend": "load.simulated_gpu.SimulatedExecutor",
    "max_num_seqs": 256,
    "max_num_batched_tokens": 8192,
    "block_size": 16,
    "max_model_len": 8192,
}
ROOT = Path(__file__).parents[2]


@dataclass(slots=True)
class _Asked:
    record: Record
    ended: "asyncio.Future[None]"
    ids: list[int] = field(default_factory=list[int])


class EngineTarget:
    """Starts the engine core, in a process of its own, and ends it. `model` is a checkpoint's folder."""

    def __init__(self, model: str, options: Mapping[str, Any], gpu_log: str = "") -> None:
        """`options` are vLLM's own. Raises `BundledModelMissingError`."""
        self.model = model or str(bundled_model_path())
        self._options = OPTIONS | dict(options)
        self._gpu_log = gpu_log
        self._asked: dict[str, _Asked] = {}
        self._dead = ""

    async def __aenter__(self) -> Self:
        hardware = detect()
        set_environment(hardware)
        # The core's process has to find the GPU's class, and where to write its log.
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
        if self._gpu_log:
            os.environ.setdefault("HEADRACE_GPU_LOG", self._gpu_log)
        wanted = VllmOptions(self.model, [], structured=False, own_process=True, options=self._options)
        self._engine = VllmProcess(wanted, hardware)
        try:
            await self._engine.start()
        except EngineUnavailable as error:
            raise Unreachable(str(error)) from error
        self._tokenizer: Tokenizer = Tokenizer.from_file(str(Path(self.model) / "tokenizer.json"))
        self._reading = asyncio.create_task(self._read())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._reading.cancel()
        await self._engine.close()

    async def ask(self, chat: Chat, record: Record) -> None:
        if self._dead:
            raise Failed("engine_dead", self._dead)
        ids = chat.ids or []
        record.prompt_tokens = len(ids)
        id_ = str(record.number)
        asked = self._asked[id_] = _Asked(record, asyncio.get_running_loop().create_future())
        self._engine.add(EngineRequest(id_, ids, EngineSampling(max_tokens=chat.output, ignore_eos=True)))
        try:
            await asked.ended
        finally:
            del self._asked[id_]
            if not record.finish:
                self._engine.abort([id_])
        if record.messages is not None or chat.left:
            record.pieces = [self._tokenizer.decode(asked.ids, skip_special_tokens=True)]

    async def _read(self) -> None:
        """One step after the other, whatever it brings to whom."""
        try:
            while True:
                step = await self._engine.next_step()
                now = clock()
                for advance in step.advances:
                    asked = self._asked.get(advance.id)
                    if asked is not None:
                        _take(advance, asked, now)
        except EngineDead as error:
            self._dead = str(error)
            for asked in self._asked.values():
                asked.ended.set_exception(Failed("engine_dead", self._dead))


def _take(advance: Advance, asked: _Asked, now: float) -> None:
    record = asked.record
    if advance.ids:
        record.events.append(now)
        record.arrived += len(advance.ids)
        asked.ids += advance.ids
    if asked.ended.done():
        return
    if advance.error:
        asked.ended.set_exception(Failed("engine_error", advance.error))
    elif advance.finish:
        record.finish = advance.finish
        record.output_tokens = record.arrived
        asked.ended.set_result(None)
