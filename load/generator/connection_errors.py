"""What keeps an HTTP client from its server, in words: those of aiohttp are its own insides."""

import os

import aiohttp

CLOSED = "the server closed the connection"
WORDS: dict[type[Exception] | tuple[type[Exception], ...], str] = {
    aiohttp.ClientConnectorDNSError: "there is no host of that name",
    aiohttp.InvalidURL: "that is no URL",
    (aiohttp.ServerDisconnectedError, aiohttp.ClientPayloadError): CLOSED,
    aiohttp.ContentTypeError: "the answer is no JSON",
    TimeoutError: "no answer in time",
}


def in_words(error: Exception) -> str:
    """One plain phrase for a `TimeoutError` or what aiohttp raises."""
    for kind, words in WORDS.items():
        if isinstance(error, kind):
            return words
    cause = error.os_error if isinstance(error, aiohttp.ClientConnectorError) else error
    if isinstance(cause, OSError) and cause.errno and cause.errno > 0:
        return os.strerror(cause.errno).lower()
    if isinstance(error, aiohttp.ClientOSError):  # between two requests, or while one was written
        return CLOSED
    return str(error) or type(error).__name__
