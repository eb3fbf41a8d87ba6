// A client of the official TypeScript SDK, 1.x, put through what `flow.py` puts the Python clients through.
//
//   node typescript.mjs URL job|task|fast, or a kind of typescript_tasks.mjs

import { randomUUID } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";
import assert from "node:assert/strict";
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import * as z from "zod";
import { play } from "./ending.mjs";
import { capabilities, kinds } from "./typescript_tasks.mjs";

const SLOW_SECONDS = 3;
const HANDLE_WITHIN = 1.3;
// A server that answers in JSON has no stream for progress: run.sh says so.
const PROGRESS = (process.env.SERVER_PROGRESS ?? "yes") === "yes";

const [url, kind] = process.argv.slice(2);
const client = new Client({ name: "interop", version: "1.0.0" }, { capabilities: capabilities(kind) });

const call = (name, args, options) => client.callTool({ name, arguments: args }, undefined, options);
const texts = (result) => result.content.map((block) => block.text);
const first = (result) => JSON.parse(texts(result)[0]);

async function inline() {
  assert.deepEqual(texts(await call("add", { a: 2, b: 3 })), ["5"], "a fast answer comes inline");
  const summary = await call("summarize", { values: [1, 2, 4] });
  assert.deepEqual(summary.structuredContent, { count: 3, total: 7 }, "structured content comes whole");
  let notified = 0;
  const steps = await call("steps", { count: 3 }, { onprogress: () => notified++ });
  assert.deepEqual(texts(steps), ["3 steps done"]);
  assert.ok(notified >= 3 || !PROGRESS, `progress reaches the client: ${notified}`);
}

async function deferred(tool, args) {
  const begun = performance.now();
  const answer = await call(tool, args);
  const waited = (performance.now() - begun) / 1000;
  const seen = JSON.stringify(answer);
  assert.ok(waited <= HANDLE_WITHIN, `the handle comes in time: ${waited.toFixed(2)} s, ${seen}`);
  assert.ok(!answer.isError, `the handle is no error: ${seen}`);
  const handle = first(answer);
  assert.equal(handle.status, "running", `the answer is a handle: ${seen}`);
  assert.ok(handle.message.includes(handle.job_id), `the handle names the next call: ${seen}`);
  return { answer, waited, jobId: handle.job_id };
}

async function jobResult(jobId) {
  for (let poll = 0; poll < 30; poll++) {
    const answer = await call("get_job_result", { job_id: jobId });
    if (first(answer).status !== "running") return answer;
  }
  throw new Error("the job does not end");
}

async function asJob(names) {
  assert.ok(names.includes("get_job_result"), `our tools are listed: ${names}`);
  let slowest = 0;
  for (const tool of ["slow", "slow_async"].filter((name) => names.includes(name))) {
    const tag = randomUUID();
    const { waited, jobId } = await deferred(tool, { seconds: SLOW_SECONDS, tag });
    slowest = Math.max(slowest, waited);
    const begun = performance.now();
    const poll = await call("get_job_result", { job_id: jobId, wait_s: 0 });
    assert.ok(performance.now() - begun < 1000, "a poll is answered while the upstream is busy");
    assert.equal(first(poll).status, "running", JSON.stringify(poll));
    for (const attempt of ["the first read", "a second read"]) {
      const answer = await jobResult(jobId);
      assert.equal(first(answer).status, "done", `${attempt}: ${JSON.stringify(answer)}`);
      assert.deepEqual(texts(answer).slice(1), [`${tool} done for ${tag}`], `${attempt} has the result`);
    }
    assert.deepEqual(texts(await call("calls", { tag })), ["1"], "the server saw one call");
  }
  const { jobId } = await deferred("summarize", { values: [2, 3], seconds: 2 });
  const answer = await jobResult(jobId);
  assert.deepEqual(answer.structuredContent, { count: 2, total: 5 }, "a job keeps structured content");
  return slowest;
}

async function asTask() {
  const tag = randomUUID();
  const { answer, waited, jobId } = await deferred("slow", { seconds: SLOW_SECONDS, tag });
  assert.equal(answer.resultType, "task", `the answer is a task: ${JSON.stringify(answer)}`);
  assert.equal(answer.taskId, jobId, "task and job are one");
  assert.equal(answer.status, "working", JSON.stringify(answer));
  let task;
  for (let poll = 0; poll < 50; poll++) {
    task = await client.request({ method: "tasks/get", params: { taskId: answer.taskId } }, z.looseObject({}));
    if (task.status !== "working") break;
    await sleep(200);
  }
  assert.equal(task.status, "completed", `the task completes: ${JSON.stringify(task)}`);
  assert.deepEqual(texts(task.result), [`slow done for ${tag}`], "the task carries the result");
  // The SDK's own reading of a task, by its own schema.
  const read = await client.experimental.tasks.getTask(answer.taskId);
  assert.equal(read.status, "completed", JSON.stringify(read));
  const job = await jobResult(jobId);
  assert.equal(texts(job).at(-1), `slow done for ${tag}`, "the same work reads as a job");
  assert.deepEqual(texts(await call("calls", { tag })), ["1"], "the server saw one call");
  return waited;
}

async function main() {
  await client.connect(new StreamableHTTPClientTransport(new URL(url)));
  const { tools } = await client.listTools();
  if (kinds[kind]) return await kinds[kind]({ client, tools, call });
  const names = tools.map((tool) => tool.name);
  await inline();
  if (kind === "fast") return "fast calls inline";
  const waited = await (kind === "task" ? asTask() : asJob(names));
  return `handle after ${waited.toFixed(2)} s`;
}

play(main, () => client.close());
