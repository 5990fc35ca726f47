#!/usr/bin/env python3
"""How busy a model is whose clips come from an S3 server with latency: bucket.py BUSY TANDEM CORPUS [--s3rver PROGRAM]

BUSY is the example `busy` of `tandem-store` (`--features cloud`): real loading, a model that sleeps 100 ms a batch (simulated). CORPUS is
packed by TANDEM into shards of several sizes. Servers: PyPI's `moto`, and npm's `s3rver` if it is given, each behind a proxy that delays
every request. First each server is asked for 50 kB out of objects of several sizes, without the proxy and without Tandem: a
server whose time grows with the object reads all of it each time.
"""
import argparse, glob, logging, os, shutil, socket, statistics, subprocess, sys, tempfile, time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../scripts/oracles"))
import boto3
from moto.server import ThreadedMotoServer

from proxy import Proxy

p = argparse.ArgumentParser()
p.add_argument("busy")
p.add_argument("tandem")
p.add_argument("corpus")
p.add_argument("--s3rver", help="the program, as `npm install s3rver` leaves it in node_modules/.bin")
p.add_argument("--latency-ms", type=float, default=20)
p.add_argument("--shard-clips", default="2,50,1000")
p.add_argument("--batch", default="8")
p.add_argument("--workers", default="2")
p.add_argument("--steps", default="60")
a = p.parse_args()
KEY = "S3RVER"  # the one that s3rver knows; moto takes any
work = tempfile.mkdtemp()
logging.getLogger("werkzeug").setLevel(logging.ERROR)


def client(port):
    return boto3.client("s3", endpoint_url=f"http://127.0.0.1:{port}", region_name="us-east-1", aws_access_key_id=KEY, aws_secret_access_key=KEY)


def start_moto():
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    return server.get_host_and_port()[1], server.stop


def start_s3rver():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    server = subprocess.Popen([a.s3rver, "-d", os.path.join(work, "s3rver"), "-a", "127.0.0.1", "-p", str(port), "--silent"], stdout=subprocess.DEVNULL)
    while socket.socket().connect_ex(("127.0.0.1", port)):
        time.sleep(0.1)
    return port, server.kill


def ranges(s3):
    """Milliseconds for 50 kB out of objects of so many megabytes."""
    found = []
    for megabytes in (1, 15, 150):
        s3.put_object(Bucket="tandem", Key="object", Body=os.urandom(megabytes << 20))
        times = []
        for n in range(15):
            started = time.perf_counter()
            body = s3.get_object(Bucket="tandem", Key="object", Range=f"bytes={n * 50000}-{n * 50000 + 49999}")["Body"].read()
            times.append(1000 * (time.perf_counter() - started))
            assert len(body) == 50000
        found.append(f"{megabytes} MB {statistics.median(times):.1f} ms")
    s3.delete_object(Bucket="tandem", Key="object")
    return ", ".join(found)


def main():
    packed = {}
    for clips in a.shard_clips.split(","):
        packed[clips] = os.path.join(work, f"shards-{clips}")
        subprocess.run([a.tandem, "pack", a.corpus, "--shards", packed[clips], "--shard-clips", clips], check=True, stdout=subprocess.DEVNULL)
    for name, start in [("moto", start_moto), *([("s3rver", start_s3rver)] if a.s3rver else [])]:
        port, stop = start()
        s3 = client(port)
        s3.create_bucket(Bucket="tandem")
        print(f"{name}: 50 kB out of objects of {ranges(s3)}", flush=True)
        proxy = Proxy(port, a.latency_ms / 1000)
        for clips, folder in packed.items():
            files = glob.glob(os.path.join(folder, "*"))
            for file in files:
                s3.upload_file(file, "tandem", f"shards-{clips}/{os.path.basename(file)}")
            largest = max(map(os.path.getsize, files)) / 1e6
            env = {**os.environ, "AWS_ENDPOINT_URL": f"http://127.0.0.1:{proxy.port}", "AWS_ALLOW_HTTP": "true", "AWS_REGION": "us-east-1",
                   "AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": KEY, "XDG_CACHE_HOME": os.path.join(work, "cache"), "TANDEM_BUCKET_CACHE": "0"}
            command = [a.busy, f"s3://tandem/shards-{clips}", "100", a.batch, a.workers, a.steps]
            done = subprocess.run(command, env=env, capture_output=True, text=True)
            assert done.returncode == 0, done.stderr
            print(f"| {name} | {clips} clips, up to {largest:.1f} MB | {done.stdout.strip()} |", flush=True)
        stop()
    shutil.rmtree(work)


main()
os._exit(0)
