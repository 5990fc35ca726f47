#!/usr/bin/env python3
"""browser.py FILE OUTDIR: opens an HTML report in headless Chromium, wide and narrow, light and dark.

Fails if the page logs an error, asks for anything outside itself, scrolls sideways, shows an empty plot, text in a plot
smaller than 9 pixels, or text whose contrast is below WCAG AA. Saves a picture of each. Needs only Chromium ($CHROMIUM).
"""
import base64, json, os, pathlib, shutil, subprocess, sys, tempfile, time

PROBE = r"""(() => {
  const problems = [];
  const root = document.documentElement;
  if (root.scrollWidth > innerWidth) problems.push(`the page scrolls sideways: ${root.scrollWidth} > ${innerWidth}`);
  const figures = [...document.querySelectorAll('figure')];
  for (const figure of figures) {
    const box = figure.querySelector('svg')?.getBoundingClientRect();
    if (!box || box.width <= 100 || box.height <= 50) problems.push(`${figure.id}: no plot, or too small`);
    if (!figure.querySelector('svg :is(rect, path)')) problems.push(`${figure.id}: nothing is drawn`);
    if (!figure.id || !figure.querySelector('figcaption')?.innerText.trim()) problems.push(`${figure.id}: no id or caption`);
    for (const text of figure.querySelectorAll('svg text')) {
      const size = parseFloat(getComputedStyle(text).fontSize) * text.getScreenCTM().a;
      const { x, right } = text.getBoundingClientRect();
      if (size < 9) problems.push(`${figure.id}: "${text.textContent}" is ${size.toFixed(1)} px`);
      if (x < box.x - 1 || right > box.right + 1) problems.push(`${figure.id}: "${text.textContent}" is cut off`);
    }
  }
  const rgb = color => (color.match(/[\d.]+/g) || []).map(Number);
  const light = color => rgb(color).slice(0, 3).map(c => c / 255)
    .map(c => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4)
    .reduce((sum, c, at) => sum + c * [0.2126, 0.7152, 0.0722][at], 0);
  const behind = e => { for (; e; e = e.parentElement) {
    const color = getComputedStyle(e).backgroundColor;
    if (!(rgb(color)[3] === 0)) return color;
  } return 'rgb(255, 255, 255)'; };
  for (const e of document.querySelectorAll('body *')) {
    if (![...e.childNodes].some(n => n.nodeType === 3 && n.data.trim()) || e.closest('style')) continue;
    const ink = e.closest('svg') ? getComputedStyle(e).fill : getComputedStyle(e).color;
    const [dark, bright] = [light(ink), light(behind(e))].sort((a, b) => a - b);
    const contrast = (bright + 0.05) / (dark + 0.05);
    if (contrast < 4.5) problems.push(`contrast ${contrast.toFixed(2)}: "${e.textContent.slice(0, 40)}"`);
  }
  return { problems, figures: figures.length, height: Math.ceil(root.scrollHeight) };
})()"""


class Chromium:
    """A browser on a pipe: it reads commands from its descriptor 3 and writes answers and events to 4."""

    def __init__(self, folder):
        (commands, self.write), (self.read, answers) = os.pipe(), os.pipe()
        program = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome") or "chromium"
        flags = ("--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
                 "--disable-component-update --disable-sync --hide-scrollbars --remote-debugging-pipe").split()
        shell = ["sh", "-c", f'exec "$@" 3<&{commands} 4>&{answers}', "sh"]
        self.process = subprocess.Popen([*shell, program, *flags, f"--user-data-dir={folder}"], stderr=subprocess.DEVNULL,
                                        pass_fds=(commands, answers))
        os.close(commands), os.close(answers)
        self.buffer, self.events, self.count, self.session = b"", [], 0, None

    def receive(self, seconds=60):
        os.set_blocking(self.read, False)
        until = time.monotonic() + seconds
        while b"\0" not in self.buffer:
            try:
                part = os.read(self.read, 1 << 20)
                if not part:
                    raise SystemExit("the browser ended")
                self.buffer += part
            except BlockingIOError:
                if time.monotonic() > until:
                    raise SystemExit("the browser does not answer")
                time.sleep(0.01)
        message, self.buffer = self.buffer.split(b"\0", 1)
        return json.loads(message)

    def call(self, method, **params):
        self.count += 1
        message = {"id": self.count, "method": method, "params": params} | ({"sessionId": self.session} if self.session else {})
        os.write(self.write, json.dumps(message).encode() + b"\0")
        while (answer := self.receive()).get("id") != self.count:
            self.events.append(answer)
        if "error" in answer:
            raise SystemExit(f"{method}: {answer['error']['message']}")
        return answer["result"]

    def wait_for(self, method):
        while all(event["method"] != method for event in self.events):
            self.events.append(self.receive())


def complaint(event, url):
    """What an event complains about, if it does."""
    params = event.get("params", {})
    match event["method"]:
        case "Runtime.exceptionThrown":
            return f"exception: {params['exceptionDetails'].get('text')}"
        case "Runtime.consoleAPICalled" if params["type"] in ("error", "warning"):
            return f"console: {params['args']}"
        case "Log.entryAdded" if params["entry"]["level"] in ("error", "warning"):
            return f"log: {params['entry']['text']}"
        case "Network.requestWillBeSent" if params["request"]["url"] != url and not params["request"]["url"].startswith("data:"):
            return f"asks for {params['request']['url']}"


def main(file, out):
    file, out = pathlib.Path(file).resolve(strict=True), pathlib.Path(out)
    out.mkdir(parents=True, exist_ok=True)
    problems = []
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        browser = Chromium(folder)
        try:
            target = browser.call("Target.createTarget", url="about:blank")["targetId"]
            browser.session = browser.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
            for domain in ("Page", "Runtime", "Log", "Network"):
                browser.call(f"{domain}.enable")
            for width in (1280, 400):
                for scheme in ("light", "dark"):
                    view = f"{width}-{scheme}"
                    feature = {"name": "prefers-color-scheme", "value": scheme}
                    browser.call("Emulation.setEmulatedMedia", features=[feature])
                    browser.call("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)
                    browser.events.clear()
                    browser.call("Page.navigate", url=file.as_uri())
                    browser.wait_for("Page.loadEventFired")
                    found = browser.call("Runtime.evaluate", expression=PROBE, returnByValue=True)
                    if "value" not in found["result"]:
                        raise SystemExit(f"{view}: the probe failed: {found}")
                    found = found["result"]["value"]
                    complaints = filter(None, (complaint(event, file.as_uri()) for event in browser.events))
                    problems += [f"{view}: {problem}" for problem in [*found["problems"], *complaints]]
                    clip = {"x": 0, "y": 0, "width": width, "height": found["height"], "scale": 1}
                    picture = browser.call("Page.captureScreenshot", captureBeyondViewport=True, clip=clip)
                    (out / f"{file.stem}-{view}.png").write_bytes(base64.b64decode(picture["data"]))
                    print(f"{file.name} {view}: {found['figures']} plots")
        finally:
            browser.process.kill()
            browser.process.wait()
    for problem in problems:
        print(problem, file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    if len(sys.argv) != 3:
        raise SystemExit(__doc__)
    sys.exit(main(*sys.argv[1:]))
