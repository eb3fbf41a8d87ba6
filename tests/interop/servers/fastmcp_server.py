"""A server of the PyPI package fastmcp: Streamable HTTP with sessions."""

import asyncio
import sys
from collections import Counter

from fastmcp import Context, FastMCP
from pydantic import BaseModel

server = FastMCP("fastmcp")
seen: Counter[str] = Counter()


class Summary(BaseModel):
    count: int
    total: float


@server.tool
def add(a: int, b: int) -> str:
    return str(a + b)


@server.tool
async def slow(seconds: float, tag: str) -> str:
    seen[tag] += 1
    await asyncio.sleep(seconds)
    return f"slow done for {tag}"


@server.tool
async def summarize(values: list[float], seconds: float = 0) -> Summary:
    await asyncio.sleep(seconds)
    return Summary(count=len(values), total=sum(values))


@server.tool
async def steps(count: int, context: Context) -> str:
    for done in range(1, count + 1):
        await asyncio.sleep(0.1)
        await context.report_progress(done, count, f"step {done}")
    return f"{count} steps done"


@server.tool
def calls(tag: str) -> str:
    return str(seen[tag])


server.run(transport="http", host="127.0.0.1", port=int(sys.argv[1]), show_banner=False, log_level="WARNING")
