// A server of the official TypeScript SDK, 2.x, that takes requests of 2026-07-28 alone: no handshake, no session.
//
//   node typescript_stateless.mjs PORT

import { createServer } from "node:http";
import { setTimeout as sleep } from "node:timers/promises";
import { toNodeHandler } from "@modelcontextprotocol/node";
import { McpServer, createMcpHandler, inputRequired, inputResponse } from "@modelcontextprotocol/server";
import * as z from "zod";

const port = Number(process.argv[2]);
const [seen, cancelled] = [new Map(), new Map()];
const count = (map, tag) => map.set(tag, (map.get(tag) ?? 0) + 1);
const text = (line) => ({ content: [{ type: "text", text: line }] });
const tool = (server, name, shape, run) => server.registerTool(name, { inputSchema: z.object(shape) }, run);

function build() {
  const server = new McpServer({ name: "typescript-stateless", version: "1.0.0" });
  tool(server, "add", { a: z.number(), b: z.number() }, async ({ a, b }) => text(`${a + b}`));
  tool(server, "slow", { seconds: z.number(), tag: z.string() }, async ({ seconds, tag }, { mcpReq }) => {
    count(seen, tag);
    mcpReq.signal.addEventListener("abort", () => count(cancelled, tag));
    await sleep(seconds * 1000, undefined, { signal: mcpReq.signal });
    return text(`slow done for ${tag}`);
  });
  server.registerTool(
    "summarize",
    {
      inputSchema: z.object({ values: z.array(z.number()), seconds: z.number().default(0) }),
      outputSchema: z.object({ count: z.number(), total: z.number() }),
    },
    async ({ values, seconds }) => {
      await sleep(seconds * 1000);
      const summary = { count: values.length, total: values.reduce((sum, value) => sum + value, 0) };
      return { ...text(JSON.stringify(summary)), structuredContent: summary };
    },
  );
  tool(server, "steps", { count: z.number() }, async ({ count }, { mcpReq }) => {
    const progressToken = mcpReq._meta?.progressToken;
    for (let done = 1; done <= count; done++) {
      await sleep(100);
      if (progressToken !== undefined) {
        const params = { progressToken, progress: done, total: count, message: `step ${done}` };
        await mcpReq.notify({ method: "notifications/progress", params });
      }
    }
    return text(`${count} steps done`);
  });
  tool(server, "fail", { seconds: z.number() }, async ({ seconds }) => {
    await sleep(seconds * 1000);
    throw new Error("no mesh");
  });
  tool(server, "confirm", { seconds: z.number() }, async ({ seconds }, { mcpReq }) => {
    const answer = inputResponse(mcpReq.inputResponses, "word");
    if (answer.kind === "elicit") return text(`${answer.action}: ${answer.content?.word}`);
    await sleep(seconds * 1000);
    const requestedSchema = z.object({ word: z.string() });
    return inputRequired({ inputRequests: { word: inputRequired.elicit({ message: "Which word?", requestedSchema }) } });
  });
  for (const [name, map] of Object.entries({ calls: seen, cancelled })) {
    tool(server, name, { tag: z.string() }, async ({ tag }) => text(`${map.get(tag) ?? 0}`));
  }
  return server;
}

createServer(toNodeHandler(createMcpHandler(build, { legacy: "reject" }))).listen(port, "127.0.0.1");
