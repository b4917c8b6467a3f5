// Questions to the server. An answer is a report, or what the same command prints with --json.

export class Refused extends Error {}

const answer = async (response) => {
  let document = null;
  try {
    document = await response.json();
  } catch {
    if (response.ok) throw new Refused("The server's answer was cut off. Try again.");
  }
  if (!response.ok) throw new Refused(document?.error ?? `The server answered ${response.status}.`);
  return document;
};

const reached = async (...request) => {
  try {
    return await fetch(...request);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Refused("The server cannot be reached. Is `hopscope web` still running?");
  }
};

const post = (path, body, signal) =>
  reached(path, {
    method: "POST",
    body: JSON.stringify(body),
    headers: { "Content-Type": "application/json" },
    credentials: "same-origin",
    signal,
  });

/** Exchange the token for a cookie, and take it out of the address. */
export const login = async () => {
  const words = new URLSearchParams(location.hash.slice(1));
  const token = words.get("token");
  if (!token) return;
  words.delete("token");
  history.replaceState(null, "", `${location.pathname}#${words}`);
  const response = await post("/api/session", { token });
  if (!response.ok) await answer(response);
};

export const about = async () => answer(await reached("/api/about", { credentials: "same-origin" }));

/** Ask anything: {ask: "report", name, options}, {ask: "heat", options, columns}, … (answers.py). */
export const ask = async (question, signal) => answer(await post("/api/ask", question, signal));

/** Have this host measured otherwise: {only: "--port 443"} or {cpu_by: "process"}; the stream says what becomes of it. */
export const measure = async (question) => {
  const response = await post("/api/measure", question);
  if (!response.ok) await answer(response);
};

/** A report of the selected part. */
export const report = (view, name, options = {}, signal = undefined) =>
  ask({ ask: "report", name, options: { ...view.selection(), ...options } }, signal);

/** Fetch an export, and give it to the browser as a download; return sentences on what is missing. */
export const download = async (form, name, options) => {
  const response = await reached(`/api/download/${form}?options=${encodeURIComponent(JSON.stringify(options))}`, {
    credentials: "same-origin",
  });
  if (!response.ok) await answer(response);
  const url = URL.createObjectURL(await response.blob());
  const link = document.createElement("a");
  link.href = url;
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 60_000);
  return JSON.parse(response.headers.get("Hopscope-Notes") ?? "[]");
};
