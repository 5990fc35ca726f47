#!/usr/bin/env python3
"""serve_load.py TANDEM RUN [--seconds 20] [--requests 2000]: what `tandem serve` does under load, on loopback (SPEC W2).

For 1, 8 and 64 clients, in turn in one server, a bounded time each: requests/s, p50/p95/p99 of the time to the first byte, CPU-seconds of
the server per request. Then so many requests of 8 clients, with the memory of the server (RSS) after a warm-up and at the end.
Prints one JSON object.
"""
import argparse, http.client, json, os, pathlib, re, signal, subprocess, threading, time

TEXT = "Banana piano. A metal basket."


def cpu_seconds(pid):
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


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


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tandem")
    parser.add_argument("run")
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--requests", type=int, default=2000)
    args = parser.parse_args()
    server = subprocess.Popen([args.tandem, "serve", args.run, "--listen", "127.0.0.1:0", "--max-requests", "128"], stderr=subprocess.PIPE, text=True)
    address = next(found.group(1) for line in server.stderr if (found := re.search(r"http://([^/ ]+)", line)))
    rows = []
    clients(address, 1, iter([True] * 5 + [False]).__next__)
    for count in (1, 8, 64):
        end, cpu, began = time.monotonic() + args.seconds, cpu_seconds(server.pid), time.monotonic()
        firsts, failed = clients(address, count, lambda: time.monotonic() < end)
        wall, cpu = time.monotonic() - began, cpu_seconds(server.pid) - cpu
        at = lambda share: round(1000 * firsts[min(int(share * len(firsts)), len(firsts) - 1)], 1)
        rows.append({"clients": count, "requests": len(firsts), "failed": failed, "requests_per_s": round(len(firsts) / wall, 2),
                     "first_byte_ms": {"p50": at(0.5), "p95": at(0.95), "p99": at(0.99)}, "cpu_ms_per_request": round(1000 * cpu / len(firsts), 1)})
    left, lock, memory = [args.requests], threading.Lock(), []

    def go_on():
        with lock:
            left[0] -= 1
            if left[0] == args.requests - args.requests // 4:
                memory.append(rss_bytes(server.pid))
            return left[0] >= 0

    _, failed = clients(address, 8, go_on)
    memory.append(rss_bytes(server.pid))
    connection = http.client.HTTPConnection(address)
    connection.request("GET", "/metrics")
    metrics = dict(re.findall(r"^tandem_serve_(\w+) ([\d.]+)$", connection.getresponse().read().decode(), re.M))
    server.send_signal(signal.SIGTERM)
    server.stderr.read()
    assert server.wait(timeout=60) == 0
    print(json.dumps({"text": TEXT, "cores": os.cpu_count(), "load_average": os.getloadavg(), "rows": rows, "soak": {
        "requests": args.requests, "failed": failed, "rss_mb_warm": round(memory[0] / 1e6, 1), "rss_mb_end": round(memory[-1] / 1e6, 1),
        "growth": round(memory[-1] / memory[0] - 1, 4)}, "sentences_per_batch": round(float(metrics["sentences_total"]) / float(metrics["batches_total"]), 2)}, indent=1))


if __name__ == "__main__":
    main()
