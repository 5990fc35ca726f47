#!/usr/bin/env python3
"""serve.py TANDEM RUN: `tandem serve` as PyPI's `openai` client, `curl` and `soundfile` see it (SPEC W1). Needs openai and soundfile."""
import io, json, pathlib, re, resource, shutil, socket, subprocess, sys, tempfile, threading, time, urllib.request, wave

import openai
import soundfile

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from serving import Server


def metric(server, name):
    text = urllib.request.urlopen(f"{server.url}/metrics").read().decode()
    return float(re.search(rf"^tandem_serve_{name} (\S+)$", text, re.M).group(1))


def until(condition, what):
    """Waits for a state; the limit is for what never comes."""
    end = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < end, what
        time.sleep(0.05)


def rude(tandem, run):
    """Clients that say nothing, thousands of them, and one that does not read."""
    server = Server(tandem, "serve", run, "--patience", 2)
    host, port = server.url.removeprefix("http://").split(":")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    count = min(10_000, hard - 200)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(count + 200, hard), hard))
    descriptors = lambda: len(list(pathlib.Path(f"/proc/{server.process.pid}/fd").iterdir()))
    before = descriptors()
    idle = [socket.create_connection((host, int(port))) for _ in range(count)]
    body = json.dumps({"input": "Banana piano."}).encode()
    ask = urllib.request.Request(f"{server.url}/v1/audio/speech", body, {"Content-Type": "application/json"})
    assert urllib.request.urlopen(ask).read(4) == b"RIFF"
    # 256 connections, and as many that make room for others.
    assert descriptors() <= before + 2 * 256 + 1, descriptors()
    [one.close() for one in idle]
    deaf = socket.socket()
    deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
    deaf.connect((host, int(port)))
    body = json.dumps({"input": "A metal basket and a garden. " * 600, "response_format": "pcm"}).encode()
    head = f"POST /v1/audio/speech HTTP/1.1\r\nhost: {host}:{port}\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    deaf.sendall(head.encode() + body)
    until(lambda: metric(server, "requests") == 1, "it is admitted")
    until(lambda: metric(server, "requests") == 0, "who does not read is let go")
    assert metric(server, "abandoned_sentences_total") > 100, "what is not read is not made"
    assert server.end() == 0
    print(f"{count} idle connections, one that does not read: the others are served")


def full(tandem, run):
    """One place, taken: the client is told when to come back, and comes back by itself."""
    server = Server(tandem, "serve", run, "--max-requests", 1)
    client = lambda retries: openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=retries)
    ask = {"model": client(0).models.list().data[0].id, "voice": "", "input": "Banana piano.", "response_format": "wav"}
    # Much more than is kept for a client that does not read: silence between sentences.
    long = ask | {"input": "A metal basket. " * 100, "response_format": "pcm", "extra_body": {"pause": 10}}
    with client(0).audio.speech.with_streaming_response.create(**long) as taken:
        parts = taken.iter_bytes(chunk_size=1)
        next(parts)
        try:
            client(0).audio.speech.create(**ask)
            raise SystemExit("there is a place for a second one")
        except openai.RateLimitError as refused:
            assert refused.code == "too_many_requests" and int(refused.response.headers["retry-after"]) >= 1, refused
        leaves = threading.Timer(0.5, taken.close)
        leaves.start()
        assert client(5).audio.speech.create(**ask).content[:4] == b"RIFF"
        leaves.join()
    assert server.end() == 0
    print("429 with Retry-After: the client waits and is served")


def main(tandem, run):
    server = Server(tandem, "serve", run, "--max-characters", 2000)
    client = openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0)
    model = client.models.list().data[0].id
    assert model == pathlib.Path(run).resolve().name, model
    voices = json.loads(client.get("/voices", cast_to=str))["data"]
    voice = voices[0]["id"]
    ask = {"model": model, "voice": voice, "input": "Banana piano. A metal basket and a garden."}

    speech = client.audio.speech.create(**ask, response_format="wav").content
    with wave.open(io.BytesIO(speech)) as file:
        rate, frames = file.getframerate(), file.getnframes()
        assert (file.getnchannels(), file.getsampwidth()) == (1, 2) and frames > rate / 2, (rate, frames)
        samples = file.readframes(frames)
    flac, flac_rate = soundfile.read(io.BytesIO(client.audio.speech.create(**ask, response_format="flac").content), dtype="int16")
    assert flac_rate == rate and flac.tobytes() == samples, "FLAC has the samples of WAV, as libsndfile reads it"

    with client.audio.speech.with_streaming_response.create(**ask, response_format="pcm") as response:
        assert response.headers["transfer-encoding"] == "chunked" and int(response.headers["x-sample-rate"]) == rate
        streamed = b"".join(response.iter_bytes())
    assert len(streamed) == len(samples), (len(streamed), len(samples))
    with client.audio.speech.with_streaming_response.create(**ask, response_format="flac", extra_body={"stream": True}) as response:
        stream = b"".join(response.iter_bytes())
    if shutil.which("flac"):
        # libsndfile wants to know the length before; the reference decoder reads to the end.
        words = ["flac", "--decode", "--stdout", "--silent", "--force-raw-format", "--endian=little", "--sign=signed", "-"]
        again = subprocess.run(words, input=stream, check=True, capture_output=True).stdout
        assert len(again) == len(samples), (len(again), len(samples))

    slow = client.audio.speech.create(**ask, response_format="pcm", speed=0.5).content
    assert 1.7 < len(slow) / len(samples) < 2.3, len(slow) / len(samples)

    for change, error, word in [
        ({"voice": "nobody"}, openai.NotFoundError, voice),
        ({"model": "nothing"}, openai.NotFoundError, model),
        ({"input": "snow ☃"}, openai.BadRequestError, "☃"),
        ({"input": "x" * 2001}, openai.BadRequestError, "2000"),
        ({"response_format": "mp3"}, openai.BadRequestError, "flac"),
    ]:
        try:
            client.audio.speech.create(**(ask | {"response_format": "wav"} | change))
            raise SystemExit(f"{change} is accepted")
        except error as refused:
            assert word in refused.message and refused.code and refused.type, refused

    if voices[0]["kind"] == "corpus":
        body = speech
        added = client.post("/voices?name=copy", content=body, cast_to=str, options={"headers": {"Content-Type": "audio/wav"}})
        assert json.loads(added)["id"] == "copy"
        assert client.audio.speech.create(**(ask | {"voice": "copy"}), response_format="wav").content[:4] == b"RIFF"

    if shutil.which("curl"):
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / "hello.wav"
            words = ["curl", "--fail", "--silent", "--show-error", f"{server.url}/v1/audio/speech", "-H", "Content-Type: application/json",
                     "-d", json.dumps(ask), "-o", str(file)]
            subprocess.run(words, check=True)
            assert file.read_bytes() == speech, "curl gets the same"
            status = ["curl", "--silent", "-o", "/dev/null", "-w", "%{http_code}", "--path-as-is", f"{server.url}/../../etc/passwd"]
            assert subprocess.run(status, check=True, capture_output=True, text=True).stdout == "404"
    code = server.end()
    assert code == 0, f"SIGTERM ends it with {code}"
    full(tandem, run)
    rude(tandem, run)
    print(f"openai {openai.__version__}: {model} / {voice}, {frames / rate:.1f} s of speech")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        raise SystemExit(__doc__)
    main(*sys.argv[1:])
