"""The client of the PyPI package fastmcp, 4.x, with its companion for tasks, in the modern era."""

from typing import Any

from fastmcp import Client
from fastmcp_tasks.client import ToolTask
from pydantic import BaseModel

import flow
import modern


def plain(result: BaseModel) -> flow.Json:
    return result.model_dump(by_alias=True, mode="json", exclude_none=True)


async def answer(message: str, wanted: type, params: object, context: object) -> flow.Json:
    return {"word": flow.WORD}


def play(client: Client) -> modern.Modern:
    async def tools() -> list[str]:
        return [tool.name for tool in await client.list_tools()]

    async def call(name: str, arguments: flow.Json) -> flow.Json:
        return plain(await client.call_tool_mcp(name, arguments))

    async def progress(name: str, arguments: flow.Json) -> tuple[flow.Json, int]:
        seen = []

        async def note(done: float, total: float | None, message: str | None) -> None:
            seen.append(done)

        return plain(await client.call_tool_mcp(name, arguments, progress_handler=note)), len(seen)

    async def settle(created: Any) -> flow.Json:
        result = await ToolTask(client, "slow", created).result()
        return {"content": [plain(block) for block in result.content]}

    async def cancel(created: Any) -> str:
        task = ToolTask(client, "slow", created)
        await task.cancel()
        return (await task.wait(timeout=10)).status

    return modern.Modern(client.session, tools, call, progress, settle, cancel)


async def connect(url: str, kind: str) -> None:
    async with Client(url, elicitation_handler=answer) as client:
        await modern.play(play(client), kind)


flow.main(connect)
