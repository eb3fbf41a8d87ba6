"""The example's upstream: one fast tool, and one that takes as long as it is told."""

import asyncio
import os

from mcp.server.fastmcp import Context, FastMCP

server = FastMCP("example", host=os.environ.get("HOST", "0.0.0.0"), port=int(os.environ.get("PORT", "8000")))


@server.tool()
def add(a: float, b: float) -> float:
    """Adds two numbers."""
    return a + b


@server.tool()
async def simulate(seconds: int, context: Context) -> str:
    """Runs a simulation for so many seconds and reports its progress."""
    for second in range(seconds):
        await asyncio.sleep(1)
        await context.report_progress(second + 1, seconds, f"second {second + 1} of {seconds}")
    return f"simulated {seconds} seconds"


server.run(transport="streamable-http")
