"""The client of the PyPI package fastmcp, 4.x, with its companion for tasks, in the modern era."""

from typing import Any

from fastmcp import Client
from fastmcp_tasks.client import ToolTask

import flow
import modern
from fastmcp_calls import answer, calls, plain


def play(client: Client) -> modern.Modern:
    tools, call, progress = calls(client)

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
