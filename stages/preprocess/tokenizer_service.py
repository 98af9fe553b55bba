"""The tokenizer service: `hr.tokenize.<model>` and `hr.detokenize.<model>`, answered by whichever replica is free."""

from collections.abc import Awaitable, Callable
from importlib.metadata import version

import structlog

from broker import subjects
from broker.connection import BrokerError, Connection, Inbound
from broker.service import Reply, Service
from schemas.codec import CONTENT_TYPES, WireError, encoding_of, sniffed
from schemas.faults import Fault
from schemas.tokenization import DetokenizeRequest, TokenizeRequest
from stages.preprocess.lanes import Lanes
from stages.preprocess.model import LoadedModel
from stages.preprocess.settings import PreprocessSettings
from stages.preprocess.tokenizing import Answered, Question, Tokenizing, refusal

log = structlog.get_logger()

DESCRIPTION = "Token ids of prompts and chats, and the text of token ids, for the models that Headrace serves"

ModelOf = Callable[[str], Awaitable[LoadedModel | Fault]]


class TokenizerService:
    """One replica's part of it. Threads of its own answer, in batches; what exceeds its bounds is `busy` at once.

    `model_of` gives the model of a slug as it is now.
    """

    def __init__(self, connection: Connection, instance: str, settings: PreprocessSettings, model_of: ModelOf) -> None:
        self._model_of = model_of
        self._most = settings.tokenize_waiting
        self._most_bytes = settings.tokenize_bytes
        self._waiting = 0
        self._bytes = 0
        tokenizing = Tokenizing(connection.max_payload)
        self._lanes: Lanes[Question, Answered] = Lanes(tokenizing.answer, settings, "tokenize")
        self._service = Service(
            connection,
            name=subjects.TOKENIZER_SERVICE,
            identity=instance,
            version=version("headrace"),
            description=DESCRIPTION,
        )

    async def start(self) -> None:
        """Can be found from here on. Raises `Unavailable`."""
        await self._service.start()

    async def serve(self, model: LoadedModel) -> None:
        """Answers for this model from here on; again for one that was loaded again does nothing more."""
        slug, about = model.card.slug, {"model": model.card.name}
        for verb, subject, kind in (
            ("tokenize", subjects.tokenize(slug), TokenizeRequest),
            ("detokenize", subjects.detokenize(slug), DetokenizeRequest),
        ):
            try:
                await self._service.serve(f"{verb}-{slug}", subject, self._answering(slug, kind), about)
            except BrokerError as error:
                log.warning("preprocess.tokenizer_not_served", model=slug, error=str(error))

    def running_s(self) -> float:
        """How long the oldest batch has been in its thread."""
        return self._lanes.running_s()

    async def stop(self, grace_s: float) -> None:
        """Leaves the queue groups, then answers what it has within that time."""
        await self._service.stop(grace_s)

    def close(self) -> None:
        """Lets its threads end."""
        self._lanes.close()

    def _answering(
        self, slug: str, kind: type[TokenizeRequest] | type[DetokenizeRequest]
    ) -> Callable[[Inbound], Awaitable[Reply]]:
        async def answer(asked: Inbound) -> Reply:
            return _reply(await self._answered(asked, slug, kind))

        return answer

    async def _answered(
        self, asked: Inbound, slug: str, kind: type[TokenizeRequest] | type[DetokenizeRequest]
    ) -> Answered:
        size, content_type = len(asked.data), asked.headers.get("Content-Type", "")
        model = await self._model_of(slug)
        if isinstance(model, Fault):
            return _refused(model, asked.data, content_type)
        if self._waiting >= self._most or (self._waiting and self._bytes + size > self._most_bytes):
            fault = Fault("busy", "this replica has as many questions to its tokenizers as it takes; try later")
            return _refused(fault, asked.data, content_type)
        self._waiting += 1
        self._bytes += size
        try:
            return await self._lanes.do(Question(asked.data, content_type, kind, model))
        finally:
            self._waiting -= 1
            self._bytes -= size


def _refused(fault: Fault, data: bytes, content_type: str) -> Answered:
    try:
        return refusal(fault, encoding_of(content_type, data))
    except WireError:
        return refusal(fault, sniffed(data))


def _reply(answered: Answered) -> Reply:
    headers = {"Content-Type": CONTENT_TYPES[answered.encoding]}
    fault = answered.fault
    if fault is None:
        return Reply(answered.data, headers)
    said = f"{fault.param}: {fault.message}" if fault.param else fault.message
    return Reply(answered.data, headers, fault.policy.http_status, fault.code, said)
