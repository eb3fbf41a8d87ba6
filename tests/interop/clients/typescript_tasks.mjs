// Tasks as users of the official TypeScript SDK, 1.x, have them, and a question that comes in the middle of one.
//
// Each kind gets a connected client with its list of tools read, and gives back the line to print.

import { randomUUID } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";
import assert from "node:assert/strict";
import { CallToolResultSchema, CreateTaskResultSchema, ElicitRequestSchema } from "@modelcontextprotocol/sdk/types.js";
import * as z from "zod";

const EXTENSION = "io.modelcontextprotocol/tasks";
const RELATED = "io.modelcontextprotocol/related-task";
const WORD = "tangerine";
const HANDLE_WITHIN = 1.3;
const ENDED = ["completed", "failed", "cancelled"];

const Anything = z.looseObject({});
const texts = (result) => result.content.map((block) => block.text);
const shown = (value) => JSON.stringify(value);

/** What a client of this kind declares. */
export function capabilities(kind) {
  return {
    ...(kind === "task" || kind === "elicit-ext" ? { extensions: { [EXTENSION]: {} } } : {}),
    ...(kind.startsWith("elicit") ? { elicitation: { form: {} } } : {}),
  };
}

/** The tool that does not hold up the whole server, where there is one. */
const patient = (tools) => (tools.some((tool) => tool.name === "slow_async") ? "slow_async" : "slow");
const listed = (tools, name) => tools.find((tool) => tool.name === name);

/** As some editors do: look at the capability and at the tool, then ask for a task. */
async function start(client, tools, name, args) {
  assert.ok(client.getServerCapabilities().tasks?.requests?.tools?.call, "tasks for tools/call are declared");
  const support = listed(tools, name).execution?.taskSupport;
  assert.ok(["optional", "required"].includes(support), `${name} runs as a task: ${support}`);
  const params = { name, arguments: args, task: { ttl: 60_000 } };
  const begun = performance.now();
  const answer = await client.request({ method: "tools/call", params }, CreateTaskResultSchema);
  const waited = (performance.now() - begun) / 1000;
  assert.ok(waited <= HANDLE_WITHIN, `the task comes in time: ${waited.toFixed(2)} s`);
  assert.ok(!ENDED.includes(answer.task.status), `it has begun: ${shown(answer)}`);
  assert.ok(!("content" in answer), `it is no tool result: ${shown(answer)}`);
  return { task: answer.task, waited };
}

async function ended(client, { taskId, pollInterval }) {
  for (let poll = 0; poll < 100; poll++) {
    const task = await client.experimental.tasks.getTask(taskId);
    if (ENDED.includes(task.status)) return task;
    await sleep(Math.min(task.pollInterval ?? pollInterval ?? 500, 500));
  }
  throw new Error("the task does not end");
}

const resultOf = (client, { taskId }) => client.experimental.tasks.getTaskResult(taskId, CallToolResultSchema);

async function core({ client, tools, call }) {
  const tag = randomUUID();
  const { task, waited } = await start(client, tools, "slow", { seconds: 3, tag });
  const end = await ended(client, task);
  assert.equal(end.status, "completed", shown(end));
  for (const attempt of ["the first read", "a second read"]) {
    const result = await resultOf(client, task);
    assert.deepEqual(texts(result), [`slow done for ${tag}`], `${attempt}: ${shown(result)}`);
    assert.equal(result._meta?.[RELATED]?.taskId, task.taskId, `${attempt}: ${shown(result)}`);
  }
  assert.deepEqual(texts(await call("calls", { tag })), ["1"], "the server saw one call");
  const summary = await start(client, tools, "summarize", { values: [2, 3], seconds: 1 });
  const early = await resultOf(client, summary.task);
  assert.deepEqual(early.structuredContent, { count: 2, total: 5 }, "reading the result waits for it");
  if (listed(tools, "fail")) {
    const failing = await start(client, tools, "fail", { seconds: 1 });
    const failed = await ended(client, failing.task);
    assert.equal(failed.status, "failed", shown(failed));
    assert.match(failed.statusMessage ?? "", /no mesh/, `why is told to who never reads the result: ${shown(failed)}`);
    const result = await resultOf(client, failing.task);
    assert.ok(result.isError && texts(result)[0].includes("no mesh"), shown(result));
  }
  return `task after ${waited.toFixed(2)} s`;
}

async function streamed(client, name, args) {
  const messages = [];
  for await (const message of client.experimental.tasks.callToolStream({ name, arguments: args })) messages.push(message);
  const seen = shown(messages);
  assert.equal(messages[0].type, "taskCreated", seen);
  assert.ok(messages.slice(1, -1).every((message) => message.type === "taskStatus"), seen);
  assert.equal(messages.at(-1).type, "result", seen);
  return { result: messages.at(-1).result, messages };
}

async function stream({ client, tools, call }) {
  const tag = randomUUID();
  const { result, messages } = await streamed(client, "slow", { seconds: 3, tag });
  assert.deepEqual(texts(result), [`slow done for ${tag}`]);
  assert.deepEqual(texts(await call("calls", { tag })), ["1"], "the server saw one call");
  // A tool with an output schema: neither a task nor a late result may look like a result without structure.
  for (const seconds of [0, 2]) {
    const { result } = await streamed(client, "summarize", { values: [2, 3], seconds });
    assert.deepEqual(result.structuredContent, { count: 2, total: 5 }, shown(result));
  }
  if (listed(tools, "task_required")) {
    const { result } = await streamed(client, "task_required", { seconds: 1, tag });
    assert.deepEqual(texts(result), [`slow done for ${tag}`]);
  }
  return `${messages.length} messages, the result last`;
}

