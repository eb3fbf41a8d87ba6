// Streamable HTTP with sessions, as users of the official TypeScript SDK, 1.x, serve it: one server for each session.

import { randomUUID } from "node:crypto";
import { createMcpExpressApp } from "@modelcontextprotocol/sdk/server/express.js";
import { StreamableHTTPServerTransport } from "@modelcontextprotocol/sdk/server/streamableHttp.js";
import { isInitializeRequest } from "@modelcontextprotocol/sdk/types.js";

export function listen(port, build, options) {
  const transports = new Map();
  const app = createMcpExpressApp();
  app.all("/mcp", async (request, response) => {
    let transport = transports.get(request.headers["mcp-session-id"]);
    if (!transport && request.method === "POST" && isInitializeRequest(request.body)) {
      transport = new StreamableHTTPServerTransport({
        sessionIdGenerator: () => randomUUID(),
        onsessioninitialized: (id) => transports.set(id, transport),
        ...options(),
      });
      await build().connect(transport);
    }
    if (!transport) {
      const error = { code: -32001, message: "Session not found" };
      response.status(request.headers["mcp-session-id"] ? 404 : 400).json({ jsonrpc: "2.0", id: null, error });
      return;
    }
    await transport.handleRequest(request, response, request.body);
  });
  app.listen(port, "127.0.0.1");
}
