"""The openai library, which is imported here alone: it takes most of a second, so this module is imported by a thread.

The library builds requests, holds the connections and reads answers. It does not retry, as the gate of an evaluation
does that within a budget; it follows no redirect, which might carry a prompt elsewhere; and it takes neither proxies,
keys nor headers from the environment.
"""

from __future__ import annotations

import logging
import ssl

import httpx2
import openai

from crucible_worker.backends.openai import failures
from crucible_worker.backends.openai.failures import Asked
from crucible_worker.backends.openai.servers import OpenAIServer
from crucible_worker.backends.openai.transport import AnswerRefused, GuardedTransport

__all__ = ["Client"]

_KEEP_SECONDS = 30.0
"""How long an idle connection is kept: less than most servers keep theirs, so that few are closed under a request."""

# Their lines for developers hold whole requests, and with them prompts.
for _name in ("openai", "httpx2", "httpcore2"):
    logging.getLogger(_name).setLevel(logging.WARNING)


class Client:
    """Connections to one server."""

    def __init__(self, server: OpenAIServer, key: str | None) -> None:
        self._server = server
        self._key = key
        trusted = True if server.ca_file is None else ssl.create_default_context(cafile=str(server.ca_file))
        inner = httpx2.AsyncHTTPTransport(
            verify=trusted,
            trust_env=False,
            proxy=server.proxy,
            limits=httpx2.Limits(
                max_connections=server.max_connections,
                max_keepalive_connections=server.max_connections,
                keepalive_expiry=_KEEP_SECONDS,
            ),
        )
        timeout = httpx2.Timeout(server.stall_seconds, pool=None)
        self._openai = openai.AsyncOpenAI(
            api_key="put-on-by-the-transport",
            base_url=server.base_url,
            max_retries=0,
            timeout=timeout,
            http_client=httpx2.AsyncClient(
                transport=GuardedTransport(inner, key), follow_redirects=False, trust_env=False, timeout=timeout
            ),
        )

    async def send(self, path: str, body: dict[str, object] | None, model: str) -> bytes:
        """Send a request, and take the whole answer; a cancellation closes the connection.

        Args:
            path: below the base URL: "/completions".
            body: of a POST; None for a GET.
            model: who is asked, for errors.

        Returns:
            The body of an answer with status 2xx.

        Raises:
            BridgeError: there is no such answer; see `failures`.
        """
        asked = Asked(server=self._server.name, model=model, path=path, key=self._key)
        try:
            if body is None:
                response = await self._openai.get(path, cast_to=httpx2.Response)
            else:
                response = await self._openai.post(path, cast_to=httpx2.Response, body=body)
        except openai.APIStatusError as error:
            response = error.response
        except openai.APIConnectionError as error:
            raise self._of_connection(asked, error) from None
        content = self._without_key(response.content)
        if not response.is_success:
            raise failures.of_status(asked, response.status_code, response.headers, content)
        return content

    async def aclose(self) -> None:
        """Close every connection."""
        await self._openai.close()

    def _without_key(self, content: bytes) -> bytes:
        # A server that says its request's headers back must not bring the key into a journal of answers.
        if self._key is None or len(self._key) < failures.MIN_REDACTED_CHARS:
            return content
        return content.replace(self._key.encode(), b"[key]")

    def _of_connection(self, asked: Asked, error: openai.APIConnectionError) -> Exception:
        cause = error.__cause__ or error
        if isinstance(cause, AnswerRefused):
            return failures.garbage(asked.server, f"it {cause}")
        # The name of the error and no more: its text may hold the URL of a proxy, with a password.
        return failures.of_connection(asked, type(cause).__name__, stall_seconds=self._server.stall_seconds)
