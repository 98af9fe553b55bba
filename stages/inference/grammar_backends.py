"""What compiles grammars: xgrammar, and llguidance for JSON Schemas that it would hold only in part, as vLLM chooses.

Both fill the same bit masks, so one batch may hold grammars of both.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportUnknownParameterType=false, reportMissingImports=false, reportMissingTypeStubs=false
# pyright: reportUntypedBaseClass=false
# (vLLM and its backends are typed only in part, and not installed everywhere)

import json
import re
import threading
from collections import OrderedDict
from typing import Any

import xgrammar
from vllm.v1.structured_output.backend_guidance import GuidanceBackend, has_guidance_unsupported_json_features
from vllm.v1.structured_output.backend_types import StructuredOutputOptions
from vllm.v1.structured_output.backend_xgrammar import (
    XgrammarBackend,
    XgrammarGrammar,
    has_xgrammar_unsupported_json_features,
)
from vllm.v1.structured_output.utils import grammar_is_likely_lark

from stages.inference.grammar_guard import GrammarRefusedError, check_room, in_time

MAX_WHITE_SPACE = 32
"""Blanks and line breaks between two parts of a JSON text: enough to indent, too few to fill an answer with."""

MAX_REASON = 300

MAX_KNOWN = 1024
"""Grammars of which is remembered that they compile."""

JSON_KINDS = (StructuredOutputOptions.JSON, StructuredOutputOptions.JSON_OBJECT)
ANY_OBJECT = '{"type": "object"}'

_SOURCE = re.compile(r"^\[[0-9:]+\] \S+:\d+: ")


class BoundedXgrammar(XgrammarBackend):
    """xgrammar whose JSON is never all white space: small models do not come out of it again (F9)."""

    def compile_grammar(
        self, request_type: StructuredOutputOptions, grammar_spec: str, stop_token_ids: set[int] | None = None
    ) -> Any:
        compiled = self._compiled(request_type, grammar_spec)
        # vLLM names a number of tokens to roll back as well, which xgrammar does not want any more.
        matcher = xgrammar.GrammarMatcher(compiled, override_stop_tokens=sorted(stop_token_ids or ()) or None)
        return XgrammarGrammar(matcher=matcher, vocab_size=self.vocab_size, ctx=compiled)

    def _compiled(self, kind: StructuredOutputOptions, value: str) -> Any:
        if kind == StructuredOutputOptions.REGEX:
            return self.compiler.compile_regex(value)
        if kind == StructuredOutputOptions.GRAMMAR:
            lark = grammar_is_likely_lark(value)
            return self.compiler.compile_lark(value) if lark else self.compiler.compile_grammar(value)
        if kind not in JSON_KINDS:
            raise ValueError(f"{kind.name} is not served")
        return self.compiler.compile_json_schema(
            value or ANY_OBJECT,
            any_whitespace=not self.disable_any_whitespace,
            separators=(",", ":") if self.disable_any_whitespace else None,
            max_whitespace_cnt=None if self.disable_any_whitespace else MAX_WHITE_SPACE,
        )


class Backends:
    """Both, each made when the first grammar wants it. Any thread may compile."""

    def __init__(self, config: Any, tokenizer: Any) -> None:
        self._config = config
        self._tokenizer = tokenizer
        self._vocab_size = config.model_config.get_vocab_size()
        self._only = config.structured_outputs_config.backend
        self._made: dict[type, Any] = {}
        self._making = threading.Lock()
        self._known: OrderedDict[int, None] = OrderedDict()

    def first(self) -> Any:
        """The one that is always there."""
        return self._of(GuidanceBackend if self._only == "guidance" else BoundedXgrammar)

    def compile(self, kind: StructuredOutputOptions, value: str, stop_ids: set[int]) -> Any:
        """A grammar at its start. Raises `GrammarRefusedError`."""
        key = hash((kind, value))
        if key not in self._known:
            check_room()
        reason = ""
        for backend in self._kinds(kind, value):
            try:
                grammar = in_time(lambda backend=backend: self._compiled(backend, kind, value, stop_ids))
                self._remember(key)
                return grammar
            except GrammarRefusedError:
                raise
            except (RuntimeError, ValueError, TypeError, KeyError) as error:  # all that C++ and Rust code raises
                reason = reason or _plain(error)
        raise GrammarRefusedError(f"no grammar: {reason}")

    def _remember(self, key: int) -> None:
        with self._making:
            self._known[key] = None
            while len(self._known) > MAX_KNOWN:
                self._known.popitem(last=False)

    def _compiled(self, backend: type, kind: StructuredOutputOptions, value: str, stop_ids: set[int]) -> Any:
        made = self._of(backend)
        grammar = made.compile_grammar(kind, value, stop_token_ids=stop_ids)
        if backend is GuidanceBackend and (error := grammar.ll_matcher.get_error()):
            raise ValueError(error)
        return grammar

    def _kinds(self, kind: StructuredOutputOptions, value: str) -> list[type]:
        """The backends to try: the first that compiles has it."""
        if self._only == "xgrammar":
            return [BoundedXgrammar]
        if self._only == "guidance":
            return [GuidanceBackend]
        if kind != StructuredOutputOptions.JSON:
            return [BoundedXgrammar, GuidanceBackend]
        schema = json.loads(value)
        if not has_xgrammar_unsupported_json_features(schema):
            return [BoundedXgrammar, GuidanceBackend]
        if has_guidance_unsupported_json_features(schema):
            raise GrammarRefusedError("no grammar holds all features of this JSON schema together")
        return [GuidanceBackend]

    def _of(self, backend: type) -> Any:
        with self._making:
            if backend not in self._made:
                made = backend(self._config, tokenizer=self._tokenizer, vocab_size=self._vocab_size)
                if backend is GuidanceBackend and -(-made.ll_tokenizer.vocab_size // 32) != -(-self._vocab_size // 32):
                    raise ValueError("the model's tokenizer has more tokens than the model")
                self._made[backend] = made
            return self._made[backend]


def _plain(error: Exception) -> str:
    """What a backend has against a grammar, without the place in its own source."""
    text = _SOURCE.sub("", str(error).strip())
    return (text or type(error).__name__)[:MAX_REASON]
