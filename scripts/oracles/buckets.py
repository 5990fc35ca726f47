#!/usr/bin/env python3
"""A corpus in a bucket and in parquet files: buckets.py TANDEM CORPUS [--without TANDEM]

TANDEM is built with `--features cloud,parquet`, the other one without. The server is PyPI's `moto`, an S3 that runs here, behind a proxy
that delays requests, breaks connections off and refuses; the parquet files are written by PyPI's `datasets`. One corpus in every layout, on
the disk and in the bucket, gives the same clips, texts, speakers and batches, bit for bit; whatever fails is named; nothing that is
written anywhere has a secret in it.
"""
import argparse, glob, json, logging, os, shutil, signal, socket, subprocess, sys, tempfile, time

import boto3, datasets, pyarrow.parquet
from moto.server import ThreadedMotoServer

from proxy import Proxy

p = argparse.ArgumentParser()
p.add_argument("tandem")
p.add_argument("corpus")
p.add_argument("--without")
p.add_argument("--azurite", help="the program `azurite-blob` of npm's azurite: az:// is tried, too")
p.add_argument("--only", default="", help="a word in the name of the check")
a = p.parse_args()
SECRETS = {"AWS_ACCESS_KEY_ID": "TANDEMKEYhunter2", "AWS_SECRET_ACCESS_KEY": "TANDEMSECREThunter2",
           "AWS_SESSION_TOKEN": "TANDEMTOKENhunter2"}
work = tempfile.mkdtemp()
outputs, checks = [], []


def check(function):
    checks.append(function)
    return function


def run(*words, cache="cache", code=0, tandem=None, cwd=None, **extra):
    """The program with the bucket in its environment; both outputs are kept to be searched for secrets."""
    env = {**os.environ, **SECRETS, "AWS_ENDPOINT_URL": f"http://127.0.0.1:{proxy.port}", "AWS_ALLOW_HTTP": "true",
           "AWS_REGION": "us-east-1", "XDG_CACHE_HOME": os.path.join(work, cache), "NO_COLOR": "1", **extra}
    done = subprocess.run([tandem or a.tandem, *words], env=env, cwd=cwd, capture_output=True, text=True, timeout=300)
    outputs.append(done.stdout + done.stderr)
    assert code is None or done.returncode == code, (words, done.returncode, done.stderr[-2000:])
    assert "panicked" not in done.stderr, done.stderr
    return done


def batches(where, *flags, **extra):
    """The digests of two epochs, and what doctor counts."""
    done = run("load", where, "--json", "--epochs", "2", "--batch-size", "4", "--units", "characters", *flags, **extra)
    return [epoch["digest"] for epoch in json.loads(done.stdout)["epochs"]]


def speakers(where, **extra):
    found = json.loads(run("doctor", where, "--json", code=None, **extra).stdout)
    return {name: found[name] for name in ("rows", "usable", "speakers", "by_speaker")}


def upload(directory, prefix):
    for path in glob.glob(os.path.join(directory, "**"), recursive=True):
        name = os.path.relpath(path, directory)
        if os.path.isfile(path) and not name.startswith(".tandem"):
            # Public, so that they can be read as files of a web server, too.
            s3.upload_file(path, "tandem", f"{prefix}/{name}", ExtraArgs={"ACL": "public-read"})


def objects(cache="cache"):
    return [path for path in glob.glob(os.path.join(work, cache, "tandem/objects/*/*")) if os.path.isfile(path)]


