"""The client of the PyPI package fastmcp, 3.x: the last one that speaks the tasks of 2025-11-25."""

import asyncio
import time
import uuid

from fastmcp import Client
from fastmcp.exceptions import ToolError
from mcp import McpError

import flow
from flow import check

asked = 0


async def answer(message: str, wanted: type, params: object, context: object) -> flow.Json:
    global asked
    asked += 1
    return {"word": flow.WORD}


async def start(client: Client, name: str, arguments: flow.Json):
    begun = time.monotonic()
    task = await client.call_tool(name, arguments, task=True)
    waited = time.monotonic() - begun
    check(waited <= flow.HANDLE_WITHIN, "the task comes in time", f"{waited:.2f} s")
    check(not task.returned_immediately, "it is a task")
    return task, waited


async def core(client: Client) -> str:
    tools = {tool.name for tool in await client.list_tools()}
    tag = uuid.uuid4().hex
    task, waited = await start(client, "slow", {"seconds": flow.SLOW_SECONDS, "tag": tag})
    told = []
    task.on_status_change(lambda status: told.append(status.status))
    result = await task.result()
    check(result.content[0].text == f"slow done for {tag}", "the task has its result", result)
    check("completed" in told, "the session is told of the end", told)
    count = await client.call_tool("calls", {"tag": tag})
    check(count.content[0].text == "1", "the server saw one call", count)
    for seconds in (0, 2):
        task, _ = await start(client, "summarize", {"values": [2, 3], "seconds": seconds})
        result = await task.result()
        check(result.structured_content == {"count": 2, "total": 5}, "structure comes whole", result)
    if "fail" in tools:
        task, _ = await start(client, "fail", {"seconds": 1})
        try:
            check(False, "a failure is raised", await task.result())
        except ToolError as error:
            check("no mesh" in str(error), "a failure says why", error)
        status = await client.get_task_status(task.task_id)
        check(status.status == "failed" and "no mesh" in (status.statusMessage or ""), "the status says why", status)
    return f"task after {waited:.2f} s"


async def cancel(client: Client) -> str:
    tools = {tool.name for tool in await client.list_tools()}
    tag = uuid.uuid4().hex
    name = "slow_async" if "slow_async" in tools else "slow"
    task, _ = await start(client, name, {"seconds": 30, "tag": tag})
    begun = time.monotonic()
    await task.cancel()
    status = await task.wait()
    check(status.status == "cancelled", "it is cancelled", status)
    if "cancelled" in tools:
        try:
            check(False, "there is no result", await task.result())
        except McpError as error:
            check(error.error.code == -32603, "there is no result", error.error)
        for _ in range(20):
            await asyncio.sleep(0.1)
            stopped = (await client.call_tool("cancelled", {"tag": tag})).content[0].text
            if stopped == "1":
                break
        check(stopped == "1", "the server's call was cancelled", stopped)
    return f"cancelled within {time.monotonic() - begun:.2f} s"


async def elicit(client: Client) -> str:
    """This client reads the result only after the end: it is asked on the session's own stream."""
    task, _ = await start(client, "confirm", {"seconds": 2})
    result = await task.result()
    check(result.content[0].text == f"accept: {flow.WORD}", "the result reflects the answer", result)
    check(asked == 1, "it is asked once", asked)
    return "answered on the session's stream"


async def connect(url: str, kind: str) -> None:
    async with Client(url, elicitation_handler=answer) as client:
        print(await {"core": core, "cancel": cancel, "elicit": elicit}[kind](client))


flow.main(connect)
