#!/usr/bin/env python3
"""The image without Docker: the Dockerfile's steps in a bare root of Debian, and commands in it as its user.

    python bare_root.py build ROOT PROJECT [--env PIP_CERT]...
    python bare_root.py run ROOT STATE [--env NAME]... -- tidemark status

Needs root and mmdebstrap. `build` takes each step from the Dockerfile, so there is no second list of them; the base
image is what it stands for, Debian with Python 3.11. `run` is what the manifests demand of a container: the root cannot
be written, STATE is the volume, `/tmp` is empty, and the user has no rights. It shares the network of this machine.
`--env` hands on a variable of the environment.
"""

import argparse
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
SOURCE = HERE.parent.parent
IMAGE = "etc/tidemark/image.json"
FLAG = re.compile(r"--([a-z]+)=(\S+)\s+")
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def instructions(dockerfile):
    """Its instructions in order, each as its word and the rest of it."""
    lines = [line for line in dockerfile.splitlines() if line.strip() and not line.startswith("#")]
    for instruction in re.sub(r"\\\n\s*", "", "\n".join(lines)).splitlines():
        word, _, rest = instruction.partition(" ")
        yield word, rest


def debian(root, suite):
    """Install what a Python image on this Debian has, as far as the Dockerfile relies on it."""
    wanted = "python3.11,python3.11-venv,ca-certificates"
    subprocess.run(["mmdebstrap", "--quiet", "--variant=minbase", f"--include={wanted}", suite, str(root)], check=True)
    for name in ("python", "python3"):
        (root / "usr/local/bin" / name).symlink_to("/usr/bin/python3.11")
    # Networks that look into what is encrypted have a certificate of their own, which this machine trusts.
    for certificate in Path("/usr/local/share/ca-certificates").glob("*.crt"):
        shutil.copy(certificate, root / "usr/local/share/ca-certificates")
    subprocess.run(entered(root, ["update-ca-certificates"], {"PATH": PATH}), check=True)


def entered(root, command, environment, workdir="/", mounts=(), rights=()):
    """The command line that runs a command in the root, with process numbers of its own, so that all ends with it."""
    # What a runtime of containers gives them, too.
    for name in ("etc/resolv.conf", "etc/hosts"):
        shutil.copy(f"/{name}", root / name)
    variables = [f"{name}={value}" for name, value in environment.items()]
    started = ["chroot", root, *rights, "env", "--ignore-environment", f"--chdir={workdir}", *variables, *command]
    steps = [*mounts, ["mount", "-t", "proc", "proc", root / "proc"], ["exec", *started]]
    script = "\n".join(shlex.join(map(str, step)) for step in steps)
    return ["unshare", "--mount", "--pid", "--fork", "--kill-child=TERM", "sh", "-ec", script]


def copy(rest, root, workdir, contexts):
    """Carry out a COPY."""
    flags, rest = dict(FLAG.findall(rest)), FLAG.sub("", rest)
    *names, to = rest.split()
    target = root / workdir.lstrip("/") / to if not to.startswith("/") else root / to.lstrip("/")
    for name in names:
        source = contexts[flags.get("from", "")] / name.strip("/")
        if source.is_dir():
            ignored = None if "from" in flags else shutil.ignore_patterns("__pycache__")
            shutil.copytree(source, target, symlinks=True, ignore=ignored, dirs_exist_ok=True)
        else:
            into = target / source.name if to.endswith("/") else target
            into.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, into)
            if "chmod" in flags:
                into.chmod(int(flags["chmod"], 8))


def build(root, project, handed_on):
    """Build every stage beside the root, which is the last of them."""
    root.parent.mkdir(parents=True, exist_ok=True)
    contexts, environments = {"": SOURCE, "project": project}, {}
    stage, environment, workdir, image = Path(), {}, "/", {}
    for word, rest in instructions((HERE / "Dockerfile").read_text()):
        print(f"{word} {rest}"[:120], flush=True)
        if word == "FROM":
            base, _, name = rest.split()
            stage, workdir = root.with_name(f"{root.name}.{name}"), "/"
            if base in contexts:
                subprocess.run(["cp", "--archive", "--reflink=auto", contexts[base], stage], check=True)
            else:
                debian(stage, base.rpartition("-")[2])
            environment = {**environments.get(base, {"PATH": PATH})}
            contexts[name], environments[name] = stage, environment
        elif word == "ENV":
            for pair in shlex.split(rest):
                variable, _, value = pair.partition("=")
                environment[variable] = value.replace("$PATH", environment["PATH"])
        elif word == "WORKDIR":
            workdir = rest
            (stage / rest.lstrip("/")).mkdir(parents=True, exist_ok=True)
        elif word == "RUN":
            command = ["/bin/sh", "-c", FLAG.sub("", rest, count=1) if rest.startswith("--") else rest]
            variables = environment | {"HOME": "/root"} | handed_on
            subprocess.run(entered(stage, command, variables, workdir), check=True)
        elif word == "COPY":
            copy(rest, stage, workdir, contexts)
        else:
            image[word] = rest
    for name in contexts.keys() - {"", "project"}:
        if contexts[name] != stage:
            shutil.rmtree(contexts[name])
    (stage / IMAGE).write_text(json.dumps({**image, "ENV": environment, "WORKDIR": workdir}))
    stage.rename(root)


def run(root, state, command, handed_on):
    """Run a command as a container does that may write nothing but its volumes."""
    image = json.loads((root / IMAGE).read_text())
    user, group = image["USER"].split(":")
    state.mkdir(parents=True, exist_ok=True)
    os.chown(state, int(user), int(group))
    mounts = (
        ["mount", "--bind", root, root],
        ["mount", "-o", "remount,bind,ro", root],
        ["mount", "--bind", state, root / "var/lib/tidemark"],
        *(["mount", "-t", "tmpfs", "-o", "mode=1777", "tmpfs", root / name] for name in ("tmp", "dev/shm")),
    )
    rights = ["setpriv", f"--reuid={user}", f"--regid={group}", "--clear-groups"]
    rights += ["--no-new-privs", "--bounding-set=-all", "--inh-caps=-all"]
    command = [*json.loads(image["ENTRYPOINT"]), *command]
    line = entered(root, command, image["ENV"] | handed_on, image["WORKDIR"], mounts, rights)
    # Who ends this process with TERM ends the command so.
    os.execvp(line[0], line)


def main():
    """Build the root, or become a command in it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("build", "run"))
    parser.add_argument("root", type=Path)
    parser.add_argument("folder", type=Path, help="the project, or the volume")
    parser.add_argument("--env", action="append", default=[])
    words = sys.argv[1:]
    own = words.index("--") if "--" in words else len(words)
    given = parser.parse_args(words[:own])
    root, folder = given.root.resolve(), given.folder.resolve()
    handed_on = {name: os.environ[name] for name in given.env}
    if given.what == "build":
        build(root, folder, handed_on)
    else:
        run(root, folder, words[own + 1 :], handed_on)


if __name__ == "__main__":
    main()
