// What both clients ask, and where. ECHO repeats the last message, so an answer is known.
export const BASE = `${process.env.CONFORMANCE_URL}/v1`;
export const [ECHO, MODEL] = ["echo", "smollm2-135m-instruct"];
export const KEY = "none";
export const TEXT = "Hello, \u2603 and all the stars!";
export const THING = { name: "Vega", size: 3 };
export const PARAMETERS = {
  type: "object",
  properties: { name: { type: "string" }, size: { type: "integer" } },
  required: ["name", "size"],
  additionalProperties: false,
};
export const bytes = (text) => Buffer.byteLength(text);
export const callOf = (name) =>
  `<tool_call>\n${JSON.stringify({ name, arguments: THING })}\n</tool_call>`;
