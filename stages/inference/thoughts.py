"""A grammar that binds only what a model says behind its thoughts."""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportUnknownParameterType=false, reportMissingImports=false, reportMissingTypeStubs=false
# pyright: reportUntypedBaseClass=false
# (vLLM and torch are typed only in part, and not installed everywhere)

from typing import Any, Literal

from vllm.v1.structured_output.backend_types import StructuredOutputGrammar

from schemas.ticket import Thoughts

State = Literal["start", "thinking", "bound"]


class AfterThoughts(StructuredOutputGrammar):
    """`inner`, once the model has thought: free until its closing tag, bound from there on.

    At the start it may open its thoughts or begin what `inner` allows, nothing else.
    """

    def __init__(self, inner: StructuredOutputGrammar, thoughts: Thoughts) -> None:
        self._inner = inner
        self._thoughts = thoughts
        self._first: State = "thinking" if thoughts.open else "start"
        self._state: State = self._first
        self._before: list[State] = []

    def accept_tokens(self, request_id: str, tokens: list[int]) -> bool:
        for token in tokens:
            after = self._after(self._state, token)
            if (after, self._state) in (("bound", "start"), ("bound", "bound")) and not self._inner.accept_tokens(
                request_id, [token]
            ):
                return False
            self._before.append(self._state)
            self._state = after
        return True

    def validate_tokens(self, tokens: list[int]) -> list[int]:
        state = self._state
        for place, token in enumerate(tokens):
            after = self._after(state, token)
            if after == "bound" and state != "thinking":
                return tokens[:place] + self._inner.validate_tokens(tokens[place:])
            state = after
        return tokens

    def rollback(self, num_tokens: int) -> None:
        for _ in range(num_tokens):
            before = self._before.pop()
            if self._state == "bound" and before != "thinking":
                self._inner.rollback(1)
            self._state = before

    def fill_bitmask(self, bitmask: Any, batch_index: int) -> None:
        if self._state == "thinking":
            bitmask[batch_index].fill_(-1)
            return
        self._inner.fill_bitmask(bitmask, batch_index)
        if self._state == "start":
            word, bit = divmod(self._thoughts.opener, 32)
            bitmask[batch_index, word] |= -(1 << 31) if bit == 31 else 1 << bit  # words are signed

    def is_terminated(self) -> bool:
        return self._state == "bound" and self._inner.is_terminated()

    def reset(self) -> None:
        self._inner.reset()
        self._state = self._first
        self._before = []

    def _after(self, state: State, token: int) -> State:
        """The state behind `token`."""
        if state == "start":
            return "thinking" if token == self._thoughts.opener else "bound"
        if state == "thinking":
            return "bound" if token == self._thoughts.closer else "thinking"
        return "bound"
