"""A headless Chromium, driven through its debugging pipe: with browser() as page: page.open(URL)."""
import base64, contextlib, json, os, select, shutil, subprocess, tempfile, time

PROGRAMS = ("chromium", "chromium-browser", "google-chrome")


def program():
    return next(filter(None, map(shutil.which, PROGRAMS)), None)


class Page:
    def __init__(self, to, answers):
        self.to, self.answers, self.rest, self.number = to, answers, b"", 0
        self.session, self.complaints, self.asked = None, [], []

    def receive(self, deadline):
        while b"\0" not in self.rest:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self.answers], [], [], left)[0]:
                return None
            got = os.read(self.answers, 1 << 20)
            if not got:
                raise SystemExit("the browser has ended")
            self.rest += got
        text, self.rest = self.rest.split(b"\0", 1)
        message = json.loads(text)
        method, what = message.get("method"), message.get("params", {})
        if method == "Runtime.exceptionThrown":
            details = what["exceptionDetails"]
            self.complaints.append(details.get("exception", {}).get("description", details["text"]))
        elif method == "Runtime.consoleAPICalled" and what["type"] in ("error", "warning"):
            self.complaints.append(str([a.get("value") for a in what["args"]]))
        elif method == "Log.entryAdded" and what["entry"]["level"] in ("error", "warning"):
            self.complaints.append(what["entry"]["text"] + " " + what["entry"].get("url", ""))
        elif method == "Network.requestWillBeSent":
            self.asked.append(what["request"]["url"])
        return message

    def call(self, method, seconds=30, **params):
        self.number += 1
        message = {"id": self.number, "method": method, "params": params}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.to, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + seconds
        while (got := self.receive(deadline)) is not None:
            if got.get("id") == self.number:
                if "error" in got:
                    raise SystemExit(f"{method}: {got['error']}")
                return got["result"]
        raise SystemExit(f"{method}: no answer")

    def js(self, expression):
        got = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in got:
            raise SystemExit(f"{expression}: {got['exceptionDetails']}")
        return got["result"].get("value")

    def until(self, expression, seconds=60):
        """Waits until it is true on the page; what it is in the end."""
        deadline = time.monotonic() + seconds
        while not (value := self.js(expression)) and time.monotonic() < deadline:
            time.sleep(0.1)
        return value

    def open(self, url):
        self.call("Page.navigate", url=url)

    def look(self, width, height=900, dark=False):
        """Sets how large and how bright the screen is."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600)
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])

    def key(self, key):
        extra = {"text": key} if len(key) == 1 else {}
        self.call("Input.dispatchKeyEvent", type="keyDown", key=key, **extra)
        self.call("Input.dispatchKeyEvent", type="keyUp", key=key)

    def screenshot(self, path, whole=True):
        got = self.call("Page.captureScreenshot", captureBeyondViewport=whole)
        with open(path, "wb") as file:
            file.write(base64.b64decode(got["data"]))


@contextlib.contextmanager
def browser():
    asks, to = os.pipe()
    answers, gives = os.pipe()
    folder = tempfile.mkdtemp()

    def place():  # 3 and 4 are where Chromium looks
        a, g = os.dup(asks), os.dup(gives)
        os.dup2(a, 3)
        os.dup2(g, 4)

    process = subprocess.Popen(
        [program(), "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars",
         "--no-first-run", "--disable-background-networking", "--disable-component-update", "--remote-debugging-pipe",
         "--user-data-dir=" + folder, "about:blank"],
        preexec_fn=place, close_fds=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
    os.close(asks)
    os.close(gives)
    page = Page(to, answers)
    try:
        target = page.call("Target.createTarget", 60, url="about:blank")["targetId"]
        page.session = page.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            page.call(domain + ".enable")
        yield page
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, 9)
        process.wait()
        shutil.rmtree(folder, ignore_errors=True)
