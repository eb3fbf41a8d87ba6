"""What the Python clients with tasks are put through in their modern era: each request by itself, without a session.

Both SDKs build on the session of the official one, and drive a task to its end behind an ordinary call by themselves.
What went over the wire is noted below them.
"""

import asyncio
import time
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from mcp.client.session import ClientSession
from mcp.types import CallToolResult, Result

import flow
from flow import Json, check, texts

VERSION = "2026-07-28"


class Noting(ClientSession):
    """Notes the method of each request, and passes it on."""

    sent: list[str] = []
    plain_request = ClientSession.send_request
    plain_discover = ClientSession.send_discover

    async def send_request(self, request: Any, *rest: Any, **named: Any) -> Any:
        Noting.sent.append(request.method)
        return await Noting.plain_request(self, request, *rest, **named)

    async def send_discover(self, version: str) -> Any:
        Noting.sent.append("server/discover")
        return await Noting.plain_discover(self, version)


ClientSession.send_request = Noting.send_request
ClientSession.send_discover = Noting.send_discover


@dataclass
class Modern:
    """One connected client: `call` and `progress` give the last result, however it came; the rest is its task alone."""

    session: ClientSession
    tools: Callable[[], Awaitable[list[str]]]
    call: Callable[[str, Json], Awaitable[Json]]
    progress: Callable[[str, Json], Awaitable[tuple[Json, int]]]
    # The first answer to a call, and what becomes of the task in it.
    settle: Callable[[Any], Awaitable[Json]]
    cancel: Callable[[Any], Awaitable[str]]

    async def first(self, name: str, arguments: Json) -> Result:
        return await self.session.call_tool(name, arguments, allow_claimed=True)

    async def task(self, name: str, arguments: Json) -> tuple[Any, float]:
        begun = time.monotonic()
        answer = await self.first(name, arguments)
        waited = time.monotonic() - begun
        check(getattr(answer, "result_type", None) == "task", f"{name} runs as a task", answer)
        check(waited <= flow.HANDLE_WITHIN, "the task comes in time", f"{waited:.2f} s")
        return answer, waited


async def modern(client: Modern) -> str:
    names = await client.tools()
    check({"add", "slow", "summarize"} <= set(names), "the tools are listed", names)
    await flow.inline(flow.Caller(client.tools, client.call, client.progress, None))
    answer = await client.first("add", {"a": 2, "b": 3})
    check(isinstance(answer, CallToolResult), "a fast answer comes inline", answer)
    tag = uuid.uuid4().hex
    task, waited = await client.task("slow", {"seconds": flow.SLOW_SECONDS, "tag": tag})
    check(texts(await client.settle(task)) == [f"slow done for {tag}"], "the task has the result")
    count = texts(await client.call("calls", {"tag": tag}))
    check(count == ["1"], "the server saw one call", count)
    # As users of these SDKs call a tool: they never see that there was a task.
    before = Noting.sent.count("tasks/get")
    result = await client.call("summarize", {"values": [2, 3], "seconds": 2})
    check(result.get("structuredContent") == {"count": 2, "total": 5}, "a task keeps structured content", result)
    check(Noting.sent.count("tasks/get") > before, "it came from a task", Noting.sent)
    return f"task after {waited:.2f} s"


async def cancel(client: Modern) -> str:
    names = await client.tools()
    tag = uuid.uuid4().hex
    task, _ = await client.task("slow_async" if "slow_async" in names else "slow", {"seconds": 30, "tag": tag})
    begun = time.monotonic()
    status = await client.cancel(task)
    check(status == "cancelled", "it is cancelled", status)
    stopped = ""
    for _ in range(20):
        await asyncio.sleep(0.1)
        stopped = texts(await client.call("cancelled", {"tag": tag}))[0]
        if stopped == "1":
            break
    check(stopped == "1", "the server's call was cancelled", stopped)
    return f"cancelled within {time.monotonic() - begun:.2f} s"


async def elicit(client: Modern) -> str:
    await client.tools()
    Noting.sent.clear()
    result = await client.call("confirm", {"seconds": 0})
    check(texts(result) == [f"accept: {flow.WORD}"], "the result reflects the answer", result)
    check(Noting.sent == ["tools/call"] * 2, "a question before the handle is answered by a retry", Noting.sent)
    Noting.sent.clear()
    result = await client.call("confirm", {"seconds": 2})
    check(texts(result) == [f"accept: {flow.WORD}"], "the result reflects the answer", result)
    check(Noting.sent.count("tools/call") == 1, "one after it needs no retry", Noting.sent)
    check(Noting.sent.count("tasks/update") == 1, "it is answered by an update of the task", Noting.sent)
    return "answered before and after the handle"


KINDS = {"modern": modern, "modern-cancel": cancel, "modern-elicit": elicit}


async def play(client: Modern, kind: str) -> None:
    session = client.session
    check(session.protocol_version == VERSION, "the era is the modern one", session.protocol_version)
    check(Noting.sent == ["server/discover"], "there was no handshake", Noting.sent)
    extensions = session.discover_result.capabilities.extensions
    check(flow.EXTENSION in (extensions or {}), "the extension is discovered", extensions)
    print(await KINDS[kind](client))
