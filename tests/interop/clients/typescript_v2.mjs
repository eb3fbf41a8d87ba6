// A client of the official TypeScript SDK, 2.x, in its legacy era, with the official package for tasks, which speaks
// those of 2025-11-25 there; the kinds of typescript_v2_modern.mjs let it find out the era by itself.
//
//   node typescript_v2.mjs URL core|cancel|elicit|modern|modern-cancel|modern-elicit

import { randomUUID } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";
import assert from "node:assert/strict";
import { Client, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";
import {
  createTaskSessionFromClient,
  resultFromTaskOutcome,
  toolDeclarationFromMcpTool,
} from "@modelcontextprotocol/ext-tasks/client";
import { play } from "./ending.mjs";
import * as era from "./typescript_v2_modern.mjs";

const RELATED = "io.modelcontextprotocol/related-task";
const WORD = "tangerine";
const HANDLE_WITHIN = 1.3;

const [url, kind] = process.argv.slice(2);
const modern = kind.startsWith("modern");
const capabilities = kind === "elicit" ? { elicitation: { form: {} } } : {};
const client = new Client({ name: "interop", version: "1.0.0" }, modern ? era.options : { capabilities });
const asked = [];
let tools;
let session;

const texts = (result) => result.content.map((block) => block.text);
const shown = (value) => JSON.stringify(value);

async function start(name, args) {
  const begun = performance.now();
  const execution = await session.callTool(name, args, { task: { preference: "prefer", retentionMs: 60_000 } });
  const waited = (performance.now() - begun) / 1000;
  assert.equal(execution.kind, "task", `${name} runs as a task`);
  assert.ok(waited <= HANDLE_WITHIN, `the task comes in time: ${waited.toFixed(2)} s`);
  return { execution, waited };
}

async function settled(execution) {
  const { outcome } = await execution.settle();
  return resultFromTaskOutcome(outcome);
}

async function core() {
  const tag = randomUUID();
  const { execution, waited } = await start("slow", { seconds: 3, tag });
  assert.deepEqual(texts(await settled(execution)), [`slow done for ${tag}`]);
  const count = await client.callTool({ name: "calls", arguments: { tag } });
  assert.deepEqual(texts(count), ["1"], "the server saw one call");
  // A tool with an output schema: neither a task nor a late result may look like a result without structure.
  for (const seconds of [0, 2]) {
    const result = await settled((await start("summarize", { values: [2, 3], seconds })).execution);
    assert.deepEqual(result.structuredContent, { count: 2, total: 5 }, shown(result));
  }
  if (tools.has("fail")) {
    const { outcome } = await (await start("fail", { seconds: 1 })).execution.settle();
    assert.equal(outcome.status, "failed", shown(outcome));
    assert.match(outcome.error.message, /no mesh/, "why is told to who never reads the result");
  }
  if (tools.has("task_required")) {
    const result = await settled((await start("task_required", { seconds: 1, tag })).execution);
    assert.deepEqual(texts(result), [`slow done for ${tag}`]);
  }
  return `task after ${waited.toFixed(2)} s`;
}

async function cancel() {
  const tag = randomUUID();
  const { execution } = await start(tools.has("slow_async") ? "slow_async" : "slow", { seconds: 30, tag });
  const begun = performance.now();
  await execution.cancel();
  const { outcome } = await execution.settle();
  assert.equal(outcome.status, "cancelled", shown(outcome));
  if (tools.has("cancelled")) {
    let stopped;
    for (let look = 0; look < 20 && stopped !== "1"; look++) {
      await sleep(100);
      [stopped] = texts(await client.callTool({ name: "cancelled", arguments: { tag } }));
    }
    assert.equal(stopped, "1", "the server's call was cancelled");
  }
  return `cancelled within ${((performance.now() - begun) / 1000).toFixed(2)} s`;
}

// This client never waits for the result before the end: it is asked on the session's own stream.
async function elicit() {
  const { execution } = await start("confirm", { seconds: 2 });
  assert.deepEqual(texts(await settled(execution)), [`accept: ${WORD}`]);
  assert.equal(asked.length, 1, shown(asked));
  assert.equal(asked[0].context.taskId, execution.handle.taskId, shown(asked));
  assert.equal(asked[0].request.params._meta?.[RELATED]?.taskId, execution.handle.taskId, shown(asked));
  return "answered on the session's stream";
}

async function main() {
  const transport = new StreamableHTTPClientTransport(new URL(url), { fetch: era.noting });
  await client.connect(transport);
  if (modern) return await era.playModern(kind, client, transport);
  assert.equal(client.getProtocolEra(), "legacy");
  tools = new Map((await client.listTools()).tools.map((tool) => [tool.name, toolDeclarationFromMcpTool(tool)]));
  session = createTaskSessionFromClient(client, {
    endpointId: "interop",
    tools: { currentTool: (name) => tools.get(name) },
    onInputRequest: async (request, { taskId }) => {
      asked.push({ request, context: { taskId } });
      return { action: "accept", content: { word: WORD } };
    },
  });
  assert.ok(session.capabilities.execution && session.capabilities.cancellation, shown(session.capabilities));
  return await { core, cancel, elicit }[kind]();
}

play(main, async () => {
  await session?.close();
  await client.close();
});