logging.getLogger("werkzeug").setLevel(logging.ERROR)
datasets.disable_progress_bars()
server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
server.start()
port = server.get_host_and_port()[1]
proxy = Proxy(port)
s3 = boto3.client("s3", endpoint_url=f"http://127.0.0.1:{port}", region_name="us-east-1", aws_access_key_id="x", aws_secret_access_key="x")
s3.create_bucket(Bucket="tandem")
path = lambda name: os.path.join(work, name)
# Two speakers, one after the other, and in the names of their clips: the order and the ids that VCTK's layout has.
os.makedirs(path("corpus/wavs"))
listed = [line.rstrip("\n").split("|") for line in open(os.path.join(a.corpus, "metadata.csv"), encoding="utf-8")]
with open(path("corpus/metadata.csv"), "w", encoding="utf-8") as metadata, open(path("corpus/speakers.csv"), "w", encoding="utf-8") as by_whom:
    for n, fields in enumerate(listed):
        speaker = "ali" if 2 * n < len(listed) else "sara"
        name = f"{speaker}_{n:04}"
        shutil.copy(os.path.join(a.corpus, f"wavs/{fields[0]}.wav"), path(f"corpus/wavs/{name}.wav"))
        metadata.write(f"{name}|{fields[1]}\n")
        by_whom.write(f"{name}|{speaker}\n")
LISTED = ("ljspeech", "piper", "coqui", "vctk", "common-voice", "jsonl", "audiofolder")
for layout in LISTED:
    run("convert", path("corpus"), "--to", layout, path(layout))
run("pack", path("corpus"), "--shards", path("packed"), "--shard-clips", "7")
shutil.copytree(path("packed"), path("foreign"), ignore=shutil.ignore_patterns("*.jsonl"))
rows = [json.loads(line) for line in open(path("packed/index.jsonl"), encoding="utf-8")][1:]


def read_by_datasets(folder):
    """The rows of an audiofolder as PyPI's `datasets` reads its list: name of the file, bytes of it, and the other columns. Its own builder for
    such folders wants `torchcodec`, and that gigabytes of torch, to put a path into a column."""
    found = datasets.load_dataset("csv", data_files=os.path.join(folder, "metadata.csv"), split="train", cache_dir=path("datasets"))
    return [{**row, "bytes": open(os.path.join(folder, row["file_name"]), "rb").read()} for row in found]


# In the order of the corpus, several row groups and several files, as repositories have them.
by_name = {os.path.splitext(os.path.basename(row["file_name"]))[0]: row for row in read_by_datasets(path("audiofolder"))}
ordered = [by_name[row["key"]] for row in rows]
os.makedirs(path("parquet/data"))
half = len(ordered) // 2
for n, part in enumerate((ordered[:half], ordered[half:])):
    embedded = [{"audio": {"bytes": row["bytes"], "path": os.path.basename(row["file_name"])}, **{name: row[name] for name in row if name not in ("bytes", "file_name")}} for row in part]
    # What a column of type `Audio` is in the file.
    audio = {"bytes": datasets.Value("binary"), "path": datasets.Value("string")}
    features = datasets.Features({"audio": audio, **{name: datasets.Value("string") for name in embedded[0] if name != "audio"}})
    made = datasets.Dataset.from_list(embedded, features=features)
    made.to_parquet(path(f"parquet/data/train-{n:05}-of-00002.parquet"), batch_size=5)
PLACES = (*LISTED, "packed", "foreign", "parquet")
for name in ("corpus", *PLACES):
    upload(path(name), name)
wanted, counted = batches(path("corpus")), speakers(path("corpus"))


def clips_of(where):
    """Id, text and speaker of each clip, in order."""
    out = tempfile.mkdtemp(dir=work)
    run("convert", where, "--to", "jsonl", os.path.join(out, "x"))
    clips = [json.loads(line) for line in open(os.path.join(out, "x/manifest.jsonl"), encoding="utf-8")]
    shutil.rmtree(out)
    return [(os.path.splitext(os.path.basename(clip["audio_filepath"]))[0], clip["text"], clip.get("speaker")) for clip in clips]


