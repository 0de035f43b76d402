// Talking to the server: the key, patience with a busy one, and one sentence where something is wrong.

const PATIENCE = 20;
let key = null;
try { key = sessionStorage.getItem("skypart-key"); } catch { /* storage may be off */ }

/** What went wrong, in one sentence; `status` is HTTP's, 0 where the server was not reached. */
export class Problem extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

export function setKey(value) {
  key = value;
  try { sessionStorage.setItem("skypart-key", value); } catch { /* kept while the page is open */ }
}

function pause(seconds, signal) {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(resolve, seconds * 1000);
    signal?.addEventListener("abort", () => { clearTimeout(timer); reject(signal.reason); }, { once: true });
  });
}

async function sentence(response) {
  try {
    return (await response.json()).detail ?? response.statusText;
  } catch {
    return `the server answered ${response.status}`;
  }
}

/** fetch() that sends the key, waits where the server is busy, and throws a Problem for any other refusal. */
async function ask(path, { signal, onBusy, ...options } = {}) {
  for (let turn = 0; ; turn += 1) {
    const headers = key ? { "X-API-Key": key } : {};
    let response;
    try {
      response = await fetch(path, { ...options, headers, signal });
    } catch (error) {
      if (signal?.aborted) throw error;
      throw new Problem(0, "The server cannot be reached. Is it still running?");
    }
    if (response.ok) return response;
    const busy = response.status === 503 && response.headers.has("Retry-After");
    if (!busy || turn >= PATIENCE) throw new Problem(response.status, await sentence(response));
    const seconds = Math.max(1, Number(response.headers.get("Retry-After")) || 1);
    onBusy?.(seconds);
    await pause(seconds, signal);
  }
}

export async function getJson(path) {
  return (await ask(path)).json();
}

/** The picture at `path` as a Blob; null where there is none. */
export async function getPicture(path, signal) {
  const response = await ask(path, { signal });
  return response.status === 204 ? null : response.blob();
}

/** Send a photo with fields; empty ones are left out. */
export async function sendPhoto(path, photo, fields, { signal, onBusy } = {}) {
  const body = new FormData();
  for (const [name, value] of Object.entries(fields)) {
    if (value !== "" && value !== null && value !== undefined) body.append(name, value);
  }
  body.append("photo", photo.blob, photo.name);
  return ask(path, { method: "POST", body, signal, onBusy });
}