async function cancel({ client, tools, call }) {
  const tag = randomUUID();
  const { task } = await start(client, tools, patient(tools), { seconds: 30, tag });
  const begun = performance.now();
  const cancelled = await client.experimental.tasks.cancelTask(task.taskId);
  assert.equal(cancelled.status, "cancelled", shown(cancelled));
  assert.equal((await client.experimental.tasks.getTask(task.taskId)).status, "cancelled");
  await assert.rejects(client.experimental.tasks.cancelTask(task.taskId), { code: -32602 }, "once is enough");
  if (listed(tools, "cancelled")) {
    await assert.rejects(resultOf(client, task), { code: -32603 }, "there is no result");
    let stopped;
    for (let look = 0; look < 20 && stopped !== "1"; look++) {
      await sleep(100);
      [stopped] = texts(await call("cancelled", { tag }));
    }
    assert.equal(stopped, "1", "the server's call was cancelled");
  }
  return `cancelled within ${((performance.now() - begun) / 1000).toFixed(2)} s`;
}

/** Answers questions, when `ready` says so, and notes them. */
function answering(client, ready = Promise.resolve({ action: "accept", content: { word: WORD } })) {
  const asked = [];
  client.setRequestHandler(ElicitRequestSchema, async (request) => {
    asked.push(request.params);
    return await ready;
  });
  return asked;
}

async function elicit({ client, tools }) {
  const asked = answering(client);
  const { task } = await start(client, tools, "confirm", { seconds: 2 });
  assert.deepEqual(texts(await resultOf(client, task)), [`accept: ${WORD}`], "asked while the result is waited for");
  assert.deepEqual(asked.map((params) => params._meta?.[RELATED]?.taskId), [task.taskId], shown(asked));
  const { result, messages } = await streamed(client, "confirm", { seconds: 2 });
  assert.deepEqual(texts(result), [`accept: ${WORD}`], shown(messages));
  assert.equal(asked.length, 2, shown(asked));
  assert.equal(asked[1]._meta?.[RELATED]?.taskId, messages[0].task.taskId, shown(asked));
  return "answered while waited for, and while polled";
}

async function elicitJob({ client, call }) {
  const asked = answering(client);
  const early = await call("confirm", { seconds: 0 });
  assert.deepEqual(texts(early), [`accept: ${WORD}`], shown(early));
  const handle = JSON.parse(texts(await call("confirm", { seconds: 2.5 }))[0]);
  assert.equal(handle.status, "running", shown(handle));
  assert.equal(asked.length, 1, "it is asked within the first call, and after the handle of the second");
  for (let poll = 0; poll < 30; poll++) {
    const answer = await call("get_job_result", { job_id: handle.job_id });
    if (JSON.parse(texts(answer)[0]).status === "running") continue;
    assert.deepEqual(texts(answer).slice(1), [`accept: ${WORD}`], shown(answer));
    assert.equal(asked.length, 2, shown(asked));
    return "answered before and after the handle";
  }
  throw new Error("the job does not end");
}

async function elicitExt({ client, call }) {
  // The question may be put to this session's stream as well: an answer that comes later than the update is too late.
  let late;
  answering(client, new Promise((resolve) => (late = resolve)));
  const { taskId } = await call("confirm", { seconds: 2 });
  assert.ok(taskId, "the answer is a task");
  const get = () => client.request({ method: "tasks/get", params: { taskId } }, Anything);
  let task = await get();
  for (let poll = 0; poll < 50 && task.status === "working"; poll++) {
    await sleep(100);
    task = await get();
  }
  assert.equal(task.status, "input_required", shown(task));
  const [[key, question], ...more] = Object.entries(task.inputRequests);
  assert.equal(question.method, "elicitation/create", shown(task));
  assert.ok(more.length === 0 && !question.params._meta?.[RELATED], shown(task));
  const inputResponses = { [key]: { action: "accept", content: { word: WORD } } };
  const updated = await client.request({ method: "tasks/update", params: { taskId, inputResponses } }, Anything);
  assert.equal(updated.resultType, "complete", shown(updated));
  late({ action: "decline" });
  for (let poll = 0; poll < 50 && !ENDED.includes(task.status); poll++) {
    await sleep(100);
    task = await get();
  }
  assert.equal(task.status, "completed", shown(task));
  assert.deepEqual(texts(task.result), [`accept: ${WORD}`], shown(task));
  assert.equal(task.inputRequests, undefined, shown(task));
  return "answered by an update";
}

/** A tool of the server's that runs only as a task, called by a client that has none. */
async function required({ client, call }) {
  const tag = randomUUID();
  const handle = JSON.parse(texts(await call("task_required", { seconds: 3, tag }))[0]);
  assert.equal(handle.status, "running", shown(handle));
  for (let poll = 0; poll < 30; poll++) {
    const answer = await call("get_job_result", { job_id: handle.job_id });
    if (JSON.parse(texts(answer)[0]).status === "running") continue;
    assert.deepEqual(texts(answer).slice(1), [`slow done for ${tag}`], shown(answer));
    return "a job for the server's own task";
  }
  throw new Error("the job does not end");
}

export const kinds = {
  core,
  stream,
  cancel,
  elicit,
  "elicit-job": elicitJob,
  "elicit-ext": elicitExt,
  required,
};
