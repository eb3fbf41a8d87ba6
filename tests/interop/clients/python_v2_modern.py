"""The tasks extension for the official Python SDK, 2.x, which brings none but takes one; and its play of modern.py."""

import asyncio
from collections.abc import Sequence
from typing import Any, Literal

from mcp import Client, types
from mcp.client import ClaimContext, ClientExtension, ResultClaim
from mcp.client.session import ClientSession
from pydantic import ConfigDict, Field

import flow
import modern


class Created(types.Result):
    """The answer to a call that became a task."""

    model_config = ConfigDict(extra="allow")
    result_type: Literal["task"] = Field(alias="resultType")
    task_id: str = Field(alias="taskId")


class Task(types.Result):
    """A task as it was answered, with whatever it carries."""

    model_config = ConfigDict(extra="allow")
    status: str


class Params(types.RequestParams):
    task_id: str = Field(serialization_alias="taskId")
    input_responses: dict[str, Any] | None = Field(default=None, serialization_alias="inputResponses")


class Request(types.Request[Params, str]):
    name_param = "taskId"


async def ask(session: ClientSession, method: str, task_id: str, answers: flow.Json | None = None) -> Task:
    params = Params(task_id=task_id, input_responses=answers)
    read = Task if method == "tasks/get" else types.Result
    return await session.send_request(Request(method=method, params=params), read)


async def settle(session: ClientSession, task_id: str) -> Task:
    """Polls to the end, and answers whatever is asked on the way."""
    while True:
        task = await ask(session, "tasks/get", task_id)
        if task.status == "input_required":
            answer = {"action": "accept", "content": {"word": flow.WORD}}
            await ask(session, "tasks/update", task_id, {key: answer for key in task.inputRequests})
        elif task.status != "working":
            return task
        await asyncio.sleep(0.2)


class Tasks(ClientExtension):
    identifier = flow.EXTENSION

    def claims(self) -> Sequence[ResultClaim[Any]]:
        return (ResultClaim(result_type="task", model=Created, resolve=self.resolve),)

    async def resolve(self, created: Created, context: ClaimContext) -> types.CallToolResult:
        task = await settle(context.session, created.task_id)
        flow.check(task.status == "completed", "the task completes", task)
        return types.CallToolResult.model_validate(task.result)


async def play(client: Client, caller: flow.Caller, kind: str) -> None:
    session = client.session

    async def settled(created: Created) -> flow.Json:
        return (await settle(session, created.task_id)).result

    async def cancel(created: Created) -> str:
        await ask(session, "tasks/cancel", created.task_id)
        return (await settle(session, created.task_id)).status

    await modern.play(modern.Modern(session, caller.tools, caller.call, caller.progress, settled, cancel), kind)
