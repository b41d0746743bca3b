"""Roots of other systems, with a Python or a processor that this machine lacks: `make roots`.

    python -m tests.platforms.roots python-3.14 aarch64

They need Debian (or what has debootstrap) and the user root; another processor needs qemu-user-static, and its entry in
binfmt_misc until the next boot. A root is kept in build/roots, some 500 MB. Each command has mounts of its own, which end with
it: this tree is at the same place inside, so that an environment in build/platforms is too.

Owns: which roots there are, how a command runs in one. Must not know: what is tried there.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from tests.platforms import environments
from tests.platforms.environments import ROOT

HOME = ROOT / "build" / "roots"
MINUTES = 60
SETTINGS = ("/etc/resolv.conf", "/etc/pip.conf", "/etc/ssl/certs/ca-certificates.crt")
"""What pip needs of the system outside."""

ENTER = """set -e
tree=$1 root=$2; shift 2
mount -t proc proc "$root/proc"
mount --rbind /dev "$root/dev"
mkdir -p "$root$tree"
mount --bind "$tree" "$root$tree"
exec chroot "$root" env -u JAVA_HOME "$@"
"""
"""A script of sh: mount, in a namespace of mounts of its own, and run the command in the root."""


EMULATOR = Path("/usr/bin/qemu-aarch64-static")
BINFMT = Path("/proc/sys/fs/binfmt_misc")
ENTRY = (
    r":qemu-aarch64:M::\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\xb7\x00"
    r":\xff\xff\xff\xff\xff\xff\xff\x00\xff\xff\xff\xff\xff\xff\xff\xff\xfe\xff\xff\xff"
    f":{EMULATOR}:F"
)
"""The heads of ELF programs for aarch64, and what runs them: opened now (F), so that a root need not have it."""


class Root(NamedTuple):
    """A release of Debian, and what is installed in it."""

    suite: str
    packages: tuple[str, ...]
    architecture: str = ""


ROOTS = {
    "python-3.14": Root(
        "forky", ("python3", "python3-venv", "python3-pip", "ca-certificates", "openjdk-21-jre-headless")
    ),
    "aarch64": Root("bookworm", ("python3", "python3-venv", "python3-pip", "python3-dev", "ca-certificates"), "arm64"),
}
"""Debian 14 (forky), whose Python is 3.14; and Debian 12, whose Python is 3.11, for another processor."""


def main() -> int:
    """Make the roots that are named."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="+", choices=sorted(ROOTS))
    for name in parser.parse_args().names:
        print(f"{name}: {make(name)}", flush=True)
    return 0


def make(name: str) -> Path:
    """The root of this name, which is made if it is not there.

    Raises:
        SystemExit: debootstrap is missing, or the user is not root.
        subprocess.CalledProcessError: debootstrap failed; what it said is on the terminal.
    """
    place, root = HOME / name, ROOTS[name]
    if place.exists():
        return place
    tool = shutil.which("debootstrap")
    if tool is None or os.geteuid() != 0:
        raise SystemExit("a root needs debootstrap (apt-get install debootstrap qemu-user-static) and the user root")
    half = place.with_name(f"{name}.half")
    shutil.rmtree(half, ignore_errors=True)
    half.mkdir(parents=True)
    command = [tool, "--variant=minbase", f"--include={','.join(root.packages)}"]
    if root.architecture:
        command += [f"--arch={root.architecture}", "--foreign"]
    # An older debootstrap lacks the names of newer suites; all have the script of sid
    command += [root.suite, str(half), mirror(), "/usr/share/debootstrap/scripts/sid"]
    subprocess.run(command, check=True, timeout=60 * MINUTES)
    if root.architecture:
        unpack(half)
    for path in filter(Path.exists, map(Path, SETTINGS)):
        inside = half / path.relative_to("/")
        inside.unlink(missing_ok=True)  # a link would lead out of the root
        shutil.copyfile(path, inside)
    half.rename(place)
    return place


def unpack(root: Path) -> None:
    """Unpack all packages that debootstrap has fetched, and configure none: under emulation dpkg takes a quarter of an hour."""
    for package in sorted((root / "var/cache/apt/archives").glob("*.deb")):
        with subprocess.Popen(["dpkg-deb", "--fsys-tarfile", package], stdout=subprocess.PIPE) as files:
            subprocess.run(
                ["tar", "-x", "--keep-directory-symlink", "-C", root],
                stdin=files.stdout,
                check=True,
                timeout=60 * MINUTES,
            )


def register() -> None:
    """Let the kernel run programs for aarch64, until the next boot.

    Raises:
        SystemExit: the emulator is missing, or this system may not register it.
    """
    if (BINFMT / "qemu-aarch64").exists():
        return
    if not EMULATOR.exists():
        raise SystemExit("aarch64 needs its emulator: apt-get install qemu-user-static")
    try:
        if not (BINFMT / "register").exists():
            subprocess.run(["mount", "-t", "binfmt_misc", "none", BINFMT], check=True, timeout=60)
        (BINFMT / "register").write_text(ENTRY, encoding="ascii")
    except (OSError, subprocess.CalledProcessError) as error:
        raise SystemExit(f"this system cannot run programs for aarch64: {error}") from error


def mirror() -> str:
    """The mirror of Debian that apt uses here.

    Raises:
        SystemExit: apt knows none.
    """
    done = subprocess.run(
        ["apt-get", "indextargets", "--format", "$(REPO_URI)", "Created-By: Packages"],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    if not done.stdout:
        raise SystemExit("apt knows no mirror: run apt-get update")
    return done.stdout.splitlines()[0]


def inside(root: Path) -> Sequence[str]:
    """What goes before a command to run it in a root, with /proc, /dev and this tree."""
    return ("unshare", "--mount", "sh", "-c", ENTER, "sh", str(ROOT), str(root))


def python_of(version: str) -> tuple[Path, Sequence[str]]:
    """The Python of this minor version, here or in a root that was made, and what goes before its commands.

    Raises:
        SystemExit: there is none.
    """
    here = environments.python_of(version)
    if here is not None:
        return here, ()
    place = HOME / f"python-{version}"
    if not place.exists():
        raise SystemExit(f"there is no Python {version}: install it, or make roots ARGS=python-{version}")
    return Path("/usr/bin/python3"), inside(place)


if __name__ == "__main__":
    sys.exit(main())
