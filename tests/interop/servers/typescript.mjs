// A server of the official TypeScript SDK, 1.x: sessions, and either SSE answers with event ids that can be resumed,
// or JSON answers.
//
//   node typescript.mjs PORT sse|json

import { randomUUID } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";
import { InMemoryEventStore } from "@modelcontextprotocol/sdk/examples/shared/inMemoryEventStore.js";
import { createMcpExpressApp } from "@modelcontextprotocol/sdk/server/express.js";
import { McpServer } from "@modelcontextprotocol/sdk/server/mcp.js";
import { StreamableHTTPServerTransport } from "@modelcontextprotocol/sdk/server/streamableHttp.js";
import { isInitializeRequest } from "@modelcontextprotocol/sdk/types.js";
import * as z from "zod";

const [port, mode] = [Number(process.argv[2]), process.argv[3]];
const seen = new Map();
const text = (line) => ({ content: [{ type: "text", text: line }] });

function build() {
  const server = new McpServer({ name: `typescript-${mode}`, version: "1.0.0" });
  server.registerTool("add", { inputSchema: { a: z.number(), b: z.number() } }, async ({ a, b }) => text(`${a + b}`));
  server.registerTool(
    "slow",
    { inputSchema: { seconds: z.number(), tag: z.string() } },
    async ({ seconds, tag }) => {
      seen.set(tag, (seen.get(tag) ?? 0) + 1);
      await sleep(seconds * 1000);
      return text(`slow done for ${tag}`);
    },
  );
  server.registerTool(
    "summarize",
    {
      inputSchema: { values: z.array(z.number()), seconds: z.number().default(0) },
      outputSchema: { count: z.number(), total: z.number() },
    },
    async ({ values, seconds }) => {
      await sleep(seconds * 1000);
      const summary = { count: values.length, total: values.reduce((sum, value) => sum + value, 0) };
      return { ...text(JSON.stringify(summary)), structuredContent: summary };
    },
  );
  server.registerTool("steps", { inputSchema: { count: z.number() } }, async ({ count }, extra) => {
    const progressToken = extra._meta?.progressToken;
    for (let done = 1; done <= count; done++) {
      await sleep(100);
      if (progressToken !== undefined) {
        const params = { progressToken, progress: done, total: count, message: `step ${done}` };
        await extra.sendNotification({ method: "notifications/progress", params });
      }
    }
    return text(`${count} steps done`);
  });
  server.registerTool("calls", { inputSchema: { tag: z.string() } }, async ({ tag }) => text(`${seen.get(tag) ?? 0}`));
  return server;
}

const transports = new Map();
const app = createMcpExpressApp();

app.all("/mcp", async (request, response) => {
  let transport = transports.get(request.headers["mcp-session-id"]);
  if (!transport && request.method === "POST" && isInitializeRequest(request.body)) {
    transport = new StreamableHTTPServerTransport({
      sessionIdGenerator: () => randomUUID(),
      enableJsonResponse: mode === "json",
      eventStore: mode === "json" ? undefined : new InMemoryEventStore(),
      onsessioninitialized: (id) => transports.set(id, transport),
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
