#!/usr/bin/env python3
"""pages.py TANDEM DEMO OUTDIR: the pages of `tandem serve` and `tandem watch` in headless Chromium (SPEC W3, W4).

DEMO is a folder of `tandem demo` (corpus/, run/). Speaks in both languages, by keyboard; speed, seed, download, a recording, a token;
stops in the middle; wrong text; the server gone and back; a run that starts, trains, is killed, resumed and stopped; two runs overlaid. Saves a picture of each. $PAGES chooses one of them (speak, watch).
Fails if a page logs an exception, breaks its content policy, scrolls sideways, or has text of too little contrast.
"""
import atexit, base64, math, os, pathlib, shutil, signal, subprocess, sys, tempfile, time, wave

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from browser import PROBE, Chromium
from serving import Server


class Page:
    """A tab that types, waits and looks."""

    def __init__(self, browser, out):
        self.browser, self.out, self.problems = browser, out, []
        target = browser.call("Target.createTarget", url="about:blank")["targetId"]
        browser.session = browser.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            browser.call(f"{domain}.enable")

    def view(self, width=1280, scheme="light"):
        self.browser.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        self.browser.call("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)

    def open(self, url):
        self.browser.events.clear()
        self.browser.call("Page.navigate", url=url)
        self.browser.wait_for("Page.loadEventFired")

    def value(self, expression):
        found = self.browser.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in found:
            raise SystemExit(f"{expression}: {found['exceptionDetails']}")
        return found["result"].get("value")

    def until(self, expression, what, seconds=90):
        """Waits for a state; the limit is for what never comes."""
        end = time.monotonic() + seconds
        while not self.value(expression):
            if time.monotonic() > end:
                self.picture("failed", probe=False)
                raise SystemExit(f"never: {what} ({expression}); the page says {self.value('document.body.innerText')[:600]!r}")
            time.sleep(0.05)
        print(f"  {what}")

    def type(self, text):
        self.value("document.getElementById('text').select()")
        self.browser.call("Input.insertText", text=text)

    def key(self, key, code=0, modifiers=0, text=None):
        for kind in ("keyDown", "keyUp"):
            more = {"text": text} if text and kind == "keyDown" else {}
            self.browser.call("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code, modifiers=modifiers, **more)

    def picture(self, name, probe=True):
        if probe:
            found = self.value(PROBE)
            self.problems += [f"{name}: {problem}" for problem in found["problems"]]
        size = self.browser.call("Page.getLayoutMetrics")["cssContentSize"]
        clip = {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}
        shot = self.browser.call("Page.captureScreenshot", captureBeyondViewport=True, clip=clip)
        (self.out / f"{name}.png").write_bytes(base64.b64decode(shot["data"]))
        for event in self.browser.events:
            params = event.get("params", {})
            if event["method"] == "Runtime.exceptionThrown":
                self.problems.append(f"{name}: exception: {params['exceptionDetails'].get('text')}")
            elif event["method"] == "Log.entryAdded" and "Content Security Policy" in params["entry"]["text"]:
                self.problems.append(f"{name}: {params['entry']['text']}")
        self.browser.events.clear()


CONTROL, ENTER, TAB, ESCAPE, SPACE = 2, 13, 9, 27, 32
DONE = "document.getElementById('form').getAttribute('aria-busy') === 'false' && !document.getElementById('past').hidden"


SECONDS = "Number(document.querySelector('#history li .quiet').textContent.match(/([\\d.]+) s/)[1])"


def again(page, what):
    """Speaks what is there by Ctrl+Enter, and waits until it is in the history."""
    count = page.value("document.querySelectorAll('#history li').length")
    page.key("Enter", ENTER, CONTROL)
    page.until(f"document.querySelectorAll('#history li').length > {count} && {DONE}", what)


def choices(page):
    """Speed and seed by keyboard, what the server is asked for, and the file that is downloaded."""
    page.value("window.asked = []; window.plain = fetch; window.fetch = (to, more) => { if (more?.method === 'POST') asked.push(more.body); return plain(to, more); }; void 0")
    usual = page.value(SECONDS)
    page.value("document.getElementById('speed').focus()")
    page.key("End", 35)
    assert page.value("document.getElementById('speed-value').textContent") == "2.00"
    page.value("document.getElementById('seed').select()")
    page.browser.call("Input.insertText", text="7")
    again(page, "twice as fast, another seed")
    sent = page.value("JSON.parse(asked.at(-1))")
    assert (sent["speed"], sent["seed"]) == (2, 7), sent
    assert 0.4 < page.value(SECONDS) / usual < 0.7, (page.value(SECONDS), usual)
    # What cannot be asked for is said by the browser, and nobody is asked.
    page.value("document.getElementById('seed').select()")
    page.browser.call("Input.insertText", text="-3")
    before = page.value("asked.length")
    page.key("Enter", ENTER, CONTROL)
    assert page.value("document.querySelector('#seed:invalid') !== null && asked.length") == before
    page.value("Object.assign(document.getElementById('seed'), { value: 1 }); Object.assign(document.getElementById('speed'), { value: 1 }).dispatchEvent(new Event('input'))")
    with tempfile.TemporaryDirectory() as folder:
        page.browser.call("Browser.setDownloadBehavior", behavior="allow", downloadPath=folder)
        page.value("document.getElementById('download').focus()")
        page.key("Enter", ENTER, text="\r")
        end, found = time.monotonic() + 60, []
        while not (found := list(pathlib.Path(folder).glob("*.wav"))):
            assert time.monotonic() < end, "nothing is downloaded"
            time.sleep(0.05)
        with wave.open(str(found[0])) as file:
            seconds = file.getnframes() / file.getframerate()
            assert abs(seconds - page.value(SECONDS)) < 0.1, (seconds, page.value(SECONDS))
    print("  what is downloaded is a WAV file of what was heard")


def recordings(page, run):
    """A recording becomes a voice, and what is no recording is refused, from the page."""
    with tempfile.TemporaryDirectory() as folder:
        good, bad = pathlib.Path(folder) / "my voice.wav", pathlib.Path(folder) / "note.wav"
        with wave.open(str(good), "wb") as file:
            file.setparams((1, 2, 16000, 0, "NONE", ""))
            file.writeframes(b"".join(int(9000 * math.sin(n / 20) * math.sin(n / 3000)).to_bytes(2, "little", signed=True) for n in range(48000)))
        bad.write_text("no audio")
        page.value("document.getElementById('more').open = true")

        def upload(file):
            node = page.browser.call("Runtime.evaluate", expression="document.getElementById('upload')")["result"]["objectId"]
            page.browser.call("DOM.setFileInputFiles", files=[str(file)], objectId=node)

        upload(bad)
        page.until("!document.getElementById('problem').hidden", "what is no audio is refused")
        page.picture("speak-more")
        upload(good)
        page.until("document.getElementById('voice').value === 'my voice' && document.getElementById('problem').hidden", "a recording is a voice now")
        page.value("document.getElementById('text').focus()")
        again(page, "it speaks")
        assert page.value("JSON.parse(asked.at(-1)).voice") == "my voice"
        page.value("document.getElementById('more').open = false")


def token_page(tandem, run, page):
    """A server with a token: the page asks for it."""
    server = Server(tandem, "serve", run, "--token", "secret")
    page.view()
    page.open(f"{server.url}/?lang=en")
    page.until("!document.getElementById('problem').hidden && document.getElementById('more').open", "a token is asked for")
    page.picture("speak-token")
    page.value("document.getElementById('token').focus()")
    page.browser.call("Input.insertText", text="secret")
    page.key("Tab", TAB)
    page.until("document.getElementById('voice').options.length > 0 && document.getElementById('problem').hidden", "and taken")
    assert server.end() == 0
    server = Server(tandem, "watch", run, "--token", "secret")
    page.open(f"{server.url}/?lang=en")
    page.until("document.querySelector('input[type=password]') !== null", "so does the page of runs")
    page.picture("watch-token")
    page.value("document.querySelector('input').focus()")
    page.browser.call("Input.insertText", text="wrong")
    page.key("Enter", ENTER, text="\r")
    page.until("document.querySelector('.bad') !== null", "a wrong one is refused")
    page.value("document.querySelector('input').focus()")
    page.browser.call("Input.insertText", text="secret")
    page.key("Enter", ENTER, text="\r")
    page.until("document.querySelector('tr[data-run]') !== null && !location.search.includes('secret')", "the right one is not in the address")
    assert server.end() == 0


def speak_pages(tandem, run, page):
    server = Server(tandem, "serve", run)
    page.view()
    page.open(f"{server.url}/?lang=en")
    page.until("document.getElementById('voice').options.length > 0", "voices are listed")
    # By keyboard alone: the text has the focus, Ctrl+Enter speaks.
    page.browser.call("Input.insertText", text="Banana piano. A metal basket and a garden.")
    page.key("Enter", ENTER, CONTROL)
    page.until(DONE, "English is spoken")
    assert page.value("document.querySelectorAll('#history li').length") == 1
    assert page.value("document.getElementById('mel').width") > 100
    drawn = "new Set(document.getElementById('mel').getContext('2d').getImageData(0, 0, 100, 200).data).size"
    assert page.value(drawn) > 20, "the spectrogram has shades"
    # Tab leads to everything, in order.
    reached = []
    page.value("document.getElementById('text').focus()")
    for _ in range(8):
        page.key("Tab", TAB)
        reached.append(page.value("document.activeElement.id || document.activeElement.tagName"))
    wanted = ["model", "voice", "speed", "seed", "SUMMARY", "speak", "stop", "download"]
    assert reached == wanted, reached
    page.picture("speak-en")
    page.view(400, "dark")
    page.picture("speak-en-narrow-dark")
    page.view()

    choices(page)
    recordings(page, run)

    page.type("☃ snow")
    page.key("Enter", ENTER, CONTROL)
    page.until("document.getElementById('problem').textContent.includes('☃')", "a wrong character is named")
    page.picture("speak-wrong")

    page.type("A lamp and the rain. " * 60)
    page.key("Enter", ENTER, CONTROL)
    page.until("document.getElementById('status').textContent.startsWith('Sentence')", "the first of 60 sentences is heard")
    page.key("Escape", ESCAPE)
    page.until("document.getElementById('status').textContent.startsWith('Stopped')", "Escape stops it")
    page.until("fetch('/metrics').then(r => r.text()).then(t => /tandem_serve_requests 0/.test(t))", "the server has forgotten it")

    page.view(1280, "dark")
    page.open(f"{server.url}/?lang=fa")
    assert page.value("document.documentElement.dir") == "rtl"
    page.until("document.getElementById('voice').options.length > 0", "voices are listed")
    page.browser.call("Input.insertText", text="سلام باران. کتاب آسمان.")
    page.value("document.getElementById('speak').focus()")
    page.key(" ", SPACE, text=" ")
    page.until(DONE, "spoken from the Persian page, by the space bar on the button")
    page.picture("speak-fa-dark")
    page.view(400)
    page.picture("speak-fa-narrow")
    page.view()

    address = server.url.removeprefix("http://")
    assert server.end() == 0
    page.until("document.getElementById('problem').textContent.includes('سرور پاسخ نمی‌دهد')", "the page notices that the server is gone")
    page.picture("speak-gone")
    server = Server(tandem, "serve", run, listen=address)
    page.until("document.getElementById('problem').hidden && document.getElementById('status').textContent.includes('دوباره')", "and that it is back")
    assert server.end() == 0


def state(name):
    return f"document.querySelector('.state.{name}') !== null"


def watch_pages(tandem, demo, page):
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        runs = pathlib.Path(folder)
        train = lambda name, *more: [tandem, "train", "--train-data", str(demo / "corpus"), "--val-data", str(runs / "held-out"), "--checkpoint-dir", str(runs / name), "--model-size", "smoke",
                                     "--batch-size", "4", "--units", "characters", "--log-every", "1", "--sample-every", "20", "--json", *more]
        
        def start(*words):
            child = subprocess.Popen(train(*words), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            atexit.register(child.kill)
            return child

        # Samples are made of clips that are kept for validation.
        shutil.copytree(demo / "corpus", runs / "held-out")
        long = ("--max-steps", "10000000", "--epochs", "1000000", "--checkpoint-every", "20")
        server = Server(tandem, "watch", runs)
        page.view()
        page.open(f"{server.url}/?lang=en")
        page.until("document.body.innerText.includes('There are no runs here yet')", "an empty folder says so")
        child = start("first", *long)
        page.until(state("starting") + " || " + state("going"), "a run appears by itself")
        page.until(state("going"), "it trains")
        page.open(f"{server.url}/run?run=first&lang=en")
        page.until("Number(document.body.dataset.events || 0) >= 3", "events arrive")
        page.until("Boolean(document.querySelector('#plot-losses svg path') && document.querySelector('#samples audio'))", "losses are drawn, a sample can be heard")
        page.until("Array.from(document.querySelectorAll('#samples img')).some(i => { i.loading = 'eager'; return i.naturalWidth > 50; })", "its spectrogram is shown")
        page.value("document.querySelector('#settings details').open = true")
        page.picture("watch-run")
        child.send_signal(signal.SIGKILL)
        child.wait()
        page.until(state("killed"), "a kill is shown without a reload")
        assert page.value("document.querySelector('#settings details').open"), "what was opened stays open"
        child = start("first", *long)
        page.until(state("going") + " && document.body.innerText.includes('resumed 1×')", "so is a resume")
        child.send_signal(signal.SIGINT)
        child.wait()
        page.until(state("stopped"), "so is Ctrl-C")
        subprocess.run(train("second", "--max-steps", "40", "--lr", "0.0007"), check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        page.open(f"{server.url}/?lang=en")
        page.until("document.querySelectorAll('tr[data-run]').length === 2", "two runs")
        page.picture("watch-table")
        page.value("document.querySelectorAll('input[type=checkbox]').forEach(box => box.click())")
        page.value("void setTimeout(() => document.querySelector('form button').click(), 0)")
        page.until("Boolean(document.querySelector('#plot-overlay svg path'))", "their losses are overlaid")
        page.until("Boolean(document.querySelector('#settings .card'))", "and what their settings differ in")
        different = page.value("document.querySelector('#settings .card').innerText")
        assert "--lr" in different and "--batch-size" not in different, different
        page.picture("watch-overlay")
        page.view(400, "dark")
        page.open(f"{server.url}/run?run=first&run=second&lang=fa")
        assert page.value("document.documentElement.dir") == "rtl"
        page.picture("watch-overlay-fa-narrow-dark")
        page.view()
        assert server.end() == 0


def main(tandem, demo, out):
    demo, out = pathlib.Path(demo), pathlib.Path(out)
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        browser = Chromium(folder)
        try:
            page = Page(browser, out)
            parts = os.environ.get("PAGES", "speak watch").split()
            if "speak" in parts:
                speak_pages(tandem, demo / "run", page)
                token_page(tandem, demo / "run", page)
            if "watch" in parts:
                watch_pages(tandem, demo, page)
        finally:
            browser.process.kill()
            browser.process.wait()
    for problem in page.problems:
        print(problem, file=sys.stderr)
    return 1 if page.problems else 0


if __name__ == "__main__":
    if len(sys.argv) != 4:
        raise SystemExit(__doc__)
    sys.exit(main(*sys.argv[1:]))
