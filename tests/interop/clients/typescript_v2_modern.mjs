// What typescript_v2.mjs plays in its modern era: every request by itself, without a session, and the official package
// for tasks, which speaks those of the extension there.

import { randomUUID } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";
import assert from "node:assert/strict";
import {
  createTaskSessionFromClient,
  resultFromTaskOutcome,
  toolDeclarationFromMcpTool,
} from "@modelcontextprotocol/ext-tasks/client";

const VERSION = "2026-07-28";
const EXTENSION = "io.modelcontextprotocol/tasks";
const SLOW_SECONDS = 3;
const HANDLE_WITHIN = 1.3;
const WORD = "tangerine";

const capabilities = { elicitation: { form: {} }, extensions: { [EXTENSION]: {} } };
/** How the client is to be made for these kinds. */
export const options = { capabilities, versionNegotiation: { mode: "auto" } };

const texts = (result) => result.content.map((block) => block.text);
const shown = (value) => JSON.stringify(value);

/** The methods that went over the wire: what is handed to the transport as its `fetch` notes them. */
export const sent = [];
export async function noting(target, init) {
  if (init?.method === "POST") sent.push(JSON.parse(init.body).method);
  return await fetch(target, init);
}

// Below the SDK, which knows no result that is a task: takes the answers to its own requests before the SDK sees them.
class Raw {
  #transport;
  #waiting = new Map();
  /** Changes a result before anybody reads it. */
  change = (result) => result;

  constructor(transport) {
    this.#transport = transport;
    const deliver = transport.onmessage;
    transport.onmessage = (message, extra) => {
      const answer = message.method === undefined && this.#waiting.get(message.id);
      if (!answer) return deliver(message, extra);
      this.#waiting.delete(message.id);
      if (message.error) return answer({ kind: "error", error: message.error });
      answer({ kind: "result", result: this.change(message.result) });
    };
  }

  async dispatch(request, options) {
    const id = `raw-${randomUUID()}`;
    const answered = new Promise((resolve) => this.#waiting.set(id, resolve));
    await this.#transport.send({ ...request, jsonrpc: "2.0", id }, { requestSignal: options?.signal });
    return await answered;
  }
}

class Play {
  asked = [];

  constructor(client, transport, tools) {
    this.client = client;
    this.raw = new Raw(transport);
    this.tools = new Map(tools.map((tool) => [tool.name, toolDeclarationFromMcpTool(tool)]));
    this.session = createTaskSessionFromClient(client, {
      endpointId: "interop",
      tools: { currentTool: (name) => this.tools.get(name) },
      rawDispatch: (request, options) => this.raw.dispatch(request, options),
      v2RequestFraming: {
        protocolVersion: VERSION,
        clientInfo: { name: "interop", version: "1.0.0" },
        clientCapabilities: capabilities,
      },
      onInputRequest: async (request, { delivery }) => {
        this.asked.push(delivery);
        return { action: "accept", content: { word: WORD } };
      },
    });
  }

  async call(name, args) {
    const begun = performance.now();
    const execution = await this.session.callTool(name, args);
    return { execution, waited: (performance.now() - begun) / 1000 };
  }

  async immediate(name, args) {
    const { execution } = await this.call(name, args);
    assert.equal(execution.kind, "immediate", `${name} is answered inline`);
    return await settled(execution);
  }

  async task(name, args) {
    const { execution, waited } = await this.call(name, args);
    assert.equal(execution.kind, "task", `${name} runs as a task`);
    assert.ok(waited <= HANDLE_WITHIN, `the task comes in time: ${waited.toFixed(2)} s`);
    return { execution, waited };
  }
}

async function settled(execution) {
  const { outcome } = await execution.settle();
  return resultFromTaskOutcome(outcome);
}

async function modern(play) {
  assert.deepEqual(texts(await play.immediate("add", { a: 2, b: 3 })), ["5"], "a fast answer comes inline");
  // This package takes no inlined result that does not say it is one: the check above can fail.
  play.raw.change = ({ resultType, ...rest }) => rest;
  await assert.rejects(play.immediate("add", { a: 2, b: 3 }), "a result without resultType is refused");
  play.raw.change = (result) => result;
  const summary = await play.immediate("summarize", { values: [1, 2, 4] });
  assert.deepEqual(summary.structuredContent, { count: 3, total: 7 }, "structured content comes whole");
  let notified = 0;
  const steps = await play.client.callTool({ name: "steps", arguments: { count: 3 } }, { onprogress: () => notified++ });
  assert.deepEqual(texts(steps), ["3 steps done"]);
  assert.ok(notified >= 3, `progress reaches the client: ${notified}`);

  const tag = randomUUID();
  const { execution, waited } = await play.task("slow", { seconds: SLOW_SECONDS, tag });
  assert.deepEqual(texts(await settled(execution)), [`slow done for ${tag}`]);
  assert.deepEqual(texts(await play.immediate("calls", { tag })), ["1"], "the server saw one call");
  const late = await settled((await play.task("summarize", { values: [2, 3], seconds: 2 })).execution);
  assert.deepEqual(late.structuredContent, { count: 2, total: 5 }, shown(late));
  if (!play.tools.has("fail")) return `task after ${waited.toFixed(2)} s`;
  const failed = await settled((await play.task("fail", { seconds: 2 })).execution);
  assert.ok(failed.isError && /no mesh/.test(texts(failed)[0]), shown(failed));
  return `task after ${waited.toFixed(2)} s`;
}

async function cancel(play) {
  const tag = randomUUID();
  const name = play.tools.has("slow_async") ? "slow_async" : "slow";
  const { execution } = await play.task(name, { seconds: 30, tag });
  const begun = performance.now();
  await execution.cancel();
  const { outcome } = await execution.settle();
  assert.equal(outcome.status, "cancelled", shown(outcome));
  let stopped;
  for (let look = 0; look < 20 && stopped !== "1"; look++) {
    await sleep(100);
    [stopped] = texts(await play.immediate("cancelled", { tag }));
  }
  assert.equal(stopped, "1", "the server's call was cancelled");
  return `cancelled within ${((performance.now() - begun) / 1000).toFixed(2)} s`;
}

async function elicit(play) {
  const early = await play.immediate("confirm", { seconds: 0 });
  assert.deepEqual(texts(early), [`accept: ${WORD}`]);
  assert.deepEqual(play.asked, ["request-retry"], "a question before the handle is answered by a retry");
  const { execution } = await play.task("confirm", { seconds: 2 });
  assert.deepEqual(texts(await settled(execution)), [`accept: ${WORD}`]);
  assert.deepEqual(play.asked, ["request-retry", "task-update"], "one after it, by an update of the task");
  return "answered before and after the handle";
}

/** Plays one kind of the modern era with a connected client, after looking at what era that is. */
export async function playModern(kind, client, transport) {
  assert.equal(client.getProtocolEra(), "modern");
  assert.equal(client.getNegotiatedProtocolVersion(), VERSION);
  assert.deepEqual(client.getServerCapabilities().extensions?.[EXTENSION], {}, "the extension is discovered");
  const { tools } = await client.listTools();
  const play = new Play(client, transport, tools);
  try {
    const line = await { modern, "modern-cancel": cancel, "modern-elicit": elicit }[kind](play);
    assert.equal(sent[0], "server/discover");
    assert.ok(!sent.includes("initialize"), `no handshake: ${sent}`);
    return line;
  } finally {
    await play.session.close();
  }
}
