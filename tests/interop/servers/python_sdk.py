"""A server of the official Python SDK, 1.x: Streamable HTTP with sessions.

`slow` blocks: as a plain function it holds up the whole process, which is what many real servers do.
"""

import asyncio
import sys
import time
from collections import Counter

from mcp.server.fastmcp import Context, FastMCP
from pydantic import BaseModel

server = FastMCP("python-sdk", host="127.0.0.1", port=int(sys.argv[1]), log_level="WARNING")
seen: Counter[str] = Counter()
cut: Counter[str] = Counter()


class Summary(BaseModel):
    count: int
    total: float


@server.tool()
def add(a: int, b: int) -> str:
    return str(a + b)


@server.tool()
def slow(seconds: float, tag: str) -> str:
    seen[tag] += 1
    time.sleep(seconds)
    return f"slow done for {tag}"


@server.tool()
async def slow_async(seconds: float, tag: str) -> str:
    seen[tag] += 1
    try:
        await asyncio.sleep(seconds)
    except asyncio.CancelledError:
        cut[tag] += 1
        raise
    return f"slow_async done for {tag}"


@server.tool()
async def summarize(values: list[float], seconds: float = 0) -> Summary:
    await asyncio.sleep(seconds)
    return Summary(count=len(values), total=sum(values))


@server.tool()
async def steps(count: int, context: Context) -> str:
    for done in range(1, count + 1):
        await asyncio.sleep(0.1)
        await context.report_progress(done, count, f"step {done}")
    return f"{count} steps done"


@server.tool()
async def fail(seconds: float) -> str:
    await asyncio.sleep(seconds)
    raise RuntimeError("no mesh")


class Answer(BaseModel):
    word: str


@server.tool()
async def confirm(seconds: float, context: Context) -> str:
    await asyncio.sleep(seconds)
    answer = await context.elicit("Which word?", Answer)
    return f"{answer.action}: {answer.data.word if answer.action == 'accept' else None}"


@server.tool()
def cancelled(tag: str) -> str:
    return str(cut[tag])


@server.tool()
def calls(tag: str) -> str:
    return str(seen[tag])


server.run(transport="streamable-http")
