"""An MCP upstream with sessions whose `work` tool takes as long as it is told.

asyncio and the standard library only: a thousand waiting calls must not be what limits the run.
"""

import asyncio
import itertools
import json
import sys

NUMBERS = itertools.count(1)
CALLS = 0


def reply(status, body=b"", session=None):
    head = f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n"
    if body:
        head += "Content-Type: application/json\r\n"
    if session:
        head += f"Mcp-Session-Id: {session}\r\n"
    return head.encode() + b"\r\n" + body


async def result_of(message, session):
    global CALLS
    method, params = message["method"], message.get("params", {})
    if method == "initialize":
        return {
            "protocolVersion": params["protocolVersion"],
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "memory", "version": "1"},
        }
    if method == "tools/list":
        tools = [{"name": name, "inputSchema": {"type": "object"}} for name in ("work", "calls")]
        return {"tools": tools}
    if params["name"] == "calls":
        return {"content": [{"type": "text", "text": str(CALLS)}]}
    arguments = params["arguments"]
    CALLS += 1
    await asyncio.sleep(arguments["seconds"])
    return {"content": [{"type": "text", "text": f"{arguments['word']} in {session} {'.' * 800}"}]}


async def serve(reader, writer):
    try:
        while line := await reader.readline():
            http_method = line.split()[0]
            headers = {}
            while (line := await reader.readline()).strip():
                name, _, value = line.decode("latin-1").partition(":")
                headers[name.lower()] = value.strip()
            body = await reader.readexactly(int(headers.get("content-length", 0)))
            session = headers.get("mcp-session-id")
            if http_method != b"POST":
                writer.write(reply("200 OK" if http_method == b"DELETE" else "405 Method Not Allowed"))
            else:
                message = json.loads(body)
                if "id" not in message or "method" not in message:
                    writer.write(reply("202 Accepted"))
                else:
                    fresh = f"session-{next(NUMBERS)}" if message["method"] == "initialize" else None
                    result = await result_of(message, session)
                    answer = {"jsonrpc": "2.0", "id": message["id"], "result": result}
                    writer.write(reply("200 OK", json.dumps(answer).encode(), fresh))
            await writer.drain()
    except (ConnectionError, asyncio.IncompleteReadError):
        pass
    finally:
        writer.close()


async def main():
    address = sys.argv[2] if len(sys.argv) > 2 else "127.0.0.1"
    server = await asyncio.start_server(serve, address, int(sys.argv[1]), backlog=4096)
    async with server:
        await server.serve_forever()


asyncio.run(main())
