#!/usr/bin/env python3
"""Several ranks: how fast gradients are added up, what of it is exposed, and whether `tandem simulate --world` says so beforehand.

benches/ranks.py TANDEM SIMULATED_RANKS [--rounds N] [--sums | --predictions]

TANDEM is the program, SIMULATED_RANKS the example of that name (`cargo build --release -p tandem-cli -p tandem-train --example simulated_ranks`).
Needs mpirun and mpicc (Debian: openmpi-bin libopenmpi-dev). What is compared runs in turn; figures are medians of the rounds.

Sums are compared with all gradients there at once; steps with gradients that come while a simulated device still computes, in the order and at the moments
of a real backward pass (crates/train/examples/simulated_ranks.rs), and with gradients that come at once, for what the overlap gives.
"""

import argparse
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import tempfile

STEP_MS = 50
STEPS = 40
MPIRUN = [shutil.which("mpirun.openmpi") or "mpirun", "--oversubscribe", "--allow-run-as-root", "--bind-to", "none"]


def last_json(command):
    ended = subprocess.run([str(word) for word in command], capture_output=True, text=True, env={**os.environ, "RAYON_NUM_THREADS": "1"})
    if ended.returncode != 0:
        raise SystemExit(f"{command}: {ended.stderr[-2000:]}")
    return json.loads(ended.stdout.strip().splitlines()[-1])


def ranks(world, *command):
    return last_json([*(MPIRUN + ["-n", world] if world > 1 else []), *command])


def median(values):
    return statistics.median(values)


def spread(values):
    return f"{median(values):.2f} ({min(values):.2f} to {max(values):.2f})"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tandem")
    parser.add_argument("simulated_ranks")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--predictions", action="store_true", help="only these")
    parser.add_argument("--sums", action="store_true", help="only these")
    options = parser.parse_args()
    tandem, simulated, rounds = os.path.abspath(options.tandem), os.path.abspath(options.simulated_ranks), range(options.rounds)
    with tempfile.TemporaryDirectory() as folder:
        plain = pathlib.Path(folder) / "plain"
        subprocess.run([shutil.which("mpicc.openmpi") or "mpicc", "-O2", "-o", plain, pathlib.Path(__file__).with_suffix(".c")], check=True)
        size = ranks(1, simulated, "--size", "tiny", "--steps", 1)["gradient_bytes"]
        print(f"gradients of the tiny model: {size / 1e6:.2f} MB; a step of {STEP_MS} ms is a sleep; {STEPS} steps, {options.rounds} rounds; 1-minute load {os.getloadavg()[0]:.1f}\n")

        print("| ranks | step, ms | our sum, ms | plain MPI_Allreduce, ms | plain / ours, in each round | plain in huge pages, ms | that / ours |\n|---|---|---|---|---|---|---|")
        links, backward = [], []
        for world in () if options.predictions else (2, 4):
            for step_ms in (1, STEP_MS):
                ours, theirs, huge = [], [], []
                for _ in rounds:
                    # After the same sleep, which ends on no two ranks at the same moment.
                    ours.append(ranks(world, simulated, "--size", "tiny", "--step-ms", step_ms, "--steps", STEPS, "--at-once")["sum_ms"])
                    theirs.append(ranks(world, plain, "allreduce", size, STEPS, step_ms)["ms"])
                    huge.append(ranks(world, plain, "allreduce", size, STEPS, step_ms, "huge")["ms"])
                ratios, ratios_huge = ([b / a for a, b in zip(ours, other)] for other in (theirs, huge))
                print(f"| {world} | {step_ms} | {spread(ours)} | {spread(theirs)} | {spread(ratios)} | {spread(huge)} | {spread(ratios_huge)} |", flush=True)

        if options.sums:
            return
        print("\n| ranks | predicted step, ms | measured step, ms | measured / predicted, in each round | exposed, predicted | exposed, measured | exposed without overlap |\n|---|---|---|---|---|---|---|")
        for world in (2, 4):
            predicted, measured, shares, forecasts, at_once = [], [], [], [], []
            for _ in rounds:
                link = ranks(2, plain, "link")
                links.append(link)
                copies = copy_speed(simulated, size)
                forecast = last_json([tandem, "simulate", "--world", world, "--json", "--load", "1ms", "--preprocess", "1ms", "--transfer", "1ms", "--train", f"{STEP_MS}ms",
                                      "--gradients", size, "--link", f"{link['bytes_per_s'] / 1e6}MB/s", "--latency", f"{link['latency_us']}us", "--copies", f"{copies / 1e6}MB/s",
                                      "--ranks-per-host", world, "--cores", len(os.sched_getaffinity(0))])
                row = next(row for row in forecast["weak"] if row["world"] == world)
                report = ranks(world, simulated, "--size", "tiny", "--step-ms", STEP_MS, "--steps", STEPS)
                backward.append(report["backward"])
                predicted.append(row["period_ms"])
                measured.append(report["period_ms"])
                shares.append(100 * report["exposed"])
                forecasts.append(100 * row["exposed"])
                at_once.append(100 * ranks(world, simulated, "--size", "tiny", "--step-ms", STEP_MS, "--steps", STEPS, "--at-once")["exposed"])
            ratios = [b / a for a, b in zip(predicted, measured)]
            print(f"| {world} | {spread(predicted)} | {spread(measured)} | {spread(ratios)} | {spread(forecasts)} % | {spread(shares)} % | {spread(at_once)} % |", flush=True)
        print(f"\nlink, both ways at once: {median([link['bytes_per_s'] for link in links]) / 1e9:.2f} GB/s, {median([link['latency_us'] for link in links]):.2f} us; "
              f"copies {copies / 1e9:.2f} GB/s; gradients come over the last {100 * median(backward):.0f} % of a step")


def copy_speed(simulated, size):
    """Bytes per second of copying gradients out of tensors and back, with nobody else."""
    return 2 * size / (ranks(1, simulated, "--size", "tiny", "--steps", 1)["copy_ms"] / 1e3)


if __name__ == "__main__":
    main()
