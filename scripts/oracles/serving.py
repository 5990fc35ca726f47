"""A server of the program, for the oracles that ask one."""
import atexit, re, signal, subprocess, threading


class Server:
    """The program, once it listens."""

    def __init__(self, tandem, *arguments, listen="127.0.0.1:0"):
        words = [tandem, *map(str, arguments), "--listen", listen, "--lang", "en"]
        self.process = subprocess.Popen(words, stderr=subprocess.PIPE, text=True)
        atexit.register(self.process.kill)
        for line in self.process.stderr:
            if found := re.search(r"http://[^/ ]+", line):
                self.url = found.group(0)
                # Read as it comes: a pipe that is full would hold the program.
                threading.Thread(target=self.process.stderr.read, daemon=True).start()
                return
        raise SystemExit(f"it does not listen: {words}")

    def end(self):
        """SIGTERM; the code that it ends with."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout=120)
