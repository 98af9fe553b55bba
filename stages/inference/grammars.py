"""Grammars of answers in vLLM's core: each compiled by a backend that can hold it, led through the ids so far.

vLLM keeps to the backend of its first request, though it chose one for each, and begins every grammar at its start.
Here a request has the backend that fits; of an answer that goes on the grammar has seen the ids of earlier attempts;
one that does not compile ends its own request, with the reason. vLLM's core loads its scheduler by name, in its own
process too: that is how this gets in.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportUnknownParameterType=false, reportMissingImports=false, reportMissingTypeStubs=false
# pyright: reportUntypedBaseClass=false
# (vLLM and its backends are typed only in part, and not installed everywhere)

import threading
from collections import OrderedDict
from typing import Any

from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.engine import FinishReason
from vllm.v1.structured_output import StructuredOutputManager

from stages.inference.grammar_backends import Backends
from stages.inference.grammar_guard import GrammarRefusedError, GuardedGrammar, in_time
from stages.inference.resumption import grammar_start_of, refusal
from stages.inference.thoughts import AfterThoughts
from stages.inference.vllm_options import quieten

MAX_REASONS = 1024


class Grammars(StructuredOutputManager):
    """vLLM's own, with grammars that know where their answer stands."""

    def adopt(self) -> None:
        """After vLLM made its own: what this one has more."""
        quieten()
        self.reasoner_cls = None  # where thoughts end is told with each request
        self._backends = Backends(self.vllm_config, self.tokenizer)
        self._making = threading.Lock()
        self._reasons: OrderedDict[str, str] = OrderedDict()

    def grammar_init(self, request: Any) -> None:
        """Compiles in a thread; the scheduler lets the request wait for it."""
        if request.structured_output_request is not None:
            request.structured_output_request.grammar = self.executor.submit(self._create_grammar, request)

    def _create_grammar(self, request: Any) -> Any:
        try:
            return self._led_through(request)
        except GrammarRefusedError as error:
            self._note(request.request_id, refusal(error.code, str(error)))
            raise
        except Exception as error:
            self._note(request.request_id, refusal("internal", f"{type(error).__name__}: {error}"))
            raise

    def _led_through(self, request: Any) -> Any:
        start = grammar_start_of(request.sampling_params.extra_args)
        with self._making:
            self.backend = self._backends.first()  # vLLM asks it for room for its bit masks
        kind, value = request.structured_output_request.structured_output_key
        grammar = self._backends.compile(kind, value, request.sampling_params.all_stop_token_ids)
        if start.thoughts is not None:
            grammar = AfterThoughts(grammar, start.thoughts)
        ids: list[int] = list(request.prompt_token_ids)[start.begin :] if start.begin else []
        if ids and not in_time(lambda: grammar.accept_tokens(request.request_id, ids)):
            raise RuntimeError("the grammar does not take the ids of the answer so far")
        return GuardedGrammar(grammar, lambda reason: self._refuse(request.request_id, reason))

    def take_reason(self, request_id: str) -> str | None:
        """Why a request has no grammar, once."""
        return self._reasons.pop(request_id, None)

    def _refuse(self, request_id: str, reason: str) -> None:
        self._note(request_id, refusal("invalid_request", reason))

    def _note(self, request_id: str, reason: str) -> None:
        self._reasons[request_id] = reason
        while len(self._reasons) > MAX_REASONS:  # of requests that were aborted meanwhile
            self._reasons.popitem(last=False)


class _WithGrammars:
    """What both schedulers have more than vLLM's."""

    structured_output_manager: Any

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        manager = self.structured_output_manager
        manager.__class__ = Grammars  # the core makes its manager itself, and asks nobody which
        manager.adopt()

    def update_from_output(self, *arguments: Any, **named: Any) -> Any:
        """As vLLM's; an output that ends for want of a grammar says why in `stop_reason`."""
        outputs = super().update_from_output(*arguments, **named)  # pyright: ignore[reportAttributeAccessIssue]
        for client in outputs.values():
            for output in client.outputs:
                if output.finish_reason == FinishReason.ERROR:
                    output.stop_reason = self.structured_output_manager.take_reason(output.request_id)
        return outputs


class GrammarScheduler(_WithGrammars, Scheduler):
    """For steps that wait for each other (CPUs)."""


class AsyncGrammarScheduler(_WithGrammars, AsyncScheduler):
    """For steps that are scheduled ahead (GPUs)."""


def scheduler_for(config: Any) -> str:
    """The name by which vLLM's core loads the scheduler for this configuration."""
    kind = AsyncGrammarScheduler if config.scheduler_config.async_scheduling else GrammarScheduler
    return f"{kind.__module__}.{kind.__qualname__}"
