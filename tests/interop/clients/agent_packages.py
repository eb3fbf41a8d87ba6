"""The MCP classes of two agent packages, called as their agents call them, with no model in the loop.

    agent_packages.py openai-agents|pydantic-ai URL job|modern-job

Both find out the era by themselves and declare no tasks: `job` wants them to end in a session of their own, because the
server has sessions alone, `modern-job` in none.
"""

import json
import sys
import time
import uuid
from collections.abc import Awaitable, Callable
from typing import Any

import flow
from flow import check
from modern import Noting

# What a tool answered, as the package hands it to its agent.
Call = Callable[[str, flow.Json], Awaitable[str]]


async def openai_agents(url: str, play: Callable[[list[str], Call], Awaitable[None]]) -> None:
    from agents.mcp import MCPServerStreamableHttp

    async with MCPServerStreamableHttp(params={"url": url}) as server:

        async def call(name: str, arguments: flow.Json) -> str:
            result = await server.call_tool(name, arguments)
            return "\n".join(block.text for block in result.content)

        await play([tool.name for tool in await server.list_tools()], call)


async def pydantic_ai(url: str, play: Callable[[list[str], Call], Awaitable[None]]) -> None:
    from pydantic_ai.mcp import MCPToolset

    async with MCPToolset(url) as toolset:

        async def call(name: str, arguments: flow.Json) -> str:
            result: Any = await toolset.direct_call_tool(name, arguments)
            parts = result if isinstance(result, list) else [result]
            return "\n".join(part if isinstance(part, str) else json.dumps(part) for part in parts)

        await play([tool.name for tool in await toolset.list_tools()], call)


async def job(names: list[str], call: Call) -> None:
    check({"add", "slow", "get_job_result"} <= set(names), "the tools are listed, ours among them", names)
    answer = await call("add", {"a": 2, "b": 3})
    check(answer == "5", "a fast answer comes inline", answer)
    tag = uuid.uuid4().hex
    begun = time.monotonic()
    handle = json.loads(await call("slow", {"seconds": flow.SLOW_SECONDS, "tag": tag}))
    waited = time.monotonic() - begun
    check(waited <= flow.HANDLE_WITHIN, "the handle comes in time", f"{waited:.2f} s, {handle}")
    check(handle["status"] == "running", "the answer is a handle", handle)
    for _ in range(30):
        answer = await call("get_job_result", {"job_id": handle["job_id"]})
        if '"running"' not in answer:
            break
    check(f"slow done for {tag}" in answer, "the job has the result", answer)
    seen = await call("calls", {"tag": tag})
    check(seen == "1", "the server saw one call", seen)
    print(f"handle after {waited:.2f} s")


async def connect(url: str, kind: str) -> None:
    async def play(names: list[str], call: Call) -> None:
        check(Noting.sent[0] == "server/discover", "it asks for the era first", Noting.sent)
        check(("initialize" in Noting.sent) == (kind == "job"), "it ends in the era that it should", Noting.sent)
        await job(names, call)

    await {"openai-agents": openai_agents, "pydantic-ai": pydantic_ai}[package](url, play)


package = sys.argv.pop(1)
flow.main(connect)
