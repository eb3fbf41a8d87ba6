"""Tasks as users of the official Python SDK, 1.x, have them, and a question that comes in the middle of one."""

import asyncio
import time
import uuid
from collections.abc import Awaitable, Callable
from typing import Any

from mcp import ClientSession, McpError, types
from mcp.shared.context import RequestContext

import flow
from flow import check

RELATED = "io.modelcontextprotocol/related-task"


class Anything(types.Result):
    """A result with whatever it carries."""

    model_config = {"extra": "allow"}


class Extended(types.Request[dict[str, Any], str]):
    """A request of the extension, which this SDK does not know."""


class Asked:
    """Answers questions, and notes them."""

    def __init__(self) -> None:
        self.seen: list[types.ElicitRequestParams] = []

    async def __call__(
        self, context: RequestContext[ClientSession, Any], params: types.ElicitRequestParams
    ) -> types.ElicitResult:
        self.seen.append(params)
        return types.ElicitResult(action="accept", content={"word": flow.WORD})

    def tasks(self) -> list[str]:
        """The task that each question says it belongs to."""
        metas = [params.meta.model_dump(by_alias=True) if params.meta else {} for params in self.seen]
        return [meta.get(RELATED, {}).get("taskId") for meta in metas]


async def tools_of(session: ClientSession) -> dict[str, types.Tool]:
    return {tool.name: tool for tool in (await session.list_tools()).tools}


async def start(session: ClientSession, name: str, arguments: flow.Json) -> tuple[str, float]:
    begun = time.monotonic()
    created = await session.experimental.call_tool_as_task(name, arguments, ttl=60_000)
    waited = time.monotonic() - begun
    check(waited <= flow.HANDLE_WITHIN, "the task comes in time", f"{waited:.2f} s")
    check(created.task.status in ("working", "input_required"), "it has begun", created)
    return created.task.taskId, waited


async def ended(session: ClientSession, task_id: str) -> types.GetTaskResult:
    async for task in session.experimental.poll_task(task_id):
        last = task
    return last


async def result_of(session: ClientSession, task_id: str) -> types.CallToolResult:
    return await session.experimental.get_task_result(task_id, types.CallToolResult)


def words(result: types.CallToolResult) -> list[str]:
    return [block.text for block in result.content if isinstance(block, types.TextContent)]


async def core(session: ClientSession, asked: Asked) -> str:
    tools = await tools_of(session)
    for name in [name for name in ("slow", "task_required") if name in tools]:
        support = tools[name].execution and tools[name].execution.taskSupport
        check(support in ("optional", "required"), f"{name} runs as a task", support)
        tag = uuid.uuid4().hex
        task_id, waited = await start(session, name, {"seconds": flow.SLOW_SECONDS, "tag": tag})
        task = await ended(session, task_id)
        check(task.status == "completed", "the task completes", task)
        for attempt in ("the first read", "a second read"):
            result = await result_of(session, task_id)
            check(words(result) == [f"slow done for {tag}"], attempt, result)
            check((result.meta or {}).get(RELATED) == {"taskId": task_id}, f"{attempt} names its task", result)
        check(words(await session.call_tool("calls", {"tag": tag})) == ["1"], "the server saw one call")
    task_id, _ = await start(session, "summarize", {"values": [2, 3], "seconds": 1})
    result = await result_of(session, task_id)
    check(result.structuredContent == {"count": 2, "total": 5}, "reading the result waits for it", result)
    if "fail" in tools:
        task_id, _ = await start(session, "fail", {"seconds": 1})
        task = await ended(session, task_id)
        check(task.status == "failed" and "no mesh" in (task.statusMessage or ""), "a failure says why", task)
        result = await result_of(session, task_id)
        check(bool(result.isError) and "no mesh" in words(result)[0], "and has its result", result)
    return f"task after {waited:.2f} s"


async def refused(request: Awaitable[Any], code: int, what: str) -> None:
    try:
        check(False, what, await request)
    except McpError as error:
        check(error.error.code == code, what, error.error)


async def cancel(session: ClientSession, asked: Asked) -> str:
    tools = await tools_of(session)
    tag = uuid.uuid4().hex
    name = "slow_async" if "slow_async" in tools else "slow"
    task_id, _ = await start(session, name, {"seconds": 30, "tag": tag})
    begun = time.monotonic()
    task = await session.experimental.cancel_task(task_id)
    check(task.status == "cancelled", "it is cancelled at once", task)
    task = await session.experimental.get_task(task_id)
    check(task.status == "cancelled", "it stays cancelled", task)
    await refused(session.experimental.cancel_task(task_id), types.INVALID_PARAMS, "once is enough")
    if "cancelled" in tools:
        await refused(result_of(session, task_id), types.INTERNAL_ERROR, "there is no result")
        for _ in range(20):
            await asyncio.sleep(0.1)
            stopped = words(await session.call_tool("cancelled", {"tag": tag}))
            if stopped == ["1"]:
                break
        check(stopped == ["1"], "the server's call was cancelled", stopped)
    return f"cancelled within {time.monotonic() - begun:.2f} s"


async def elicit(session: ClientSession, asked: Asked) -> str:
    task_id, _ = await start(session, "confirm", {"seconds": 2})
    result = await result_of(session, task_id)
    check(words(result) == [f"accept: {flow.WORD}"], "asked while the result is waited for", result)
    check(asked.tasks() == [task_id], "the question names its task", asked.seen)
    # As the SDK's documentation has it: poll, and read the result as soon as input is required.
    task_id, _ = await start(session, "confirm", {"seconds": 2})
    async for task in session.experimental.poll_task(task_id):
        if task.status == "input_required":
            result = await result_of(session, task_id)
            break
    else:
        result = await result_of(session, task_id)
    check(words(result) == [f"accept: {flow.WORD}"], "asked while the task is polled", result)
    check(asked.tasks()[1:] == [task_id], "it is asked once", asked.seen)
    return "answered while waited for, and while polled"


async def elicit_ext(session: ClientSession, asked: Asked) -> str:
    """This SDK reads nothing else while it is asked, so that the stream's answer is always first, never an update."""

    async def request(method: str, **params: Any) -> flow.Json:
        extended: Any = Extended(method=method, params=params)
        return (await session.send_request(extended, Anything)).model_dump(by_alias=True, exclude_none=True)

    called = await request("tools/call", name="confirm", arguments={"seconds": 2})
    check(called.get("resultType") == "task", "the answer is a task", called)
    for _ in range(80):
        task = await request("tasks/get", taskId=called["taskId"])
        if task["status"] not in ("working", "input_required"):
            break
        await asyncio.sleep(0.1)
    check(task["status"] == "completed", "the task completes", task)
    check(flow.texts(task["result"]) == [f"accept: {flow.WORD}"], "the result reflects the answer", task)
    check(asked.tasks() == [None], "it is asked once, without a word of tasks", asked.seen)
    # The answer is there already: an update is acknowledged and changes nothing.
    late = await request("tasks/update", taskId=called["taskId"], inputResponses={"late": {"action": "decline"}})
    check(late.get("resultType") == "complete", "a late answer is acknowledged", late)
    return "answered on the session's stream"


KINDS: dict[str, Callable[[ClientSession, Asked], Awaitable[str]]] = {
    "core": core,
    "cancel": cancel,
    "elicit": elicit,
    "elicit-ext": elicit_ext,
}
