"""The client of the PyPI package fastmcp. Kind `fast` lets it find out the protocol's era by itself."""

from fastmcp import Client
from mcp import types
from mcp.client import advertise

import flow
from fastmcp_calls import answer, calls, plain


class Read(types.Result):
    """A task as it was answered, with whatever it carries."""

    model_config = {"extra": "allow"}


def caller(client: Client) -> flow.Caller:
    tools, call, progress = calls(client)

    async def task(task_id: str) -> flow.Json:
        params = types.GetTaskRequestParams(task_id=task_id)
        return plain(await client.session.send_request(types.GetTaskRequest(params=params), Read))

    return flow.Caller(tools, call, progress, task, keeps_unknown=False)


async def connect(url: str, kind: str) -> None:
    extensions = [advertise(flow.EXTENSION)] if kind == "task" else None
    mode = "auto" if kind == "fast" else "legacy"
    async with Client(url, extensions=extensions, mode=mode, elicitation_handler=answer) as client:
        await flow.play(caller(client), kind)


flow.main(connect)
