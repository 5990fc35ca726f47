"""Licenses of everything that is linked into the program: scripts/third_party.py OUTPUT [CARGO ARGUMENTS...]

Writes a list (name, version, license) and the license files that each library ships with, equal ones once."""

import hashlib
import json
import subprocess
import sys
from pathlib import Path

WANTED = ("license", "licence", "copying", "notice", "copyright", "unlicense")


def cargo(*arguments):
    return subprocess.run(["cargo", *arguments], check=True, capture_output=True, text=True).stdout


def main():
    output, features = Path(sys.argv[1]), sys.argv[2:]
    tree = cargo("tree", "-p", "tandem-cli", "--edges", "normal", "--prefix", "none", "--locked", "--format", "{p}|{l}", *features)
    linked = {}
    for line in tree.splitlines():
        package, license = line.removesuffix(" (*)").rsplit("|", 1)
        name, version = package.split()[:2]
        if not name.startswith("tandem-"):
            linked[(name, version.removeprefix("v"))] = license
    metadata = json.loads(cargo("metadata", "--locked", "--format-version", "1"))
    folders = {(p["name"], p["version"]): Path(p["manifest_path"]).parent for p in metadata["packages"]}
    texts, lines = {}, []
    for key, license in sorted(linked.items()):
        files = [f for f in sorted(folders[key].iterdir()) if f.is_file() and f.name.lower().startswith(WANTED)]
        lines.append(f"{key[0]} {key[1]}: {license}" + ("" if files else " (ships no license file)"))
        for file in files:
            text = file.read_text("utf-8", "replace").strip()
            kept = texts.setdefault(hashlib.sha256(text.encode()).hexdigest(), (text, []))
            kept[1].append(f"{key[0]} {key[1]} ({file.name})")
    parts = ["Libraries in this program and their licenses.\n", "\n".join(lines)]
    for text, users in texts.values():
        parts.append("-" * 78 + "\n" + "\n".join(users) + "\n\n" + text)
    output.write_text("\n\n".join(parts) + "\n")
    print(f"{len(linked)} libraries, {len(texts)} license texts", file=sys.stderr)


main()
