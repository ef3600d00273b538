// Drives a server with npm's openai client: node npm_openai.mjs URL URL_WITH_TOOLS, results as JSON.
import OpenAI from "openai";

const [url, urlWithTools] = process.argv.slice(2);
const at = (baseURL) => new OpenAI({ baseURL, apiKey: "none", maxRetries: 0 });
const client = at(url);
const messages = [{ role: "user", content: "Name three rivers." }];
const greedy = { model: "tiny", temperature: 0, max_tokens: 24 };
const found = {};

found.models = [];
for await (const model of client.models.list()) found.models.push(model.id);

const whole = await client.chat.completions.create({ ...greedy, messages });
found.chat = { text: whole.choices[0].message.content, usage: whole.usage };

const stream = await client.chat.completions.create({
  ...greedy, messages, stream: true, stream_options: { include_usage: true },
});
found.streamed = { text: "" };
for await (const chunk of stream) {
  found.streamed.text += chunk.choices[0]?.delta.content ?? "";
  if (chunk.usage) found.streamed.usage = chunk.usage;
}

const completion = await client.completions.create({ ...greedy, prompt: "One two three", stream: true });
found.completion = "";
for await (const chunk of completion) found.completion += chunk.choices[0].text;

const schema = {
  type: "object", properties: { name: { enum: ["Rhine", "Elbe"] } }, required: ["name"], additionalProperties: false,
};
const formed = await client.chat.completions.create({
  ...greedy, messages, response_format: { type: "json_schema", json_schema: { name: "river", schema, strict: true } },
});
found.formed = JSON.parse(formed.choices[0].message.content);

const tool = {
  type: "function",
  function: {
    name: "weather",
    parameters: {
      type: "object", properties: { city: { type: "string", maxLength: 8 } }, required: ["city"],
      additionalProperties: false,
    },
  },
};
const calling = at(urlWithTools).chat.completions.stream({
  ...greedy, max_tokens: 64, messages, tools: [tool], tool_choice: "required", parallel_tool_calls: false,
});
const called = (await calling.finalChatCompletion()).choices[0];
const call = called.message.tool_calls[0].function;
found.call = { name: call.name, keys: Object.keys(JSON.parse(call.arguments)), finish: called.finish_reason };

const response = client.responses.stream({ model: "tiny", temperature: 0, max_output_tokens: 24, input: "Hello" });
const kinds = new Set();
for await (const event of response) kinds.add(event.type);
found.response = { text: (await response.finalResponse()).output_text, kinds: [...kinds] };

const embedding = await client.embeddings.create({ model: "tiny", input: ["a river", "a lake"] });
found.embeddings = embedding.data.map((item) => item.embedding.length);

found.errors = [];
for (const wrong of [{ store: true }, { model: "other" }]) {
  try {
    await client.chat.completions.create({ ...greedy, messages, ...wrong });
  } catch (error) {
    found.errors.push({ kind: error.constructor.name, status: error.status, param: error.param });
  }
}

const left = await client.chat.completions.create({ ...greedy, max_tokens: 1000, messages, stream: true });
for await (const _ of left) break; // leaving the loop ends the request

console.log(JSON.stringify(found));
