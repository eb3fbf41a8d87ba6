// A server of the official TypeScript SDK, 1.x, that speaks the tasks of 2025-11-25 by itself: what stands between may
// only pass its tasks on, and has to be their client for clients without tasks. The clients are proven against it, too.
//
//   node typescript_tasks.mjs PORT

import { setTimeout as sleep } from "node:timers/promises";
import { InMemoryTaskMessageQueue, InMemoryTaskStore } from "@modelcontextprotocol/sdk/experimental/tasks";
import { McpServer } from "@modelcontextprotocol/sdk/server/mcp.js";
import { ElicitResultSchema } from "@modelcontextprotocol/sdk/types.js";
import * as z from "zod";
import { listen } from "./sessions.mjs";

const seen = new Map();
const taskStore = new InMemoryTaskStore();
const text = (line) => ({ content: [{ type: "text", text: line }] });
const count = (tag) => seen.set(tag, (seen.get(tag) ?? 0) + 1);

// A tool whose work goes on behind a task; how it ends is the task's end.
const behind = (work) => ({
  createTask: async (args, extra) => {
    const task = await extra.taskStore.createTask({ ttl: extra.taskRequestedTtl ?? 60_000, pollInterval: 200 });
    const { taskId } = task;
    const finish = async (status, result) => {
      if ((await extra.taskStore.getTask(taskId)).status !== "cancelled") {
        await extra.taskStore.storeTaskResult(taskId, status, result);
      }
    };
    work(args, extra, taskId).then(
      (result) => finish("completed", result),
      (error) => finish("failed", { ...text(String(error)), isError: true }),
    );
    return { task };
  },
  getTask: (args, extra) => extra.taskStore.getTask(extra.taskId),
  getTaskResult: (args, extra) => extra.taskStore.getTaskResult(extra.taskId),
});

async function slow({ seconds, tag }) {
  count(tag);
  await sleep(seconds * 1000);
  return text(`slow done for ${tag}`);
}

async function summarize({ values, seconds }) {
  await sleep(seconds * 1000);
  const summary = { count: values.length, total: values.reduce((sum, value) => sum + value, 0) };
  return { ...text(JSON.stringify(summary)), structuredContent: summary };
}

async function confirm({ seconds }, extra, taskId) {
  await sleep(seconds * 1000);
  const requestedSchema = { type: "object", properties: { word: { type: "string" } }, required: ["word"] };
  const params = { mode: "form", message: "Which word?", requestedSchema };
  const relatedTask = { taskId };
  const answer = await extra.sendRequest({ method: "elicitation/create", params }, ElicitResultSchema, { relatedTask });
  await extra.taskStore.updateTaskStatus(taskId, "working");
  return text(`${answer.action}: ${answer.content?.word}`);
}

function build() {
  const capabilities = { tools: {}, tasks: { list: {}, cancel: {}, requests: { tools: { call: {} } } } };
  const options = { capabilities, taskStore, taskMessageQueue: new InMemoryTaskMessageQueue() };
  const server = new McpServer({ name: "typescript-tasks", version: "1.0.0" }, options);
  const task = (name, taskSupport, config, work) =>
    server.experimental.tasks.registerToolTask(name, { ...config, execution: { taskSupport } }, behind(work));
  const slowly = { inputSchema: { seconds: z.number(), tag: z.string() } };
  task("slow", "optional", slowly, slow);
  task("task_required", "required", slowly, slow);
  task("confirm", "optional", { inputSchema: { seconds: z.number() } }, confirm);
  const summary = {
    inputSchema: { values: z.array(z.number()), seconds: z.number().default(0) },
    outputSchema: { count: z.number(), total: z.number() },
  };
  task("summarize", "optional", summary, summarize);
  server.registerTool("add", { inputSchema: { a: z.number(), b: z.number() } }, async ({ a, b }) => text(`${a + b}`));
  server.registerTool("calls", { inputSchema: { tag: z.string() } }, async ({ tag }) => text(`${seen.get(tag) ?? 0}`));
  return server;
}

listen(Number(process.argv[2]), build, () => ({}));
