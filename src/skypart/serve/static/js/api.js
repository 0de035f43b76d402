// Requests to the server: the API key, retries while it is busy, and error messages.

const MAX_RETRIES = 20;
let key = null;
try { key = sessionStorage.getItem("skypart-key"); } catch { /* storage may be off */ }

/** An error message for the user; `status` is the HTTP status, 0 if the server was not reached. */
export class Problem extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

export function setKey(value) {
  key = value;
  try { sessionStorage.setItem("skypart-key", value); } catch { /* then it lasts while the page is open */ }
}

function pause(seconds, signal) {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(resolve, seconds * 1000);
    signal?.addEventListener("abort", () => { clearTimeout(timer); reject(signal.reason); }, { once: true });
  });
}

async function errorMessage(response) {
  try {
    return (await response.json()).detail ?? response.statusText;
  } catch {
    return `the server responded with status ${response.status}`;
  }
}

/** fetch() that sends the key, retries while the server is busy, and throws a Problem for any other error. */
async function request(path, { signal, onBusy, ...options } = {}) {
  for (let attempt = 0; ; attempt += 1) {
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
    if (!busy || attempt >= MAX_RETRIES) throw new Problem(response.status, await errorMessage(response));
    const seconds = Math.max(1, Number(response.headers.get("Retry-After")) || 1);
    onBusy?.(seconds);
    await pause(seconds, signal);
  }
}

export async function getJson(path) {
  return (await request(path)).json();
}

/** The image at `path` as a Blob; null if there is none. */
export async function getImage(path, signal) {
  const response = await request(path, { signal });
  return response.status === 204 ? null : response.blob();
}

/** Send a photo with form fields; empty ones are left out. */
export async function sendPhoto(path, photo, fields, { signal, onBusy } = {}) {
  const body = new FormData();
  for (const [name, value] of Object.entries(fields)) {
    if (value !== "" && value !== null && value !== undefined) body.append(name, value);
  }
  body.append("photo", photo.blob, photo.name);
  return request(path, { method: "POST", body, signal, onBusy });
}
