#!/usr/bin/env python3
"""serve.py TANDEM RUN: `tandem serve` as PyPI's `openai` client, `curl` and `soundfile` see it (SPEC W1). Needs openai and soundfile."""
import io, json, pathlib, re, shutil, signal, subprocess, sys, tempfile, wave

import openai
import soundfile


class Server:
    """The program, once it listens."""

    def __init__(self, tandem, *arguments, listen="127.0.0.1:0"):
        words = [tandem, *map(str, arguments), "--listen", listen, "--lang", "en"]
        self.process = subprocess.Popen(words, stderr=subprocess.PIPE, text=True)
        for line in self.process.stderr:
            if found := re.search(r"http://[^/ ]+", line):
                self.url = found.group(0)
                return
        raise SystemExit(f"it does not listen: {words}")

    def end(self, how=signal.SIGTERM):
        self.process.send_signal(how)
        self.process.stderr.read()
        return self.process.wait(timeout=120)


def main(tandem, run):
    server = Server(tandem, "serve", run, "--max-characters", 2000)
    client = openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0)
    model = client.models.list().data[0].id
    assert model == pathlib.Path(run).resolve().name, model
    voices = json.loads(client.get("/voices", cast_to=str))["data"]
    voice = voices[0]["id"]
    ask = {"model": model, "voice": voice, "input": "Banana piano. A metal basket, and rain."}

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
        again, _ = soundfile.read(io.BytesIO(b"".join(response.iter_bytes())), dtype="int16")
    assert len(again) == frames, "a FLAC stream without a length is read to its end"

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
    print(f"openai {openai.__version__}: {model} / {voice}, {frames / rate:.1f} s of speech")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        raise SystemExit(__doc__)
    main(*sys.argv[1:])
