"""Headrace over NATS, by its public client."""

import os
from contextlib import AsyncExitStack
from typing import Self

from broker.client import Headrace
from broker.connection import Unavailable
from load.generator.record import Record, clock
from load.generator.target import Failed, Unreachable
from load.workload.chats import Chat
from schemas.faults import RequestFault
from stages.commands.broker_address import broker_options
from stages.settings import SettingsError

PATIENCE_S = 3.0


class NatsTarget:
    """One client, on one connection, for all requests."""

    def __init__(self, url: str, model: str) -> None:
        """Without a `url` HEADRACE_NATS_URL counts, then the `headrace up` that runs here. Raises `Unreachable`."""
        try:
            options = broker_options(os.environ, url, "headrace-generate")
        except SettingsError as error:
            raise Unreachable(str(error)) from error
        self._client = Headrace(options=options, patience_s=PATIENCE_S)
        self._stack = AsyncExitStack()
        self.model = model

    async def __aenter__(self) -> Self:
        try:
            await self._stack.enter_async_context(self._client)
            slug = await self._client.slug(self.model)
            cards = {card.slug: card.name for card in await self._client.models()}
        except Exception as error:  # a URL that is none is the NATS library's own error
            await self._stack.aclose()
            raise Unreachable(self._why(error)) from error
        if slug not in cards:
            await self._stack.aclose()
            wanted = f"no model {self.model}" if self.model else "no model"
            raise Unreachable(f"{wanted}; served are {', '.join(cards.values()) or 'none'}")
        self.model = self.model or cards[slug]
        return self

    @property
    def url(self) -> str:
        """Of its broker."""
        return self._client.options.shown_url

    def _why(self, error: Exception) -> str:
        """What the broker's connection says, with the URL once, and where there is nobody, what to do."""
        url, said = self.url, str(error)
        named = said if url in said else f"{url}: {said}"
        if not isinstance(error, Unavailable):
            return named
        return f"{named} (`headrace up` starts one and prints its URL, for --url or HEADRACE_NATS_URL)"

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def ask(self, chat: Chat, record: Record) -> None:
        events, pieces = record.events, record.pieces
        answer = self._client.stream(model=self.model, messages=chat.messages, max_tokens=chat.output, ignore_eos=True)
        try:
            async for chunk in answer:
                if chunk.text:
                    events.append(clock())
                    pieces.append(chunk.text)
                record.arrived += len(chunk.ids)
                if chunk.finish and chunk.usage:
                    record.finish = chunk.finish
                    record.prompt_tokens = chunk.usage.prompt_tokens
                    record.output_tokens = chunk.usage.completion_tokens
        except RequestFault as fault:
            raise Failed(fault.code, str(fault)) from fault
        finally:
            await answer.aclose()
