#!/usr/bin/env python3
"""All loaders of shards, alternately, with the table of the other peers' run.py: see README.md."""
import argparse, os, sys

HERE = os.path.dirname(os.path.abspath(__file__))
p = argparse.ArgumentParser()
p.add_argument("--data", required=True)
p.add_argument("--python", default=sys.executable)
p.add_argument("--tandem", default="tandem")
p.add_argument("--variant", default="wav", choices=["wav", "flac"])
p.add_argument("--rounds", default="3")
p.add_argument("--epochs", default="2")
p.add_argument("--json")
a = p.parse_args()
peers = os.path.abspath(os.environ["PEERS"])
data = os.path.abspath(a.data)
python = os.path.abspath(a.python) if os.sep in a.python else a.python
os.environ.update(PEERS=peers, PYTHONPATH=peers)
command = [python, os.path.join(peers, "run.py"), "--data", data, "--variant", a.variant, "--rounds", a.rounds, "--epochs", a.epochs, "--python", python,
           "--only", "torch-w2"]
for name in ("webdataset", "shar", "mosaic"):
    command += ["--cmd", f"{name}-w2={python} {HERE}/peer_{name}.py --data {{data}} --variant {{variant}} --epochs {{epochs}} --workers 2"]
tandem = os.path.abspath(a.tandem) if os.sep in a.tandem else a.tandem
command += ["--cmd", f"tandem-shards={tandem} load {data}-tandem-{a.variant} --bench --epochs {{epochs}} --workers 2"]
command += ["--cmd", f"tandem-files={tandem} load {{data}} --bench --epochs {{epochs}} --variant {{variant}} --workers 2"]
command += ["--json", a.json] if a.json else []
os.execv(command[0], command)
