"""Requests that outlive whoever sent them: handed in without waiting, read and spoken of by anybody of the tenant."""

from typing import Any

from broker import subjects
from broker.answer_stream import AnswerPlace
from broker.client import Headrace
from broker.connection import BrokerError
from broker.kept_requests import KeptRequests
from broker.patience import anything_waits
from broker.publisher import Publisher
from broker.request_names import RequestNames
from broker.stored_answer import StoredAnswer, stored_answer
from broker.submitting import make_request, submit
from schemas.faults import RequestFault

SESSION = "nobody"
"""Nobody listens there for live results: who wants them attaches."""


class Recall:
    """The requests of `client`'s tenant. `kept` is what edges keep of them; answers come by `client.attach`."""

    def __init__(self, client: Headrace) -> None:
        self.client = client
        self.kept = KeptRequests(client.connection, client.tenant)
        self._publisher = Publisher(client.connection)
        self._names = RequestNames(client.connection.options)

    async def submit(self, *, request_id: str, model: str = "", trace: str = "", **options: Any) -> None:
        """Hands a request in; takes what `Headrace.stream` takes. Again with the same id it changes nothing.

        Raises `RequestFault` for what cannot be sent; everything else is said by its answer.
        """
        messages, prompt = options.pop("messages", None), options.pop("prompt", None)
        request = make_request(request_id, SESSION, model=model, messages=messages, prompt=prompt, options=options)
        subject = subjects.request(self.client.tenant, await self.client.slug(model))
        name = self._names.of(f"{self.client.tenant}.{request_id}")
        await submit(self._publisher, subject, request, name, trace)

    async def stored(self, request_id: str) -> StoredAnswer:
        """The answer as far as it is stored. Raises `RequestFault`."""
        place = AnswerPlace.of(self.client.tenant, request_id, self.client.partitions)
        return await stored_answer(self.client.connection, place)

    async def anything_waits(self) -> bool:
        """Whether any request of the tenant is queued or being answered. Raises `RequestFault`."""
        try:
            return await anything_waits(self.client.connection, self.client.tenant)
        except BrokerError as error:
            raise RequestFault("unavailable", str(error)) from error
