// Requests to the coordinator, which a cookie signs in, and server-sent events over fetch, whose errors a page can read.

const FIRST_DELAY_MS = 500;
const LONGEST_DELAY_MS = 8000;

let user = "";

export function signedIn() {
  return user !== "";
}

export function setUser(name) {
  user = name;
}

export function request(path, signal) {
  return fetch(path, { signal, cache: "no-store" });
}

export function post(path, authorization = "") {
  return fetch(path, { method: "POST", headers: authorization ? { Authorization: authorization } : {} });
}

// Calls handlers[event](data) for each event, and handlers.open() for each connection, whose first events have the
// whole state. Connects again when the connection breaks. `status` receives "live", "waiting" or "denied", with a text.
// A page that is not visible has no connection.
export class EventStream {
  constructor(path, handlers, status) {
    this.path = path;
    this.handlers = handlers;
    this.status = status;
    this.closed = false;
    this.onVisibility = () => { document.hidden ? this.controller?.abort() : this.wake?.(); };
    document.addEventListener("visibilitychange", this.onVisibility);
    this.run();
  }

  close() {
    this.closed = true;
    document.removeEventListener("visibilitychange", this.onVisibility);
    this.controller?.abort();
    this.wake?.();
  }

  async run() {
    let delay = FIRST_DELAY_MS;
    while (!this.closed) {
      const started = Date.now();
      if (!document.hidden && await this.connect() === "denied") return;
      if (this.closed) return;
      this.status("waiting", "connection lost, retrying");
      if (Date.now() - started > LONGEST_DELAY_MS) delay = FIRST_DELAY_MS;
      await this.sleep(delay);
      delay = Math.min(2 * delay, LONGEST_DELAY_MS);
    }
  }

  sleep(milliseconds) {
    return new Promise((resolve) => {
      this.wake = resolve;
      if (!document.hidden) setTimeout(resolve, milliseconds);
    });
  }

  async connect() {
    this.controller = new AbortController();
    try {
      const response = await request(this.path, this.controller.signal);
      if (response.status === 401 || response.status === 403) {
        this.status("denied", (await response.json()).message);
        return "denied";
      }
      if (!response.ok) {
        this.status("waiting", (await response.text()).trim());
        return "refused";
      }
      this.status("live", "live");
      this.handlers.open?.();
      await this.read(response.body.getReader());
    } catch (error) {
      if (error.name !== "AbortError" && !(error instanceof TypeError)) throw error;
    }
    return "ended";
  }

  async read(reader) {
    const decoder = new TextDecoder();
    let text = "";
    for (;;) {
      const { done, value } = await reader.read();
      if (done || this.closed) return;
      text += decoder.decode(value, { stream: true });
      let end;
      while ((end = text.indexOf("\n\n")) >= 0) {
        this.dispatch(text.slice(0, end));
        text = text.slice(end + 2);
      }
    }
  }

  dispatch(block) {
    const found = /^event: (\w+)\ndata: (.*)$/.exec(block);
    if (found) this.handlers[found[1]]?.(JSON.parse(found[2]));
  }
}

// A list that the server sends as {keep, add}.
export function applyDelta(list, delta) {
  list.length = Math.min(list.length, delta.keep);
  list.push(...delta.add);
}
