"""The reference: the engine alone, without a pipeline, one request at a time, greedy.

`python -m tests.acceptance.engine_alone < questions.json` reads a list of `{"messages" | "prompt", "max_tokens"}` and
writes a list of `{"prompt", "ids", "text", "margins"}`. Prompts are rendered and encoded by transformers itself, ids
are decoded in one piece. `margins[i]` is the logprob of the chosen id less that of the second candidate.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# (transformers' annotations leave most types open)

import asyncio
import json
import os
import sys
from typing import Any

from schemas.ticket import EngineSampling
from stages.inference.bundled_model import bundled_model_path
from stages.inference.engine import EngineRequest
from stages.inference.hardware import detect, set_environment

EOS = 2


async def answers(questions: list[dict[str, Any]], tokenizer: Any) -> list[dict[str, Any]]:
    """What the engine says to each."""
    from stages.inference.step_thread import StepThread
    from stages.inference.vllm_engine import VllmCore, VllmOptions

    hardware = detect()
    engine = StepThread(
        lambda: VllmCore(VllmOptions(str(bundled_model_path()), [EOS], weights_dtype="float32"), hardware)
    )
    await engine.start()
    found = [await _answer(engine, number, question, tokenizer) for number, question in enumerate(questions)]
    await engine.close()
    return found


async def _answer(engine: Any, number: int, question: dict[str, Any], tokenizer: Any) -> dict[str, Any]:
    prompt = _prompt_ids(question, tokenizer)
    sampling = EngineSampling(max_tokens=question["max_tokens"], temperature=0.0, logprobs=2)
    engine.add(EngineRequest(str(number), prompt, sampling))
    ids: list[int] = []
    margins: list[float] = []
    finish = ""
    while not finish:
        for advance in (await engine.next_step()).advances:
            assert not advance.error, advance.error
            ids += advance.ids
            margins += [entry.top[0].logprob - entry.top[1].logprob for entry in advance.logprobs or ()]
            finish = advance.finish
    return {"prompt": prompt, "ids": ids, "text": tokenizer.decode(ids, skip_special_tokens=True), "margins": margins}


def _prompt_ids(question: dict[str, Any], tokenizer: Any) -> list[int]:
    if "prompt" in question:
        return tokenizer.encode(question["prompt"])
    text = tokenizer.apply_chat_template(question["messages"], add_generation_prompt=True, tokenize=False)
    return tokenizer.encode(text, add_special_tokens=False)


def main() -> None:
    """Standard input to standard output; what libraries print goes to standard error."""
    output = os.dup(1)
    os.dup2(2, 1)
    set_environment(detect())  # before torch is imported
    from transformers import AutoTokenizer

    tokenizer: Any = AutoTokenizer.from_pretrained(str(bundled_model_path()))
    found = asyncio.run(answers(json.load(sys.stdin), tokenizer))
    with os.fdopen(output, "w") as out:
        json.dump(found, out)


if __name__ == "__main__":
    main()
