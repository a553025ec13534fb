// The official npm client.
import assert from "node:assert/strict";
import { test } from "node:test";
import OpenAI from "openai";
import { zodResponseFormat } from "openai/helpers/zod";
import { z } from "zod";
import { BASE, ECHO, KEY, MODEL, PARAMETERS, TEXT, THING, bytes, callOf } from "./asked.mjs";

const client = new OpenAI({ baseURL: BASE, apiKey: KEY, maxRetries: 0 });
const chat = client.chat.completions;
const asked = (content, fields = {}) => ({
  model: ECHO,
  messages: [{ role: "user", content }],
  ...fields,
});
const tools = [{ type: "function", function: { name: "measure", parameters: PARAMETERS } }];

test("plain, with usage", async () => {
  const answer = await chat.create(asked(TEXT));
  assert.equal(answer.choices[0].message.content, TEXT);
  assert.equal(answer.choices[0].finish_reason, "stop");
  assert.equal(answer.usage.completion_tokens, bytes(TEXT) + 1);
});

test("stream, with usage", async () => {
  const fields = { stream: true, stream_options: { include_usage: true } };
  let text = "";
  let last;
  for await (const chunk of await chat.create(asked(TEXT, fields))) {
    text += chunk.choices[0]?.delta.content ?? "";
    last = chunk;
  }
  assert.equal(text, TEXT);
  assert.equal(last.usage.completion_tokens, bytes(TEXT) + 1);
});

test("stream helper", async () => {
  const stream = chat.stream(asked(TEXT));
  assert.equal(await stream.finalContent(), TEXT);
});

test("a client that leaves a stream", async () => {
  const stream = await chat.create({ ...asked(TEXT, { stream: true }), model: MODEL });
  for await (const _ of stream) break;
  assert.ok(stream.controller.signal.aborted);
});

test("turns", async () => {
  const messages = [{ role: "system", content: "Repeat." }];
  for (const content of ["one", "two", "three"]) {
    messages.push({ role: "user", content });
    const answer = await chat.create({ model: ECHO, messages });
    assert.equal(answer.choices[0].message.content, content);
    messages.push(answer.choices[0].message);
  }
});

test("unknown model", async () => {
  const failed = chat.create({ ...asked(TEXT), model: "none" });
  await assert.rejects(failed, { status: 404, code: "model_not_found" });
});

for (const stream of [false, true]) {
  test(`a bad value says which, stream ${stream}`, async () => {
    const failed = chat.create(asked(TEXT, { temperature: 9, stream }));
    await assert.rejects(failed, { status: 400, param: "temperature", message: /temperature=9/ });
  });
}

test("tools and their results", async () => {
  const request = asked(callOf("measure"), { tools });
  const { message, finish_reason } = (await chat.create(request)).choices[0];
  assert.equal(finish_reason, "tool_calls");
  const [call] = message.tool_calls;
  assert.deepEqual(JSON.parse(call.function.arguments), THING);
  request.messages.push(message, { role: "tool", tool_call_id: call.id, content: "42" });
  assert.match((await chat.create(request)).choices[0].message.content, /42/);
});

test("tools of a stream", async () => {
  const stream = chat.stream(asked(callOf("measure"), { tools }));
  const call = await stream.finalFunctionToolCall();
  assert.equal(call.name, "measure");
  assert.deepEqual(JSON.parse(call.arguments), THING);
});

test("tools that the client runs", async () => {
  const seen = [];
  const run = { parse: JSON.parse, function: (thing) => seen.push(thing) && "measured" };
  const own = [{ type: "function", function: { name: "measure", parameters: PARAMETERS, ...run } }];
  const text = await chat.runTools(asked(callOf("measure"), { tools: own })).finalContent();
  assert.deepEqual(seen, [THING]);
  assert.match(text, /measured/);
});

for (const model of [ECHO, MODEL]) {
  test(`structured output of ${model}`, async () => {
    const shape = z.object({ name: z.string(), size: z.number().int() });
    const response_format = zodResponseFormat(shape, "thing");
    const fields = { model, response_format, temperature: 0, max_tokens: 150 };
    const request = asked(JSON.stringify(THING), fields);
    const { message } = (await chat.parse(request)).choices[0];
    assert.ok(shape.safeParse(message.parsed).success);
    request.messages.push(message, { role: "user", content: "again" });
    assert.ok((await chat.create(request)).choices[0].message.content);
  });
}

test("completions, whole and streamed", async () => {
  const request = { model: MODEL, prompt: "Once upon", max_tokens: 8, seed: 1 };
  const whole = await client.completions.create(request);
  let text = "";
  for await (const chunk of await client.completions.create({ ...request, stream: true }))
    text += chunk.choices[0].text;
  assert.equal(text, whole.choices[0].text);
});

test("models", async () => {
  const names = [];
  for await (const model of client.models.list()) names.push(model.id);
  assert.ok(names.includes(ECHO) && names.includes(MODEL));
});
