"""What every Python client is put through, whichever SDK it is of.

A client is a `Caller`: it lists tools, calls one, and reads a task, and gives back plain JSON. An SDK that raises on
what it was answered fails the flow by that.
"""

import asyncio
import json
import os
import sys
import time
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

EXTENSION = "io.modelcontextprotocol/tasks"
SLOW_SECONDS = 3
# The gateway's threshold is 1 s in these runs.
HANDLE_WITHIN = 1.3
# What is answered to a question.
WORD = "tangerine"
# A server that answers in JSON has no stream for progress: run.sh says so.
PROGRESS = os.environ.get("SERVER_PROGRESS", "yes") == "yes"

Json = dict[str, Any]


@dataclass
class Caller:
    """The four things that the flow does, in one SDK's words; results come back as the JSON they were."""

    tools: Callable[[], Awaitable[list[str]]]
    call: Callable[[str, Json], Awaitable[Json]]
    progress: Callable[[str, Json], Awaitable[tuple[Json, int]]]
    task: Callable[[str], Awaitable[Json]]
    # Some SDKs drop the fields of a tool result that they do not know, and so see only the job in the answer.
    keeps_unknown: bool = True


def check(holds: bool, what: str, seen: Any = "") -> None:
    if not holds:
        raise AssertionError(f"{what}: {seen}")


def texts(result: Json) -> list[str]:
    return [block["text"] for block in result["content"]]


async def inline(client: Caller) -> None:
    """Fast calls are answered as if nobody stood between."""
    result = await client.call("add", {"a": 2, "b": 3})
    check(texts(result) == ["5"], "a fast answer comes inline", result)
    result = await client.call("summarize", {"values": [1, 2, 4]})
    check(result.get("structuredContent") == {"count": 3, "total": 7}, "structured content comes whole", result)
    result, notified = await client.progress("steps", {"count": 3})
    check(texts(result) == ["3 steps done"], "a call with progress ends", result)
    check(notified >= 3 or not PROGRESS, "progress reaches the client", notified)


async def deferred(client: Caller, tool: str, arguments: Json) -> tuple[Json, float]:
    """A slow call; gives back the handle and the seconds until it came."""
    begun = time.monotonic()
    answer = await client.call(tool, arguments)
    waited = time.monotonic() - begun
    check(waited <= HANDLE_WITHIN, "the handle comes in time", f"{waited:.2f} s, {answer}")
    check(not answer.get("isError"), "the handle is no error", answer)
    handle = json.loads(texts(answer)[0])
    check(handle["status"] == "running" and handle["job_id"], "the answer is a handle", answer)
    check(handle["job_id"] in handle["message"], "the handle names the next call", handle)
    return answer, waited


async def job_result(client: Caller, job_id: str) -> Json:
    """Polls as a model would; gives back the finished answer."""
    for _ in range(30):
        answer = await client.call("get_job_result", {"job_id": job_id})
        if json.loads(texts(answer)[0])["status"] != "running":
            return answer
    raise AssertionError("the job does not end")


async def as_job(client: Caller) -> float:
    names = await client.tools()
    check({"add", "slow", "get_job_result"} <= set(names), "the tools are listed, ours among them", names)
    await inline(client)
    slowest = 0.0
    for tool in [name for name in ("slow", "slow_async") if name in names]:
        tag = uuid.uuid4().hex
        answer, waited = await deferred(client, tool, {"seconds": SLOW_SECONDS, "tag": tag})
        slowest = max(slowest, waited)
        job_id = json.loads(texts(answer)[0])["job_id"]
        begun = time.monotonic()
        poll = await client.call("get_job_result", {"job_id": job_id, "wait_s": 0})
        check(time.monotonic() - begun < 1, "a poll is answered while the upstream is busy", poll)
        check(json.loads(texts(poll)[0])["status"] == "running", "the poll says so", poll)
        for attempt in ("the first read", "a second read"):
            answer = await job_result(client, job_id)
            check(json.loads(texts(answer)[0])["status"] == "done", f"{attempt} says done", answer)
            check(texts(answer)[1:] == [f"{tool} done for {tag}"], f"{attempt} has the result", answer)
        count = texts(await client.call("calls", {"tag": tag}))
        check(count == ["1"], "the server saw one call", count)
    answer, _ = await deferred(client, "summarize", {"values": [2, 3], "seconds": 2})
    answer = await job_result(client, json.loads(texts(answer)[0])["job_id"])
    check(answer.get("structuredContent") == {"count": 2, "total": 5}, "a job keeps structured content", answer)
    return slowest


async def as_task(client: Caller) -> float:
    """In a session that declared the extension: the answer reads as a task and as a job."""
    await client.tools()
    await inline(client)
    tag = uuid.uuid4().hex
    answer, waited = await deferred(client, "slow", {"seconds": SLOW_SECONDS, "tag": tag})
    job_id = json.loads(texts(answer)[0])["job_id"]
    if client.keeps_unknown:
        check(answer.get("resultType") == "task" and answer.get("taskId") == job_id, "the answer is a task", answer)
        check(answer.get("status") == "working", "the task is working", answer)
    for _ in range(50):
        task = await client.task(job_id)
        if task["status"] != "working":
            break
        await asyncio.sleep(0.2)
    check(task["status"] == "completed", "the task completes", task)
    check(texts(task["result"]) == [f"slow done for {tag}"], "the task carries the result", task)
    answer = await job_result(client, job_id)
    check(texts(answer)[-1] == f"slow done for {tag}", "the same work reads as a job", answer)
    count = texts(await client.call("calls", {"tag": tag}))
    check(count == ["1"], "the server saw one call", count)
    return waited


async def as_asked(client: Caller) -> None:
    """A question within the call, and one that comes while the job is read, answered by whatever the SDK calls."""
    answer = await client.call("confirm", {"seconds": 0})
    check(texts(answer) == [f"accept: {WORD}"], "the result reflects the answer", answer)
    answer, _ = await deferred(client, "confirm", {"seconds": 2.5})
    answer = await job_result(client, json.loads(texts(answer)[0])["job_id"])
    check(texts(answer)[1:] == [f"accept: {WORD}"], "the result reflects the answer", answer)


async def as_required(client: Caller) -> None:
    """A tool of the server's that runs only as a task, called by a client that has none."""
    tag = uuid.uuid4().hex
    answer, _ = await deferred(client, "task_required", {"seconds": SLOW_SECONDS, "tag": tag})
    answer = await job_result(client, json.loads(texts(answer)[0])["job_id"])
    check(texts(answer)[1:] == [f"slow done for {tag}"], "the job has the task's result", answer)


async def play(client: Caller, kind: str) -> None:
    if kind == "fast":
        await client.tools()
        await inline(client)
        return print("fast calls inline")
    if kind == "elicit-job":
        await as_asked(client)
        return print("answered before and after the handle")
    if kind == "required":
        await as_required(client)
        return print("a job for the server's own task")
    waited = await (as_task if kind == "task" else as_job)(client)
    print(f"handle after {waited:.2f} s")


def main(connect: Callable[[str, str], Awaitable[None]]) -> None:
    """`client.py URL KIND`: prints one line; fails loudly."""
    try:
        asyncio.run(asyncio.wait_for(connect(sys.argv[1], sys.argv[2]), 60))
    except BaseException as error:
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        print(f"{type(error).__name__}: {str(error)[:600]}")
        sys.exit(1)
