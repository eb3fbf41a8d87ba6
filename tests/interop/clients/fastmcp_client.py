"""The client of the PyPI package fastmcp. Kind `fast` lets it find out the protocol's era by itself."""

from fastmcp import Client
from mcp import types
from mcp.client import advertise
from pydantic import BaseModel

import flow


class Read(types.Result):
    """A task as it was answered, with whatever it carries."""

    model_config = {"extra": "allow"}


def plain(result: BaseModel) -> flow.Json:
    return result.model_dump(by_alias=True, mode="json", exclude_none=True)


def caller(client: Client) -> flow.Caller:
    async def tools() -> list[str]:
        return [tool.name for tool in await client.list_tools()]

    async def call(name: str, arguments: flow.Json) -> flow.Json:
        return plain(await client.call_tool_mcp(name, arguments))

    async def progress(name: str, arguments: flow.Json) -> tuple[flow.Json, int]:
        seen = []

        async def note(done: float, total: float | None, message: str | None) -> None:
            seen.append(done)

        return plain(await client.call_tool_mcp(name, arguments, progress_handler=note)), len(seen)

    async def task(task_id: str) -> flow.Json:
        params = types.GetTaskRequestParams(task_id=task_id)
        return plain(await client.session.send_request(types.GetTaskRequest(params=params), Read))

    return flow.Caller(tools, call, progress, task, keeps_unknown=False)


async def answer(message: str, wanted: type, params: object, context: object) -> flow.Json:
    return {"word": flow.WORD}


async def connect(url: str, kind: str) -> None:
    extensions = [advertise(flow.EXTENSION)] if kind == "task" else None
    mode = "auto" if kind == "fast" else "legacy"
    async with Client(url, extensions=extensions, mode=mode, elicitation_handler=answer) as client:
        await flow.play(caller(client), kind)


flow.main(connect)
