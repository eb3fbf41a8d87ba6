// A server of the official TypeScript SDK, 1.x: sessions, and either SSE answers with event ids that can be resumed,
// or JSON answers.
//
//   node typescript.mjs PORT sse|json

import { setTimeout as sleep } from "node:timers/promises";
import { InMemoryEventStore } from "@modelcontextprotocol/sdk/examples/shared/inMemoryEventStore.js";
import { McpServer } from "@modelcontextprotocol/sdk/server/mcp.js";
import { ElicitResultSchema } from "@modelcontextprotocol/sdk/types.js";
import * as z from "zod";
import { listen } from "./sessions.mjs";

const [port, mode] = [Number(process.argv[2]), process.argv[3]];
const [seen, cancelled] = [new Map(), new Map()];
const count = (map, tag) => map.set(tag, (map.get(tag) ?? 0) + 1);
const text = (line) => ({ content: [{ type: "text", text: line }] });

function build() {
  const server = new McpServer({ name: `typescript-${mode}`, version: "1.0.0" });
  server.registerTool("add", { inputSchema: { a: z.number(), b: z.number() } }, async ({ a, b }) => text(`${a + b}`));
  server.registerTool(
    "slow",
    { inputSchema: { seconds: z.number(), tag: z.string() } },
    async ({ seconds, tag }, extra) => {
      count(seen, tag);
      extra.signal.addEventListener("abort", () => count(cancelled, tag));
      await sleep(seconds * 1000, undefined, { signal: extra.signal });
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
  server.registerTool("fail", { inputSchema: { seconds: z.number() } }, async ({ seconds }) => {
    await sleep(seconds * 1000);
    throw new Error("no mesh");
  });
  server.registerTool("confirm", { inputSchema: { seconds: z.number() } }, async ({ seconds }, extra) => {
    await sleep(seconds * 1000);
    const requestedSchema = { type: "object", properties: { word: { type: "string" } }, required: ["word"] };
    const params = { mode: "form", message: "Which word?", requestedSchema };
    const answer = await extra.sendRequest({ method: "elicitation/create", params }, ElicitResultSchema);
    return text(`${answer.action}: ${answer.content?.word}`);
  });
  for (const [name, map] of Object.entries({ calls: seen, cancelled })) {
    server.registerTool(name, { inputSchema: { tag: z.string() } }, async ({ tag }) => text(`${map.get(tag) ?? 0}`));
  }
  return server;
}

listen(port, build, () => ({
  enableJsonResponse: mode === "json",
  eventStore: mode === "json" ? undefined : new InMemoryEventStore(),
}));
