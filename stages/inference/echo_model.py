"""A simulated model that says what it was told: its answer is the last user message, letter by letter, then EOS.

So the test of a whole pipeline writes the model's part itself, as the content of a message:

    headrace up --engine simulated --set inference.simulated_echo=true [--set inference.tool_parser=mistral]
    {"role": "user", "content": "<tool_call>{\\"name\\": \\"f\\", \\"arguments\\": {}}</tool_call>"}

Of several user messages the last one counts; a prompt that is no chat comes back whole. Any Unicode text returns as it
was; control tokens that a message spells out return as text. The chat template takes tools and earlier calls (as Hermes
writes them). With the template option `enable_thinking` it ends with `<think>`, so the answer begins within thoughts.
Its card has `hermes` and `think`; other families are chosen by the settings `tool_parser` and `reasoning_parser`.
"""

import hashlib
from array import array
from functools import cache

from schemas.journal import TokenLogprob
from stages.inference.simulated_model import DIGEST_BYTES, EOS, SPECIAL, SimulatedModel, in_symbols

START = SPECIAL[0]
TAGS = ("<think>", "</think>", "<tool_call>", "</tool_call>")

CHAT_TEMPLATE = """\
{%- if tools %}{{ '<|im_start|>system\\n<tools>\\n' }}{% for tool in tools %}{{ tool | tojson }}{{ '\\n' }}{% endfor %}
{{- '</tools>\\nA call: <tool_call>{"name": <name>, "arguments": <arguments>}</tool_call><|im_end|>\\n' }}{% endif %}
{%- for message in messages %}{{ '<|im_start|>' + message.role + '\\n' }}
{%- if message.reasoning_content %}{{ '<think>' + message.reasoning_content + '</think>' }}{% endif %}
{{- message.content or '' }}
{%- for call in message.tool_calls or [] %}
{{- '<tool_call>{"name": ' + (call.function.name | tojson) + ', "arguments": ' }}
{{- call.function.arguments if call.function.arguments is string else call.function.arguments | tojson }}
{{- '}</tool_call>' }}
{%- endfor %}{{ '<|im_end|>\\n' }}{% endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' + ('<think>' if enable_thinking else '') }}{% endif %}"""


class EchoModel(SimulatedModel):
    """The tokenizer of `SimulatedModel` with the tags of thoughts and calls as tokens, and other answers."""

    def __init__(self) -> None:
        super().__init__(CHAT_TEMPLATE, TAGS)
        self._header = [self.special[START], *(self.vocabulary[symbol] for symbol in in_symbols("user\n"))]

    def sequence(self, prompt: list[int], generated: list[int]) -> "Echo":
        """The answer to `prompt`, from behind what was generated of it: a function of the position alone."""
        return Echo(self, prompt, self.last_user_message(prompt), len(generated))

    def last_user_message(self, prompt: list[int]) -> list[int]:
        """The ids of its content; the whole of a prompt that is no chat, nothing of a chat without such a message."""
        if self.special[START] not in prompt:
            return prompt
        header = self._header
        for start in range(len(prompt) - len(header), -1, -1):
            if prompt[start : start + len(header)] == header:
                begin = start + len(header)
                ends = (at for at in range(begin, len(prompt)) if prompt[at] == self.special[EOS])
                return prompt[begin : next(ends, len(prompt))]
        return []


class Echo:
    """One answer: `ids` from `at` on, then EOS for ever."""

    def __init__(self, model: EchoModel, prompt: list[int], ids: list[int], at: int) -> None:
        self._model = model
        self._prompt = array("I", prompt).tobytes()
        self._ids = ids
        self._at = at

    def advance(self, eos_probability: float, logprobs: int | None) -> tuple[int, TokenLogprob | None]:  # noqa: ARG002
        """As `GrowingAnswer.advance`."""
        chosen = self._ids[self._at] if self._at < len(self._ids) else self._model.eos
        self._at += 1
        if logprobs is None:
            return chosen, None
        digest = hashlib.blake2b(self._prompt + self._at.to_bytes(8), digest_size=DIGEST_BYTES).digest()
        return chosen, self._model.logprob_from(digest, chosen, logprobs)


@cache
def echo_model() -> EchoModel:
    """The one there is."""
    return EchoModel()
