// Vercel's AI SDK with its provider for servers that speak OpenAI's API.
import assert from "node:assert/strict";
import { test } from "node:test";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { Output, generateText, stepCountIs, streamText, tool } from "ai";
import { z } from "zod";
import { BASE, ECHO, KEY, MODEL, TEXT, THING, bytes, callOf } from "./asked.mjs";

const provider = createOpenAICompatible({
  name: "starsd",
  baseURL: BASE,
  apiKey: KEY,
  includeUsage: true,
  supportsStructuredOutputs: true,
});
const shape = z.object({ name: z.string(), size: z.number().int() });
const echo = (prompt, fields = {}) => ({
  model: provider(ECHO),
  prompt,
  maxRetries: 0,
  ...fields,
});

function measuring(seen) {
  const execute = async (thing) => {
    seen.push(thing);
    return "measured";
  };
  return { measure: tool({ description: "Measures.", inputSchema: shape, execute }) };
}

test("plain, with usage", async () => {
  const answer = await generateText(echo(TEXT));
  assert.equal(answer.text, TEXT);
  assert.equal(answer.finishReason, "stop");
  assert.equal(answer.usage.outputTokens, bytes(TEXT) + 1);
});

test("stream, with usage", async () => {
  const answer = streamText(echo(TEXT));
  let text = "";
  for await (const piece of answer.textStream) text += piece;
  assert.equal(text, TEXT);
  assert.equal((await answer.usage).outputTokens, bytes(TEXT) + 1);
});

test("turns", async () => {
  const messages = [];
  for (const content of ["one", "two", "three"]) {
    messages.push({ role: "user", content });
    const answer = await generateText({ model: provider(ECHO), messages });
    assert.equal(answer.text, content);
    messages.push(...answer.response.messages);
  }
});

test("tools run in steps", async () => {
  const seen = [];
  const fields = { tools: measuring(seen), stopWhen: stepCountIs(2) };
  const answer = await generateText(echo(callOf("measure"), fields));
  assert.deepEqual(seen, [THING]);
  assert.match(answer.text, /measured/);
});

test("tools run in steps of a stream", async () => {
  const seen = [];
  const fields = { tools: measuring(seen), stopWhen: stepCountIs(2) };
  const answer = streamText(echo(callOf("measure"), fields));
  assert.match(await answer.text, /measured/);
  assert.deepEqual(seen, [THING]);
});

test("structured output", async () => {
  const answer = await generateText(
    echo(JSON.stringify(THING), { output: Output.object({ schema: shape }) }),
  );
  assert.deepEqual(answer.output, THING);
});

test("structured output of a real model, streamed", async () => {
  const output = Output.object({ schema: shape });
  const limits = { temperature: 0, maxOutputTokens: 150 };
  const prompt = "Vega is a star of size 3.";
  const answer = streamText({ model: provider(MODEL), prompt, output, ...limits });
  let last;
  for await (const partial of answer.partialOutputStream) last = partial;
  assert.ok(shape.safeParse(last).success);
});

test("unknown model", async () => {
  const failed = generateText({ ...echo(TEXT), model: provider("none") });
  await assert.rejects(failed, { statusCode: 404, message: /none/ });
});

test("a bad value says which", async () => {
  await assert.rejects(generateText(echo(TEXT, { temperature: 9 })), {
    statusCode: 400,
    message: /temperature=9/,
  });
});

test("completions", async () => {
  const answer = await generateText({
    model: provider.completionModel(MODEL),
    prompt: "Once upon",
    maxOutputTokens: 8,
  });
  assert.ok(answer.text.length > 0);
});
