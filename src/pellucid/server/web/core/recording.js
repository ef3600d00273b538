// Recordings: opened into the same store that the live feed fills.

import { wrongIn } from "./form.js";

export const LARGEST = 256e6;

/** The recording that `text` is. Throws an error that says what is wrong with it. */
export function parseRecording(text) {
  let data;
  try {
    data = JSON.parse(text);
  } catch {
    throw new Error("this file is no JSON: open one that /live/recording gave");
  }
  if (data?.version !== 1) throw new Error(`this is no recording of version 1, but of ${JSON.stringify(data?.version ?? null)}`);
  if (!Array.isArray(data.records?.steps) || !Array.isArray(data.records?.requests)) {
    throw new Error("this recording holds no steps and requests");
  }
  const wrong = wrongIn(data);
  if (wrong) throw new Error(`this recording is damaged, or of another version: ${wrong.slice(1)}`);
  return data;
}

/** The recording that a file is. Throws an error that says what is wrong with it. */
export async function readRecording(file) {
  if (file.size > LARGEST) throw new Error(`this file is larger than ${LARGEST / 1e6} MB`);
  return parseRecording(await file.text());
}

/** Hands the browser a file to keep. */
export function download(name, value) {
  const blob = new Blob([typeof value === "string" ? value : JSON.stringify(value)], { type: "application/json" });
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}