@check
def one_corpus_in_every_layout_and_everywhere():
    clips = clips_of(path("corpus"))
    assert len(clips) == len(listed) and {speaker for *_, speaker in clips} == {"ali", "sara"}, clips
    where = [*map(path, PLACES), *(f"s3://tandem/{name}" for name in ("corpus", *PLACES)), "s3://tandem/packed/",
             f"http://127.0.0.1:{proxy.port}/tandem/packed"]
    for place in where:
        assert batches(place) == wanted, place
        assert speakers(place) == counted, (place, speakers(place), counted)
        assert clips_of(place) == clips, (place, clips_of(place), clips)
    groups = pyarrow.parquet.ParquetFile(path("parquet/data/train-00000-of-00002.parquet")).num_row_groups
    assert groups > 1, groups
    return f"{len(where)} places, {len(rows)} clips"


@check
def converting_from_a_bucket_and_from_parquet():
    for n, place in enumerate(("s3://tandem/packed", path("parquet"))):
        run("convert", place, "--to", "audiofolder", path(f"back-{n}"))
        assert batches(path(f"back-{n}")) == wanted, place
        read = {os.path.basename(row["file_name"]): row for row in read_by_datasets(path(f"back-{n}"))}
        wanted_files = {os.path.basename(row["file_name"]): row for row in by_name.values()}
        assert read.keys() == wanted_files.keys(), place
        assert all(read[name]["text"] == row["text"] and read[name]["bytes"] == row["bytes"] for name, row in wanted_files.items()), place
    run("pack", "s3://tandem/corpus", "--shards", path("from-bucket"))
    assert batches(path("from-bucket")) == wanted


@check
def the_second_time_nothing_but_the_list_is_asked_for():
    assert batches("s3://tandem/packed") == wanted
    proxy.requests.clear()
    assert batches("s3://tandem/packed") == wanted
    assert all("list-type=2" in line for line in proxy.requests), proxy.requests
    assert len(proxy.requests) <= 3, proxy.requests
    return f"{len(proxy.requests)} requests"


@check
def buckets_of_google():
    """Against the same server: what the library asks Google's for (list and read) is asked in S3's words. Sign-in is not tried."""
    account = path("google.json")
    with open(account, "w") as file:
        json.dump({"gcs_base_url": f"http://127.0.0.1:{proxy.port}", "disable_oauth": True, "client_email": "", "private_key": "", "private_key_id": ""}, file)
    extra = {"GOOGLE_SERVICE_ACCOUNT": account, "GOOGLE_ALLOW_HTTP": "true"}
    for name in ("packed", "piper"):
        proxy.requests.clear()
        assert batches(f"gs://tandem/{name}", **extra) == wanted, name
        assert any(line.startswith("GET /tandem/") for line in proxy.requests), proxy.requests
    assert "gs://not-there/x" in run("load", "gs://not-there/x", code=2, **extra).stderr


