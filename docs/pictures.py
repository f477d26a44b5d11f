"""Looks at pages in Chromium without a screen: python docs/pictures.py REPORT.html COMPARE.html SITE CONSOLE WATCH makes
the pictures of docs/pictures/ from the report of a run, a page of `strait compare --page`, a folder that docs/site.py has made, and
recordings of `strait run` and `strait watch` by script(1) in a terminal of 100 columns (docs/screen.py).
`problems` says what overflows, overlaps or is requested. Needs chromium (of Debian) in PATH.

It speaks to the browser over a pipe, so it needs no package, no port and no network.
"""

import base64
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

import screen

FOLDER = pathlib.Path(__file__).resolve().parent / "pictures"
MOST_BYTES = 300_000
# Name: page, width, height, whether it is dark.
PICTURES = {
    "report": ("report", 1400, 1300, False),
    "report-dark": ("report", 1400, 1300, True),
    "report-narrow": ("report", 400, 1300, False),
    "report-narrow-dark": ("report", 400, 1300, True),
    "compare": ("compare", 1400, 1000, False),
    "site": ("site", 1400, 900, False),
    "console": ("console", 936, 557, True),
    "watch": ("watch", 936, 557, True),
}
WIDTHS = (400, 1400, 2000)

# Elements whose content, or whose box, is wider than what is around it, unless that scrolls; texts of a chart that
# leave it or touch each other.
CHECK = """
(() => {
  const found = [], name = (e) => `${e.tagName}.${e.className.baseVal ?? e.className} "${e.textContent.trim().slice(0, 40)}"`;
  for (const e of document.body.querySelectorAll("*")) {
    if (e instanceof SVGElement && e.tagName !== "svg") continue;
    const box = e.getBoundingClientRect();
    if (box.width === 0 || ["SCRIPT", "STYLE", "OPTION"].includes(e.tagName)) continue;
    const scrolls = (x) => ["auto", "scroll", "hidden"].includes(getComputedStyle(x).overflowX);
    if (e.scrollWidth > e.clientWidth + 1 && e.clientWidth > 0 && !scrolls(e) && getComputedStyle(e).display !== "inline")
      found.push(`${name(e)} is ${e.scrollWidth} wide in ${e.clientWidth}`);
    const hidden = getComputedStyle(e).overflowX === "hidden" && getComputedStyle(e).textOverflow !== "ellipsis";
    if (hidden && e.clientWidth > 0 && e.scrollWidth > e.clientWidth + 1) found.push(`${name(e)} is cut at ${e.clientWidth}`);
    let around = e.parentElement;
    for (let x = around; x; x = x.parentElement) if (scrolls(x)) around = null;
    const outer = around?.getBoundingClientRect();
    if (outer?.width > 0 && (box.right > outer.right + 1 || box.left < outer.left - 1))
      found.push(`${name(e)} leaves ${name(around)}`);
  }
  for (const svg of document.querySelectorAll("svg")) {
    const all = svg.getBoundingClientRect(), texts = [...svg.querySelectorAll("text")].map((t) => [t, t.getBoundingClientRect()]);
    texts.forEach(([text, box], i) => {
      if (box.left < all.left - 1 || box.right > all.right + 1 || box.top < all.top - 1 || box.bottom > all.bottom + 1)
        found.push(`${name(text)} leaves its chart`);
      for (const [other, b] of texts.slice(i + 1))
        if (box.left < b.right && b.left < box.right && box.top < b.bottom - 2 && b.top < box.bottom - 2) found.push(`${name(text)} touches ${name(other)}`);
    });
  }
  if (document.documentElement.scrollWidth > innerWidth) found.push(`the page is ${document.documentElement.scrollWidth} wide`);
  return found;
})()
"""

# Tables are made once their fold has opened.
UNFOLD = """
new Promise((done) => {
  document.querySelectorAll("details").forEach((one) => { one.open = true; });
  requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(done)));
})
"""


def chromium():
    """The browser, or None."""
    return shutil.which("chromium") or shutil.which("chromium-browser")


