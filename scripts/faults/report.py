"""The campaign's page."""

import datetime
import platform
from collections import Counter

HEAD = """# Faults on purpose

What `scripts/campaign` did and found; the page is written by it. Every moment and place is drawn from the seed and the number of
the case, so `scripts/campaign --seed S` strikes at the same operations again (kills at "any time" go by the clock). A run is of the
smoke model, 16 steps on a corpus of 12 made clips, with a checkpoint after every step, validation, samples, a cache on the disk and
TensorBoard; it counts as resumed when its losses, validations, weights and optimizer state are bit for bit those of the run that
nobody interrupted (on software GPUs: losses within 1e-3). A fault counts as told when the error names the place and what to do.
"""


def write(path, results):
    seeds = sorted({r["seed"] for r in results})
    commits = sorted({r["commit"] for r in results if r["commit"]})
    programs = sorted({r.get("program", "unknown") for r in results})
    lines = [HEAD, f"Written {datetime.date.today()}; seeds {', '.join(map(str, seeds))}; "
             f"{platform.system()} {platform.machine()}; commits {', '.join(commits) or 'unknown'} (of the scripts); "
             f"programs (SHA-256) {', '.join(programs)}; "
             f"{sum(r['seconds'] for r in results) / 60:.0f} minutes.", ""]
    killed = [r for r in results if r["part"] == "kills"]
    if killed:
        lines += ["## Kills (SIGKILL)", "", "| where | runs | kills | of those in the writing of | promises broken |",
                  "|---|---|---|---|---|"]
        for what in sorted({r["what"] for r in killed}):
            of = [r for r in killed if r["what"] == what]
            hits = Counter()
            for r in of:
                hits.update(r.get("outcome") or {})
            aims = ", ".join(f"{aim} {n}" for aim, n in hits.most_common())
            lines.append(f"| {what} | {len(of)} | {sum(hits.values())} | {aims} | {broken(of)} |")
        lines.append("")
    for part, title in (("disk", "Disk"), ("corpus", "Corpus that changes under a run"),
                        ("clock", "Clock that jumps"), ("device", "Lanes and devices")):
        of_part = [r for r in results if r["part"] == part]
        if of_part:
            lines += [f"## {title}", "", "| fault | times | how it ended | promises broken |", "|---|---|---|---|"]
            for what in dict.fromkeys(r["what"] for r in of_part):
                of = [r for r in of_part if r["what"] == what]
                ends = Counter(r.get("outcome") or ("skipped" if "skipped" in r else "broken") for r in of)
                ended = ", ".join(f"{end} {n}" if len(ends) > 1 else end for end, n in ends.most_common())
                lines.append(f"| {what} | {len(of)} | {ended} | {broken(of)} |")
            lines.append("")
    for r in results:
        if r["part"] == "soak" and "outcome" in r:
            o = r["outcome"]
            lines += ["## Long run", "", f"{o['steps']} steps with autotune, checkpoints, validation, samples and TensorBoard, "
                      f"{r['seconds'] / 60:.1f} min, {o['samples']} looks. Highest in the middle third and in the last:", "",
                      "| | middle | last |", "|---|---|---|"]
            for name, a, b in zip(("RSS, MB", "threads", "open files"), o["middle"], o["end"]):
                lines.append(f"| {name} | {a:.0f} | {b:.0f} |")
            lines.append("")
    bad = [r for r in results if "broken" in r]
    if bad:
        lines += ["## Broken", ""]
        lines += [f"- seed {r['seed']}, {r['part']}, {r['what']} #{r['number']}: {' '.join(r['broken'].split())[:300]}" for r in bad]
        lines.append("")
    path.write_text("\n".join(lines))


def broken(results):
    return sum("broken" in r for r in results)
