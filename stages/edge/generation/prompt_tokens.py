"""A prompt as ids, and ids as the text of a prompt, where a client wants to see what the model saw."""

from typing import Any

from schemas.faults import RequestFault
from stages.edge.generation.submitting import Submission
from stages.edge.generation.translation import Asked
from stages.edge.http.errors import api_error_of

TOLD = (
    "prompt",
    "messages",
    "template_options",
    "add_generation_prompt",
    "continue_final_message",
    "add_special_tokens",
)
"""What of a request decides over its prompt, beside the tools."""


async def prompt_ids(submission: Submission, asked: Asked) -> list[int]:
    """The ids that the model is given. Raises `ApiError`."""
    prompt: str | list[int] | None = asked.options.get("prompt")
    if isinstance(prompt, list):
        return prompt
    what: dict[str, Any] = {name: asked.options[name] for name in TOLD if name in asked.options}
    if asked.options.get("tool_choice") != "none" and "tools" in asked.options:
        what["tools"] = asked.options["tools"]
    try:
        return (await submission.client.tokenize(model=submission.card.name, **what)).tokens
    except RequestFault as fault:
        raise api_error_of(fault, asked.renames) from fault


async def prompt_text(submission: Submission, asked: Asked) -> str:
    """What a prompt says: ids are read by the model's own tokenizer. Raises `ApiError`."""
    prompt: str | list[int] = asked.options["prompt"]
    if isinstance(prompt, str):
        return prompt
    try:
        return await submission.client.detokenize(prompt, model=submission.card.name)
    except RequestFault as fault:
        raise api_error_of(fault, {**asked.renames, "tokens": asked.renames.get("prompt", "prompt")}) from fault
