// A server of the official TypeScript SDK, 2.x, that speaks the stateless era and no other: no sessions, and every
// request has to be one of 2026-07-28 in all it says.
//
//   node typescript_stateless.mjs PORT

import { createServer } from "node:http";
import { Readable } from "node:stream";
import { setTimeout as sleep } from "node:timers/promises";
import { createMcpHandler, inputRequired, McpServer } from "@modelcontextprotocol/server";
import * as z from "zod";

const port = Number(process.argv[2]);
const [seen, cancelled] = [new Map(), new Map()];
const count = (map, tag) => map.set(tag, (map.get(tag) ?? 0) + 1);
const text = (line) => ({ content: [{ type: "text", text: line }] });
const signalOf = (context) => context.mcpReq?.signal ?? context.signal;

function build() {
  const server = new McpServer({ name: "typescript-stateless", version: "1.0.0" });
  const tool = (name, inputSchema, run, more = {}) =>
    server.registerTool(name, { inputSchema: z.object(inputSchema), ...more }, run);
  tool("add", { a: z.number(), b: z.number() }, async ({ a, b }) => text(`${a + b}`));
  tool("slow", { seconds: z.number(), tag: z.string() }, async ({ seconds, tag }, context) => {
    count(seen, tag);
    const signal = signalOf(context);
    signal.addEventListener("abort", () => count(cancelled, tag));
    await sleep(seconds * 1000, undefined, { signal });
    return text(`slow done for ${tag}`);
  });
  const summary = { outputSchema: z.object({ count: z.number(), total: z.number() }) };
  const values = { values: z.array(z.number()), seconds: z.number().default(0) };
  tool("summarize", values, async ({ values, seconds }) => {
    await sleep(seconds * 1000);
    const summary = { count: values.length, total: values.reduce((sum, value) => sum + value, 0) };
    return { ...text(JSON.stringify(summary)), structuredContent: summary };
  }, summary);
  tool("steps", { count: z.number() }, async ({ count }, context) => {
    const progressToken = context.mcpReq._meta?.progressToken;
    for (let done = 1; done <= count; done++) {
      await sleep(100);
      if (progressToken !== undefined) {
        const params = { progressToken, progress: done, total: count, message: `step ${done}` };
        await context.mcpReq.notify({ method: "notifications/progress", params });
      }
    }
    return text(`${count} steps done`);
  });
  tool("fail", { seconds: z.number() }, async ({ seconds }) => {
    await sleep(seconds * 1000);
    throw new Error("no mesh");
  });
  tool("confirm", { seconds: z.number() }, async ({ seconds }, context) => {
    const answer = context.mcpReq.inputResponses?.word;
    if (answer) return text(`${answer.action}: ${answer.content?.word}`);
    await sleep(seconds * 1000);
    const requestedSchema = { type: "object", properties: { word: { type: "string" } }, required: ["word"] };
    return inputRequired({ inputRequests: { word: inputRequired.elicit({ message: "Which word?", requestedSchema }) } });
  });
  for (const [name, map] of Object.entries({ calls: seen, cancelled })) {
    tool(name, { tag: z.string() }, async ({ tag }) => text(`${map.get(tag) ?? 0}`));
  }
  return server;
}

const handler = createMcpHandler(build, { legacy: "reject", onerror: (error) => console.error(error.message) });

createServer(async (request, response) => {
  const leaving = new AbortController();
  response.on("close", () => leaving.abort());
  const { method, headers } = request;
  const body = method === "POST" ? Readable.toWeb(request) : undefined;
  const asked = new Request(`http://127.0.0.1:${port}${request.url}`, {
    method, headers, body, duplex: "half", signal: leaving.signal,
  });
  const answer = await handler.fetch(asked);
  response.writeHead(answer.status, Object.fromEntries(answer.headers));
  if (answer.body) Readable.fromWeb(answer.body).on("error", () => response.destroy()).pipe(response);
  else response.end();
}).listen(port, "127.0.0.1");
