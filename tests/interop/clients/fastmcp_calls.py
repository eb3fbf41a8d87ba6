"""What the clients of the PyPI package fastmcp, 4.x, do alike in both eras."""

from collections.abc import Awaitable, Callable

from fastmcp import Client
from pydantic import BaseModel

import flow

Tools = Callable[[], Awaitable[list[str]]]
Call = Callable[[str, flow.Json], Awaitable[flow.Json]]
Progress = Callable[[str, flow.Json], Awaitable[tuple[flow.Json, int]]]


def plain(result: BaseModel) -> flow.Json:
    return result.model_dump(by_alias=True, mode="json", exclude_none=True)


def calls(client: Client) -> tuple[Tools, Call, Progress]:
    async def tools() -> list[str]:
        return [tool.name for tool in await client.list_tools()]

    async def call(name: str, arguments: flow.Json) -> flow.Json:
        return plain(await client.call_tool_mcp(name, arguments))

    async def progress(name: str, arguments: flow.Json) -> tuple[flow.Json, int]:
        seen = []

        async def note(done: float, total: float | None, message: str | None) -> None:
            seen.append(done)

        return plain(await client.call_tool_mcp(name, arguments, progress_handler=note)), len(seen)

    return tools, call, progress


async def answer(message: str, wanted: type, params: object, context: object) -> flow.Json:
    return {"word": flow.WORD}
