"""A client of the official Python SDK, 1.x."""

from typing import Any

from mcp import ClientSession, types
from mcp.client.streamable_http import streamable_http_client
from pydantic import BaseModel

import flow
from python_v1_tasks import KINDS, Asked


class Declaring(ClientSession):
    """This SDK has no setting for extensions, so the declaration is put into the handshake on its way out."""

    async def send_request(self, request: Any, *rest: Any, **named: Any) -> Any:
        if isinstance(getattr(request, "root", None), types.InitializeRequest):
            request.root.params.capabilities.experimental = {flow.EXTENSION: {}}
        return await super().send_request(request, *rest, **named)


def plain(result: BaseModel) -> flow.Json:
    return result.model_dump(by_alias=True, mode="json", exclude_none=True)


def caller(session: ClientSession) -> flow.Caller:
    async def tools() -> list[str]:
        return [tool.name for tool in (await session.list_tools()).tools]

    async def call(name: str, arguments: flow.Json) -> flow.Json:
        return plain(await session.call_tool(name, arguments))

    async def progress(name: str, arguments: flow.Json) -> tuple[flow.Json, int]:
        seen = []

        async def note(done: float, total: float | None, message: str | None) -> None:
            seen.append(done)

        return plain(await session.call_tool(name, arguments, progress_callback=note)), len(seen)

    async def task(task_id: str) -> flow.Json:
        params = types.GetTaskRequestParams(taskId=task_id)
        request = types.ClientRequest(types.GetTaskRequest(params=params))
        return plain(await session.send_request(request, types.GetTaskResult))

    return flow.Caller(tools, call, progress, task)


async def connect(url: str, kind: str) -> None:
    session_type = Declaring if kind in ("task", "elicit-ext") else ClientSession
    asked = Asked() if kind.startswith("elicit") else None
    async with (
        streamable_http_client(url) as (read, write, _),
        session_type(read, write, elicitation_callback=asked) as session,
    ):
        await session.initialize()
        if kind in KINDS:
            return print(await KINDS[kind](session, asked))
        await flow.play(caller(session), kind)


flow.main(connect)
