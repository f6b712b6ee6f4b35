"""A headless Chromium, driven over its DevTools protocol through pipes: no WebSocket and no driver program."""

import base64
import contextlib
import json
import os
import select
import shutil
import signal
import subprocess
import tempfile
import time

from tests.support.daemon import wait_until

CHROMIUM = shutil.which("chromium")
REASON = "chromium is not installed: deploy/install_dependencies.sh --with-tests"


class Browser:
    """One page. A context manager. `problems` are errors of scripts, of the console, and of the content policy."""

    def __init__(self, width=1280, height=900, dark=False, flags=()):
        self.directory = tempfile.mkdtemp(prefix="muster-browser.")
        to_browser, self._out = os.pipe()
        self._in, from_browser = os.pipe()
        # Chromium reads commands from descriptor 3 and writes replies to 4.
        script = f'exec "$0" "$@" 3<&{to_browser} 4>&{from_browser}'
        self._process = subprocess.Popen(
            ["/bin/bash", "-c", script, CHROMIUM, "--headless=new", "--no-sandbox", "--disable-gpu",
             "--disable-dev-shm-usage", "--no-first-run", "--disable-extensions", "--disable-background-networking",
             "--hide-scrollbars", "--remote-debugging-pipe", f"--user-data-dir={self.directory}", *flags, "about:blank"],
            pass_fds=(to_browser, from_browser), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL, start_new_session=True)
        os.close(to_browser)
        os.close(from_browser)
        self._buffer = b""
        self._replies = {}
        self._next_id = 0
        self._session = None
        self.problems = []
        self.received_bytes = 0
        targets = self.call("Target.getTargets")["targetInfos"]
        page = next(target for target in targets if target["type"] == "page")
        self._session = self.call("Target.attachToTarget", targetId=page["targetId"], flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        self.resize(width, height)
        self.prefer("dark" if dark else "light")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        os.close(self._out)
        os.close(self._in)
        shutil.rmtree(self.directory, ignore_errors=True)

    # ---- the protocol

    def call(self, method, timeout=30, **parameters):
        self._next_id += 1
        number = self._next_id
        message = {"id": number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + timeout
        while number not in self._replies:
            self._read(deadline, method)
        reply = self._replies.pop(number)
        if "error" in reply:
            raise AssertionError(f"{method}: {reply['error']}")
        return reply["result"]

    def _read(self, deadline, what):
        if not select.select([self._in], [], [], max(0, deadline - time.monotonic()))[0]:
            raise AssertionError(f"timed out waiting for chromium: {what}")
        data = os.read(self._in, 1 << 20)
        if not data:
            raise AssertionError(f"chromium ended during {what}")
        *messages, self._buffer = (self._buffer + data).split(b"\0")
        for message in map(json.loads, messages):
            if "id" in message:
                self._replies[message["id"]] = message
            else:
                self._note(message["method"], message["params"])

    def _note(self, event, details):
        if event == "Runtime.exceptionThrown":
            thrown = details["exceptionDetails"]
            self.problems.append(thrown.get("exception", {}).get("description", thrown["text"]))
        elif event == "Runtime.consoleAPICalled" and details["type"] in ("error", "warning"):
            self.problems.append(str([one.get("value", one.get("description")) for one in details["args"]]))
        elif event == "Log.entryAdded" and details["entry"]["level"] in ("error", "warning"):
            self.problems.append(f"{details['entry']['text']} {details['entry'].get('url', '')}")
        elif event == "Network.dataReceived":
            self.received_bytes += details["dataLength"]

    # ---- the page

    def resize(self, width, height):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600)

    def prefer(self, scheme):
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def open(self, url):
        self.call("Page.navigate", url=url)
        self.wait("document.readyState === 'complete'")

    def evaluate(self, script):
        """The value of an expression, which may be a promise."""
        result = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in result:
            raise AssertionError(f"{script}: {result['exceptionDetails']}")
        return result["result"].get("value")

    def wait(self, script, timeout=20):
        """Polls until the expression is true, and returns its value."""
        try:
            return wait_until(lambda: self.evaluate(f"(() => {{ try {{ return {script}; }} catch {{ return null; }} }})()"),
                              timeout, script)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.text()}\nproblems: {self.problems}") from None

    def text(self, selector="body"):
        return self.evaluate(f"document.querySelector({json.dumps(selector)})?.innerText ?? ''")

    def press(self, key):
        """Presses a key such as "a", "Tab" or "Enter"."""
        codes = {"Backspace": 8, "Tab": 9, "Enter": 13, "Escape": 27,
                 "ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40}
        virtual = codes.get(key, 0)
        text = {"Enter": "\r"}.get(key, key if len(key) == 1 else "")
        self.call("Input.dispatchKeyEvent", type="keyDown", key=key, windowsVirtualKeyCode=virtual, text=text)
        self.call("Input.dispatchKeyEvent", type="keyUp", key=key, windowsVirtualKeyCode=virtual)

    def type(self, text):
        self.call("Input.insertText", text=text)

    def click(self, selector):
        self.wait(f"document.querySelector({json.dumps(selector)}) !== null")
        self.evaluate(f"document.querySelector({json.dumps(selector)}).click()")

    def screenshot(self, path):
        picture = self.call("Page.captureScreenshot", format="png")["data"]
        with open(path, "wb") as file:
            file.write(base64.b64decode(picture))

    def overflow(self):
        """Elements that extend beyond the width of the window, other than in boxes that scroll."""
        return self.evaluate("""(() => {
          const wide = document.documentElement.clientWidth + 1;
          if (document.documentElement.scrollWidth <= wide) return [];
          return [...document.querySelectorAll("body *")].filter((one) => one.getBoundingClientRect().right > wide)
            .map((one) => `${one.tagName}.${one.className} ${Math.round(one.getBoundingClientRect().right)}`).slice(0, 10);
        })()""")

    def low_contrast(self):
        """Texts whose contrast with their background is below that of WCAG AA."""
        return self.evaluate(_LOW_CONTRAST)


# Backgrounds here are opaque colours.
_LOW_CONTRAST = """(() => {
  const parse = (text) => text.match(/[\\d.]+/g).map(Number);
  const luminance = (colour) => {
    const [r, g, b] = parse(colour).map((value) => value / 255).map((v) => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const background = (element) => {
    for (let one = element; one; one = one.parentElement) {
      const colour = getComputedStyle(one).backgroundColor;
      const [, , , alpha = 1] = parse(colour);
      if (alpha === 1) return colour;
    }
    return "rgb(255, 255, 255)";
  };
  const found = [];
  for (const element of document.querySelectorAll("body *")) {
    const own = [...element.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim());
    if (!own || element.disabled || !element.checkVisibility()) continue;
    const style = getComputedStyle(element);
    const paint = element instanceof SVGElement ? style.fill : style.color;
    const [a, b] = [luminance(paint), luminance(background(element))].sort((x, y) => y - x);
    const contrast = (a + 0.05) / (b + 0.05);
    const large = parseFloat(style.fontSize) >= 24;
    if (contrast < (large ? 3 : 4.5)) found.push(`${contrast.toFixed(2)} ${element.tagName}.${element.getAttribute("class")}: ${element.textContent.slice(0, 40)}`);
  }
  return found.slice(0, 20);
})()"""
