#!/usr/bin/env python3
"""serve_load.py TANDEM RUN [--seconds 20] [--requests 2000]: what `tandem serve` does under load, on loopback (SPEC W2).

For 1, 8 and 64 clients, in turn in one server, a bounded time each: requests/s, p50/p95/p99 of the time to the first byte, CPU-seconds of
the server and its children per request. The same for 8 clients of a server that synthesizes one sentence at a time. Then so many
requests of 8 clients, with the memory of the server (RSS) after each tenth of them. Prints one JSON object.
"""
import argparse, http.client, json, os, pathlib, re, signal, subprocess, threading, time

TEXT = "Banana piano. A metal basket."


def cpu_seconds(pid):
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    # Its own, and that of processes which it waited for, such as espeak-ng.
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


def rss_bytes(pid):
    return int(re.search(r"VmRSS:\s+(\d+)", pathlib.Path(f"/proc/{pid}/status").read_text()).group(1)) * 1024


def ask(connection):
    """Seconds to the first byte of audio, and to the last."""
    body = json.dumps({"input": TEXT, "response_format": "pcm", "stream": True})
    began = time.monotonic()
    connection.request("POST", "/v1/audio/speech", body, {"Content-Type": "application/json"})
    response = connection.getresponse()
    assert response.status == 200, (response.status, response.read())
    assert response.read(1), "audio"
    first = time.monotonic() - began
    response.read()
    return first, time.monotonic() - began


def clients(address, count, go_on):
    firsts, failed, lock = [], [], threading.Lock()

    def work():
        connection = http.client.HTTPConnection(address, timeout=120)
        try:
            while go_on():
                first, _ = ask(connection)
                with lock:
                    firsts.append(first)
        except Exception as error:  # counted and shown: a load test that hides failures measures nothing
            failed.append(repr(error))

    threads = [threading.Thread(target=work) for _ in range(count)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    return sorted(firsts), failed


def start(args, *more):
    words = [args.tandem, "serve", args.run, "--listen", "127.0.0.1:0", "--max-requests", "128", "--lang", "en", *args.more.split(), *more]
    server = subprocess.Popen(words, stderr=subprocess.PIPE, text=True)
    address = next(found.group(1) for line in server.stderr if (found := re.search(r"http://([^/ ]+)", line)))
    clients(address, 1, iter([True] * 5 + [False]).__next__)
    return server, address


def metrics(address):
    connection = http.client.HTTPConnection(address)
    connection.request("GET", "/metrics")
    return {name: float(value) for name, value in re.findall(r"^tandem_serve_(\w+) ([\d.]+)$", connection.getresponse().read().decode(), re.M)}


def end(server):
    server.send_signal(signal.SIGTERM)
    server.stderr.read()
    assert server.wait(timeout=60) == 0


def row(server, address, count, seconds):
    before, until, cpu, began = metrics(address), time.monotonic() + seconds, cpu_seconds(server.pid), time.monotonic()
    firsts, failed = clients(address, count, lambda: time.monotonic() < until)
    wall, cpu, after = time.monotonic() - began, cpu_seconds(server.pid) - cpu, metrics(address)
    at = lambda share: round(1000 * firsts[min(int(share * len(firsts)), len(firsts) - 1)], 1)
    did = lambda name: after[name] - before[name]
    return {"clients": count, "requests": len(firsts), "failed": failed, "requests_per_s": round(len(firsts) / wall, 2),
            "first_byte_ms": {"p50": at(0.5), "p95": at(0.95), "p99": at(0.99)}, "cpu_ms_per_request": round(1000 * cpu / len(firsts), 1),
            "sentences_per_batch": round(did("sentences_total") / did("batches_total"), 2), "audio_s_per_cpu_s": round(did("audio_seconds_total") / cpu, 1)}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tandem")
    parser.add_argument("run")
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--requests", type=int, default=2000)
    parser.add_argument("--more", default="", help="more arguments of the server, such as '--vocoder griffin-lim'")
    args = parser.parse_args()
    server, address = start(args)
    rows = [row(server, address, count, args.seconds) for count in (1, 8, 64)]
    single, single_address = start(args, "--batch-size", "1")
    one_by_one = row(single, single_address, 8, args.seconds)
    end(single)
    left, lock, memory = [args.requests], threading.Lock(), []

    def go_on():
        with lock:
            left[0] -= 1
            if left[0] % max(args.requests // 10, 1) == 0:
                memory.append(rss_bytes(server.pid))
            return left[0] >= 0

    _, failed = clients(address, 8, go_on)
    end(server)
    # The first two tenths are the warm-up.
    print(json.dumps({"text": TEXT, "cores": os.cpu_count(), "load_average": os.getloadavg(), "rows": rows, "batch_size_1": one_by_one, "soak": {
        "requests": args.requests, "failed": failed, "rss_mb": [round(size / 1e6, 1) for size in memory], "growth": round(memory[-1] / memory[2] - 1, 4)}}, indent=1))


if __name__ == "__main__":
    main()
