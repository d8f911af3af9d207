"""Counts what is wider than its page: every page of the built documentation in headless Chromium, at 1400 and 400 pixels.

python tests/support/page_widths.py site

A small server hands out the pages and a script; the script opens each page in a frame, measures, and sends back the result.
"""

import functools
import http.server
import json
import queue
import shutil
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import NamedTuple

WIDTHS = (1400, 400)
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-extensions",
    "--remote-debugging-port=0",
)
SECONDS = 300

SCRIPT = """<!doctype html><meta charset="utf-8"><body style="margin:0"><script>
const pages = PAGES, widths = WIDTHS, found = [];
const BLOCKS = "p, li, h1, h2, h3, h4, h5, h6, table, td, th, pre, pre > code, img, svg, blockquote, dl, .admonition";
const shown = element => element.tagName.toLowerCase() + (element.className ? "." + [...element.classList].join(".") : "")
  + " «" + element.textContent.trim().slice(0, 60).replace(/\\s+/g, " ") + "»";
async function measure(page, width) {
  const frame = document.createElement("iframe");
  frame.style.cssText = `width:${width}px;height:900px;border:0`;
  const loaded = new Promise(done => frame.onload = done);
  frame.src = page;
  document.body.append(frame);
  await loaded;
  const inside = frame.contentDocument, view = frame.contentWindow;
  await new Promise(done => setTimeout(done, 30));  // the theme wraps tables after the page is loaded
  const column = inside.querySelector(".md-content__inner");
  // On a phone the theme lets code reach the edges of the page.
  const edge = column && width > 800 ? column.getBoundingClientRect().right : width;
  const wide = inside.documentElement.scrollWidth > width ? [inside.documentElement] : [];
  for (const element of column ? column.querySelectorAll(BLOCKS) : []) {
    const box = element.getBoundingClientRect();
    const cut = element.matches("pre, pre > code, td, th") && element.scrollWidth > element.clientWidth + 1;
    if (box.width && (box.right > edge + 1 || cut)) wide.push(element);
  }
  for (const element of wide) found.push({page, width, element: shown(element)});
  frame.remove();
}
(async () => {
  for (const width of widths) for (const page of pages) await measure(page, width);
  await fetch("/result", {method: "POST", body: JSON.stringify(found)});
})();
</script>"""


class Wide(NamedTuple):
    """An element that does not fit."""

    page: str
    width: int
    element: str


def find_chromium() -> str | None:
    return next((path for name in NAMES if (path := shutil.which(name))), None)


class _Handler(http.server.SimpleHTTPRequestHandler):
    """The files of a folder, the script at /check, and the result that the script sends."""

    results: queue.Queue[bytes]
    script: bytes

    def do_GET(self) -> None:
        if self.path != "/check":
            return super().do_GET()
        self.send_response(200)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.end_headers()
        self.wfile.write(self.script)
        return None

    def do_POST(self) -> None:
        self.results.put(self.rfile.read(int(self.headers["Content-Length"])))
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Nothing: a hundred pages would be a thousand lines."""


def wide_elements(site: Path, chromium: str) -> list[Wide]:
    """What is wider than its page, on every page of a built site."""
    pages = sorted(str(file.relative_to(site)) for file in site.rglob("*.html") if file.name != "404.html")
    script = SCRIPT.replace("PAGES", json.dumps(pages)).replace("WIDTHS", json.dumps(WIDTHS))
    results: queue.Queue[bytes] = queue.Queue()
    handler = type("Handler", (_Handler,), {"results": results, "script": script.encode()})
    with (
        http.server.ThreadingHTTPServer(
            ("127.0.0.1", 0), functools.partial(handler, directory=str(site))
        ) as server,
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile,
    ):
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_address[1]}/check"
        command = [chromium, *FLAGS, f"--user-data-dir={profile}", "--window-size=1500,1000", address]
        browser = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            return [Wide(**row) for row in json.loads(results.get(timeout=SECONDS))]
        finally:
            browser.terminate()
            browser.wait(timeout=30)
            server.shutdown()


def main() -> None:
    chromium = find_chromium()
    if chromium is None:
        sys.exit(f"None of {', '.join(NAMES)} is on the path: install Chromium.")
    found = wide_elements(Path(sys.argv[1]), chromium)
    for row in found:
        print(f"{row.width:5d}  {row.page}: {row.element}")
    print(f"{len(found)} elements are wider than their page")


if __name__ == "__main__":
    main()