class Browser:
    """One page of a browser. Use it in `with`."""

    def __init__(self):
        self.profile = tempfile.TemporaryDirectory(prefix="strait-chromium-", ignore_cleanup_errors=True)
        command_read, self.commands = os.pipe()
        self.replies, reply_write = os.pipe()
        # The browser reads from descriptor 3 and writes to 4.
        words = [chromium(), "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
                 "--remote-debugging-pipe", f"--user-data-dir={self.profile.name}", "about:blank"]
        script = f'exec "$@" 3<&{command_read} 4>&{reply_write}'
        self.process = subprocess.Popen(
            ["bash", "-c", script, "bash", *words], pass_fds=(command_read, reply_write),
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(command_read)
        os.close(reply_write)
        self.unread, self.number, self.session, self.requests, self.loaded = b"", 0, None, [], False
        pages = self.call("Target.getTargets")["targetInfos"]
        page = next(one["targetId"] for one in pages if one["type"] == "page")
        self.session = self.call("Target.attachToTarget", targetId=page, flatten=True)["sessionId"]
        for domain in ("Page", "Network", "Runtime"):
            self.call(f"{domain}.enable")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        os.close(self.commands)
        self.process.kill()
        self.process.wait()
        os.close(self.replies)
        self.profile.cleanup()

    def read(self):
        while b"\0" not in self.unread:
            more = os.read(self.replies, 1 << 16)
            if not more:
                raise RuntimeError("chromium has ended")
            self.unread += more
        line, self.unread = self.unread.split(b"\0", 1)
        message = json.loads(line)
        if message.get("method") == "Network.requestWillBeSent":
            self.requests.append(message["params"]["request"]["url"])
        elif message.get("method") == "Page.loadEventFired":
            self.loaded = True
        return message

    def call(self, method, **parameters):
        self.number += 1
        message = {"id": self.number, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.commands, json.dumps(message).encode() + b"\0")
        while (reply := self.read()).get("id") != self.number:
            pass
        if "error" in reply:
            raise RuntimeError(f"{method}: {reply['error']['message']}")
        return reply["result"]

    def open(self, page, width, height, dark):
        """Loads a page at this size."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        colours = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[colours])
        self.requests, self.loaded = [], False
        self.call("Page.navigate", url=pathlib.Path(page).resolve().as_uri())
        while not self.loaded:
            self.read()

    def evaluate(self, script):
        result = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in result:
            raise RuntimeError(result["exceptionDetails"]["exception"]["description"])
        return result["result"].get("value")

    def picture(self):
        return base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"])


def problems(browser, page, width, dark, site=None):
    """What is wrong with a page at this width, a sentence each. One of a site may load files of the site, and its theme has
    boxes that leave others on purpose: there only the width of the page counts."""
    browser.open(page, width, 1000, dark)
    found = browser.evaluate(CHECK)
    browser.evaluate(UNFOLD)
    found += browser.evaluate(CHECK)
    if site:
        found = [one for one in found if one.startswith("the page is")]
    own = pathlib.Path(site or page).resolve().as_uri()
    requested = [url for url in browser.requests if url != own and not (site and url.startswith((own + "/", "data:")))]
    return found + [f"it requests {url}" for url in requested]


def make(report, compare, site, console, watch, scratch):
    FOLDER.mkdir(exist_ok=True)
    pages = {"report": report, "compare": compare, "site": pathlib.Path(site) / "site/docs/runs/index.html"}
    for name, recording in (("console", console), ("watch", watch)):
        pages[name] = scratch / f"{name}.html"
        pages[name].write_text(screen.page_of(recording))
    with Browser() as browser:
        for name, (of, width, height, dark) in PICTURES.items():
            own = pathlib.Path(site) / "site" if of == "site" else None
            for problem in problems(browser, pages[of], width, dark, own):
                sys.exit(f"{pages[of]} at {width} pixels: {problem}")
            browser.open(pages[of], width, height, dark)
            picture = browser.picture()
            if len(picture) > MOST_BYTES:
                sys.exit(f"{name}.png has {len(picture)} bytes, {MOST_BYTES} allowed")
            (FOLDER / f"{name}.png").write_bytes(picture)
            print(f"{FOLDER / name}.png: {len(picture)} bytes")


if __name__ == "__main__":
    if len(sys.argv) != 6:
        sys.exit(__doc__.split("\n\n")[0])
    with tempfile.TemporaryDirectory() as folder:
        make(*sys.argv[1:], pathlib.Path(folder))