@check
def containers_of_azure():
    if not a.azurite:
        return "not asked for"
    from azure.storage.blob import BlobServiceClient
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        azure_port = free.getsockname()[1]
    # The one account that azurite has; its key is in its documentation.
    name, key = "devstoreaccount1", "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
    emulator = subprocess.Popen([a.azurite, "--inMemoryPersistence", "--disableTelemetry", "--skipApiVersionCheck", "--silent", "--blobHost", "127.0.0.1",
                                 "--blobPort", str(azure_port)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        while socket.socket().connect_ex(("127.0.0.1", azure_port)):
            assert emulator.poll() is None
            time.sleep(0.1)
        container = BlobServiceClient(f"http://127.0.0.1:{azure_port}/{name}", credential=key).create_container("tandem")
        for place in ("packed", "coqui"):
            for file in glob.glob(path(f"{place}/**"), recursive=True):
                if os.path.isfile(file) and ".tandem" not in file:
                    with open(file, "rb") as data:
                        container.upload_blob(os.path.relpath(file, work), data)
        extra = {"AZURE_STORAGE_ACCOUNT_NAME": name, "AZURE_STORAGE_ACCOUNT_KEY": key, "AZURE_ALLOW_HTTP": "true", "AZURE_STORAGE_USE_EMULATOR": "true",
                 "AZURITE_BLOB_STORAGE_URL": f"http://127.0.0.1:{azure_port}"}
        for place in ("packed", "coqui"):
            assert batches(f"az://tandem/{place}", **extra) == wanted, place
        said = run("load", "az://not-there/x", code=2, **extra).stderr
        assert "az://not-there/x" in said, said
        said = run("load", "az://tandem/packed", code=2, **{**extra, "AZURE_STORAGE_ACCOUNT_KEY": key.replace("Eby8", "hunter2A")[:88]}).stderr
        assert "az://tandem/packed" in said and "hunter2" not in said, said
    finally:
        emulator.kill()


@check
def a_damaged_cache_is_read_again():
    assert batches("s3://tandem/packed") == wanted and objects()
    for entry in objects():
        data = bytearray(open(entry, "rb").read())
        data[len(data) // 2] ^= 1
        open(entry, "wb").write(data)
    assert batches("s3://tandem/packed") == wanted


@check
def the_cache_stays_within_its_bytes():
    limit = 2 * max(row["bytes"] for row in rows)
    for place in ("s3://tandem/packed", "s3://tandem/corpus"):
        assert batches(place, cache="small", TANDEM_BUCKET_CACHE=str(limit)) == wanted
        used = sum(os.path.getsize(entry) for entry in objects("small"))
        assert 0 < used <= limit, (used, limit)
    assert batches("s3://tandem/packed", cache="none", TANDEM_BUCKET_CACHE="0") == wanted and not objects("none")
    said = run("load", "s3://tandem/packed", TANDEM_BUCKET_CACHE="much", code=2).stderr
    assert "TANDEM_BUCKET_CACHE is `much`" in said, said
    return f"{used} of {limit} bytes"


@check
def connections_that_break_off_are_tried_again():
    for place in ("s3://tandem/packed", "s3://tandem/foreign"):
        proxy.fault, proxy.dropped = ("drop", 3), 0
        assert batches(place, cache="drops") == wanted
        assert proxy.dropped >= 5, proxy.dropped
    proxy.fault = None
    return f"{proxy.dropped} connections broken"


@check
def an_object_that_changes_is_read_again():
    upload(path("packed"), "changing")
    assert batches("s3://tandem/changing") == wanted
    # The same length, other audio: only the tag of the object says it.
    shard = path("packed/shard-000000.tar")
    data = bytearray(open(shard, "rb").read())
    at = rows[0]["at"] + rows[0]["bytes"] // 2
    data[at] ^= 0x40
    s3.put_object(Bucket="tandem", Key="changing/shard-000000.tar", Body=bytes(data))
    found = json.loads(run("load", "s3://tandem/changing", "--json", "--units", "characters").stdout)["left_out"]
    assert [fault["kind"] for fault in found] == ["checksum"], found


@check
def what_cannot_be_reached_is_named():
    body = "<Error><Code>AccessDenied</Code><AWSAccessKeyId>TANDEMKEYhunter2</AWSAccessKeyId><StringToSign>TANDEMSECREThunter2</StringToSign></Error>"
    for name, fault, place, words, extra in [
        ("403", ("answer", "403 Forbidden", body), "s3://tandem/packed", ["s3://tandem/packed", "attempts: 1", "403 AccessDenied", "AWS_ACCESS_KEY_ID"], {}),
        ("503", ("answer", "503 Slow Down", body), "s3://tandem/packed", ["s3://tandem/packed", "attempts: 6", "status 503"], {}),
        ("no bucket", None, "s3://not-there/x", ["s3://not-there/x", "attempts: 1", "no such bucket"], {}),
        ("nothing there", None, "s3://tandem/nothing", ["s3://tandem/nothing"], {}),
        ("host", None, "s3://tandem/packed", ["s3://tandem/packed", "attempts: 6", "the name of the host is not known"], {"AWS_ENDPOINT_URL": "http://no-such-host.invalid"}),
        ("closed", None, "s3://tandem/packed", ["s3://tandem/packed", "attempts: 6", "no connection"], {"AWS_ENDPOINT_URL": "http://127.0.0.1:1"}),
        ("web", None, f"http://127.0.0.1:{proxy.port}/tandem/corpus", ["has no index.jsonl"], {}),
        ("secret", None, "https://anna:TANDEMSECREThunter2@host/x?sig=TANDEMTOKENhunter2", ["https://host", "belong into the environment"], {}),
    ]:
        proxy.fault = fault
        said = run("load", place, cache="faults", code=2, **extra).stderr
        proxy.fault = None
        assert all(word in said for word in words), (name, said)
        in_persian = run("load", place, "--lang", "fa", cache="faults", code=2, **extra).stderr if name in ("no bucket", "web", "secret") else ""
        assert "cannot read" not in in_persian, in_persian


def step_of(line):
    """The step of an event of progress."""
    return (json.loads(line).get("progress") or {}).get("step", 0)


@check
def a_run_resumes_exactly_in_the_middle_of_an_epoch():
    # An epoch has more steps than that: nine tenths of the clips, two at a time.
    steps, epoch = 14, -(-9 * len(listed) // 10) // 2
    assert steps < epoch, epoch
    flags = ["--model-size", "smoke", "--batch-size", "2", "--units", "characters", "--backend", "cpu", "--max-steps", str(steps), "--log-every", "1",
             "--checkpoint-every", "4", "--cache", "off", "--json"]
    whole = run("train", "--train-data", path("corpus"), "--checkpoint-dir", path("runs/whole"), *flags)
    env = {**os.environ, **SECRETS, "AWS_ENDPOINT_URL": f"http://127.0.0.1:{proxy.port}", "AWS_ALLOW_HTTP": "true", "XDG_CACHE_HOME": path("cache")}
    of = lambda output: {step_of(line): json.loads(line)["progress"]["loss"] for line in output.splitlines() if step_of(line)}
    first, notes = of(whole.stdout), []

    def weights(run):
        (found,) = glob.glob(path(f"runs/{run}/checkpoints/step-{steps:08}/model.safetensors"))
        return open(found, "rb").read()

    for name, place in (("shards", path("packed")), ("bucket", "s3://tandem/packed")):
        killed = subprocess.Popen([a.tandem, "train", "--train-data", place, "--checkpoint-dir", path(f"runs/{name}"), *flags], env=env,
                                  stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        for line in killed.stdout:
            if step_of(line) >= 6:
                killed.send_signal(signal.SIGKILL)
                break
        killed.wait()
        assert killed.returncode == -9, killed.returncode
        second = of(run("train", "--train-data", place, "--checkpoint-dir", path(f"runs/{name}"), *flags).stdout)
        shared = sorted(set(first) & set(second))
        assert shared and shared[-1] == steps and min(shared) > 1, (name, first, second)
        assert all(first[step] == second[step] for step in shared), [(name, step, first[step], second[step]) for step in shared]
        assert weights(name) == weights("whole"), name
        notes.append(f"{name}: steps {shared[0]} to {shared[-1]} of {epoch}")
    return f"{', '.join(notes)} after kill -9, equal losses and weights"


@check
def a_bucket_that_vanishes_ends_the_run_and_the_run_resumes():
    upload(path("packed"), "vanishing")
    env = {**os.environ, **SECRETS, "AWS_ENDPOINT_URL": f"http://127.0.0.1:{proxy.port}", "AWS_ALLOW_HTTP": "true", "XDG_CACHE_HOME": path("cache"),
           "TANDEM_BUCKET_CACHE": "0"}
    flags = ["--model-size", "smoke", "--batch-size", "2", "--units", "characters", "--backend", "cpu", "--max-steps", "2000", "--log-every", "1", "--cache", "off",
             "--checkpoint-dir", path("runs/vanishing"), "--json"]
    started = subprocess.Popen([a.tandem, "train", "--train-data", "s3://tandem/vanishing", *flags], env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    for line in started.stdout:
        if step_of(line) >= 3:
            proxy.fault = ("answer", "404 Not Found", "<Error><Code>NoSuchBucket</Code></Error>")
            break
    output, said = started.communicate(timeout=300)
    proxy.fault = None
    outputs.append(output + said)
    assert started.returncode == 1, (started.returncode, said)
    assert "s3://tandem/vanishing/shard-" in said and "there is no such bucket" in said and "attempts: 1" in said, said
    last = max(json.loads(line).get("step") or step_of(line) for line in output.splitlines())
    flags[flags.index("2000")] = str(last + 3)
    run("train", "--train-data", "s3://tandem/vanishing", *flags, TANDEM_BUCKET_CACHE="0")


@check
def parquet_files_that_are_none_are_named():
    os.makedirs(path("other"))
    datasets.Dataset.from_dict({"image": ["x"], "label": [1]}).to_parquet(path("other/train.parquet"))
    said = run("doctor", path("other"), code=2).stderr
    assert "other/train.parquet" in said and "known as audio" in said and "image, label" in said and "wanted are audio" in said, said
    datasets.Dataset.from_dict({"audio": [{"bytes": b"x", "path": "a.wav"}], "label": [1]}).to_parquet(path("other/train.parquet"))
    said = run("doctor", path("other"), code=2).stderr
    assert "known as text" in said and "audio.bytes, audio.path, label" in said, said
    os.makedirs(path("broken"))
    whole = open(path("parquet/data/train-00000-of-00002.parquet"), "rb").read()
    for data in (whole[: len(whole) // 2], b"", b"nonsense" * 100):
        open(path("broken/train.parquet"), "wb").write(data)
        said = run("doctor", path("broken"), code=2).stderr
        assert "broken/train.parquet` is not a parquet file" in said, said


@check
def the_commands_of_the_guide_run():
    here = path("guide")
    os.makedirs(here)
    shutil.copytree(path("parquet"), os.path.join(here, "my-parquet"))
    s3.create_bucket(Bucket="my-bucket")
    for file in glob.glob(path("packed/*")):
        s3.upload_file(file, "my-bucket", f"my-shards/{os.path.basename(file)}")
    docs = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../docs")

    def commands_of(page):
        text = open(os.path.join(docs, page), encoding="utf-8").read().replace('<code dir="ltr">', "`").replace("</code>", "`")
        return sorted({line.strip() for line in text.replace("`", "\n").splitlines() if line.startswith("tandem ") and ("://" in line or "my-parquet" in line)})

    found = commands_of("guide/prepare-data.md")
    assert len(found) >= 5, found
    assert commands_of("fa/guide/prepare-data.md") == found, (commands_of("fa/guide/prepare-data.md"), found)
    short = ["--model-size", "smoke", "--batch-size", "2", "--max-steps", "2", "--backend", "cpu"]
    for line in found:
        words = line.split()[1:]
        run(*words, *(short if words[0] == "train" else []), code=0, cwd=here)
    return f"{len(found)} commands"


@check
def without_the_features_it_says_how_to_build_it():
    if not a.without:
        return "not asked for"
    said = run("doctor", "s3://tandem/packed", code=2, tandem=a.without).stderr
    assert "s3://tandem/packed" in said and "--features cloud" in said, said
    said = run("doctor", path("parquet"), code=2, tandem=a.without).stderr
    assert "--features parquet" in said, said


@check
def nothing_that_is_written_has_a_secret_in_it():
    assert not any("hunter2" in output for output in outputs), [output for output in outputs if "hunter2" in output]
    files = 0
    for folder, _, names in os.walk(work):
        for name in names:
            with open(os.path.join(folder, name), "rb") as file:
                assert b"hunter2" not in file.read(), os.path.join(folder, name)
            files += 1
    return f"{len(outputs)} outputs, {files} files"


for function in checks:
    if a.only in function.__name__:
        started = time.time()
        note = function()
        print(f"  {function.__name__.replace('_', ' ')}{f' ({note})' if note else ''}: {time.time() - started:.1f} s", flush=True)
shutil.rmtree(work)
print("a corpus in a bucket and in parquet files is the corpus on the disk")
os._exit(0)
