"""A client of the official Python SDK, 2.x. Kinds `fast` and `modern…` let it find out the protocol's era by itself."""

from mcp import Client
from mcp import types
from mcp.client import advertise
from pydantic import BaseModel

import flow
import python_v2_modern


class Read(types.Result):
    """A task as it was answered, with whatever it carries."""

    model_config = {"extra": "allow"}


def plain(result: BaseModel) -> flow.Json:
    return result.model_dump(by_alias=True, mode="json", exclude_none=True)


def caller(client: Client) -> flow.Caller:
    async def tools() -> list[str]:
        return [tool.name for tool in (await client.list_tools()).tools]

    async def call(name: str, arguments: flow.Json) -> flow.Json:
        return plain(await client.call_tool(name, arguments))

    async def progress(name: str, arguments: flow.Json) -> tuple[flow.Json, int]:
        seen = []

        async def note(done: float, total: float | None, message: str | None) -> None:
            seen.append(done)

        return plain(await client.call_tool(name, arguments, progress_callback=note)), len(seen)

    async def task(task_id: str) -> flow.Json:
        params = types.GetTaskRequestParams(task_id=task_id)
        return plain(await client.session.send_request(types.GetTaskRequest(params=params), Read))

    return flow.Caller(tools, call, progress, task, keeps_unknown=False)


async def answer(context: object, params: types.ElicitRequestParams) -> types.ElicitResult:
    return types.ElicitResult(action="accept", content={"word": flow.WORD})


async def connect(url: str, kind: str) -> None:
    modern = kind.startswith("modern")
    extensions = [advertise(flow.EXTENSION)] if kind == "task" else [python_v2_modern.Tasks()] if modern else None
    mode = "auto" if modern or kind == "fast" else "legacy"
    async with Client(url, extensions=extensions, mode=mode, elicitation_callback=answer) as client:
        if modern:
            return await python_v2_modern.play(client, caller(client), kind)
        await flow.play(caller(client), kind)


flow.main(connect)
