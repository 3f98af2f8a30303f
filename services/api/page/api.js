/**
 * What the page asks of the API, and in whose name.
 *
 * Rule 1: a token lives as long as the tab is open, in no cookie, and goes nowhere but into
 *         the header of a request to this page's own origin.
 * Rule 2: the page shows one partition, which its address names; what is asked by a name is asked
 *         of that one.
 * Rule 3: a stream is read by fetch, for EventSource can send no header, and tells no status.
 */

const KEPT = "muster-token";

export const token = () => sessionStorage.getItem(KEPT) ?? "";
export const keepToken = (value) => sessionStorage.setItem(KEPT, value);
export const forgetToken = () => sessionStorage.removeItem(KEPT);

export const DEFAULT_PARTITION = "default";
export const partition = new URLSearchParams(location.search).get("partition") || DEFAULT_PARTITION;

/** A path of the API with the partition that is shown. */
export const within = (path) => `${path}?partition=${encodeURIComponent(partition)}`;

/** An answer that says no: its status and its own sentence. */
export class Refused extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

function send(path, options = {}) {
  const named = token() ? { Authorization: `Bearer ${token()}` } : {};
  return fetch(path, { ...options, credentials: "omit", headers: { ...options.headers, ...named } });
}

async function valueOf(response) {
  try {
    return await response.json();
  } catch {
    return null; // no JSON: the status says it
  }
}

const refusal = (response, value) => new Refused(response.status, value?.message ?? `${response.status} ${response.statusText}`);

/** GET or POST JSON; null for 404. Throws Refused. */
export async function ask(path, options) {
  const response = await send(path, options);
  if (response.status === 404 || response.status === 405) return null;
  const value = await valueOf(response);
  if (!response.ok && !value?.sentence) throw refusal(response, value);
  return value;
}

/** Change something: its method, its path, the YAML of its body; the answer. Throws Refused. */
export async function change(method, path, body = "") {
  const response = await send(path, { method, headers: { "Content-Type": "application/yaml" }, body: body || undefined });
  const value = await valueOf(response);
  if (response.ok) return value;
  const [first] = value?.refused ?? [];
  throw first ? new Refused(response.status, `${first.field} ${first.message}`.trim()) : refusal(response, value);
}

/** The events of a stream, each its name and its data. Throws Refused, or what fetch throws. */
export async function* events(path, signal) {
  const response = await send(path, { signal });
  if (!response.ok) throw refusal(response, await valueOf(response));
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    let from = Math.max(0, text.length - 1); // what came before has no end in it
    text += value;
    for (let end; (end = text.indexOf("\n\n", from)) >= 0; from = 0) {
      const fields = text.slice(0, end).split("\n").map((line) => line.split(/: (.*)/s, 2));
      text = text.slice(end + 2);
      yield Object.fromEntries(fields);
    }
  }
}
