"""Many sessions, each with one slow call at the same time: every one gets a handle, every handle its own result.

asyncio and the standard library only. Prints what came back and what the proxy's process grew by.
"""

import argparse
import asyncio
import json
import re
import sys
import time


class Client:
    """One connection and one session; requests follow each other on it."""

    def __init__(self, port):
        self.port, self.session, self.number, self.writer = port, None, 0, None

    async def post(self, message):
        if self.writer is not None and self.reader.at_eof():
            self.close()
        if self.writer is None:
            self.reader, self.writer = await asyncio.open_connection("127.0.0.1", self.port)
        body = json.dumps(message).encode()
        head = (
            f"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1:{self.port}\r\nContent-Type: application/json\r\n"
            f"Accept: application/json, text/event-stream\r\nContent-Length: {len(body)}\r\n"
            "MCP-Protocol-Version: 2025-06-18\r\n"
        )
        if self.session:
            head += f"Mcp-Session-Id: {self.session}\r\n"
        self.writer.write(head.encode() + b"\r\n" + body)
        status = (await self.reader.readline()).decode()
        headers = {}
        while (line := await self.reader.readline()).strip():
            name, _, value = line.decode("latin-1").partition(":")
            headers[name.lower()] = value.strip()
        if headers.get("transfer-encoding", "").lower() == "chunked":
            payload = b""
            while size := int((await self.reader.readline()).split(b";")[0], 16):
                payload += (await self.reader.readexactly(size + 2))[:-2]
            await self.reader.readline()
        else:
            payload = await self.reader.readexactly(int(headers.get("content-length", 0)))
        if headers.get("connection", "").lower() == "close":
            self.close()
        if not 200 <= int(status.split()[1]) < 300:
            raise RuntimeError(f"{status.strip()}: {payload[:200]!r}")
        if headers.get("content-type", "").startswith("text/event-stream"):
            data = re.findall(rb"^data: ?(.+)$", payload, re.M)
            payload = data[-1]
        self.session = headers.get("mcp-session-id", self.session)
        return json.loads(payload) if payload.strip() else None

    async def request(self, method, params):
        self.number += 1
        answer = await self.post({"jsonrpc": "2.0", "id": self.number, "method": method, "params": params})
        if answer.get("id") != self.number or "result" not in answer:
            raise RuntimeError(f"{method}: {answer}")
        return answer["result"]

    async def tool(self, name, **arguments):
        return await self.request("tools/call", {"name": name, "arguments": arguments})

    async def open(self):
        about = {"name": "memory", "version": "1"}
        await self.request("initialize", {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": about})
        await self.post({"jsonrpc": "2.0", "method": "notifications/initialized"})

    def close(self):
        if self.writer:
            self.writer.close()
            self.writer = None


async def slow_call(client, number, seconds):
    """(got a handle, got its own result, seconds until the handle)"""
    word = f"word-{number}"
    begun = time.monotonic()
    answer = await client.tool("work", seconds=seconds, word=word)
    waited = time.monotonic() - begun
    handle = json.loads(answer["content"][0]["text"]) if answer["content"][0]["text"].startswith("{") else {}
    if handle.get("status") != "running":
        return False, False, waited
    for _ in range(60):
        answer = await client.tool("get_job_result", job_id=handle["job_id"])
        if json.loads(answer["content"][0]["text"])["status"] != "running":
            break
    text = answer["content"][-1]["text"]
    return True, text.startswith(f"{word} in {client.session} "), waited


def memory(pid, field):
    """KiB of one field of the process, as the kernel counts it."""
    with open(f"/proc/{pid}/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith(field + ":"))


async def each(coroutines, at_once):
    gate = asyncio.Semaphore(at_once)

    async def one(coroutine):
        async with gate:
            return await coroutine

    return await asyncio.gather(*(one(c) for c in coroutines), return_exceptions=True)


async def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--pid", type=int, required=True, help="the proxy, whose memory is read")
    parser.add_argument("--calls", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("--limit", type=int, default=60, help="MiB above idle")
    options = parser.parse_args()

    first = Client(options.port)
    await first.open()
    before = int((await first.tool("calls"))["content"][0]["text"])
    idle = memory(options.pid, "VmRSS")

    clients = [Client(options.port) for _ in range(options.calls)]
    opened = await each([c.open() for c in clients], 64)
    errors = [e for e in opened if isinstance(e, BaseException)]
    sessions = memory(options.pid, "VmRSS")
    outcomes = await each(
        [slow_call(c, n, options.seconds) for n, c in enumerate(clients)], options.calls
    )
    errors += [e for e in outcomes if isinstance(e, BaseException)]
    outcomes = [o for o in outcomes if not isinstance(o, BaseException)]
    peak, after = memory(options.pid, "VmHWM"), memory(options.pid, "VmRSS")
    calls = int((await first.tool("calls"))["content"][0]["text"]) - before
    for client in clients:
        client.close()

    handles = sum(o[0] for o in outcomes)
    right = sum(o[1] for o in outcomes)
    slowest = max((o[2] for o in outcomes), default=0)
    above = (peak - idle) / 1024
    print(f"{handles} handles, {right} right results of {options.calls}; the upstream saw {calls} calls; "
          f"slowest handle {slowest:.2f} s")
    print(f"memory: idle {idle / 1024:.1f} MiB, with sessions {sessions / 1024:.1f}, after {after / 1024:.1f}, "
          f"peak {peak / 1024:.1f}: {above:.1f} MiB above idle (limit {options.limit})")
    for error in errors[:3]:
        print(f"error: {error!r}")
    ok = handles == right == calls == options.calls and not errors and above <= options.limit
    sys.exit(0 if ok else 1)


asyncio.run(main())
