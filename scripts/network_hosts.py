#!/usr/bin/env python3
"""Run an MPI job on several hosts that are one machine's: namespaces of the network, with links of a stated speed.

    sudo python scripts/network_hosts.py --hosts 2 --gbit 10 -- python examples/train_distributed.py

Each host has a name, an address, cores and a link of its own to one switch, whose two directions carry so many Gb/s
each; ranks of different hosts reach each other through it only, as MPI takes them for different machines. What TCP
costs the CPU is real, the network's latency is that of the system's own bridge, tens of microseconds.
Needs Linux, root, iproute2, util-linux and Open MPI. What is made is removed at the end.
Exit status: that of the job; 2 for a wrong command line or where hosts can't be made.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import click

QUEUE_SECONDS = 0.05
"""What a link holds back before it drops packets: TCP meets the rate, not losses."""
BURST_SECONDS, LEAST_BURST = 2e-4, 1 << 18
"""What goes at once; not less, in bytes, than the largest piece that the system hands on."""
QUOTA = 1000
"""Microseconds that a host with a part of a core computes for before it rests: the system takes no less, and the others
wait for its messages while it rests."""
REMOVAL_SECONDS = 5.0
AS_ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
"""What Open MPI wants to hear from root."""
CGROUPS = Path("/sys/fs/cgroup")


class HostsError(Exception):
    """Hosts can't be made; the text says why."""


@dataclass(frozen=True)
class Host:
    name: str
    address: str
    cores: str


def call(*words: str) -> None:
    """
    Raises:
        HostsError: it failed.
    """
    try:
        done = subprocess.run(words, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise HostsError(f"found no {words[0]}; install it (iproute2, util-linux)") from None
    if done.returncode:
        raise HostsError(f"{shlex.join(words)}: {done.stderr.strip()}; are you root?")


@contextmanager
def links(hosts: Sequence[Host], switch: str, gateway: str, gbit: float | None) -> Iterator[None]:
    """Namespaces of the hosts' names, joined by a switch that this machine is connected to as `gateway`."""
    with ExitStack() as undo:
        call("ip", "link", "add", switch, "type", "bridge")
        undo.callback(call, "ip", "link", "del", switch)
        call("ip", "addr", "add", f"{gateway}/24", "dev", switch)
        call("ip", "link", "set", switch, "up")
        for number, host in enumerate(hosts):
            inside = ("ip", "netns", "exec", host.name)
            port = f"{switch}p{number}"
            call("ip", "netns", "add", host.name)
            undo.callback(call, "ip", "netns", "del", host.name)
            call("ip", "link", "add", port, "type", "veth", "peer", "name", "net0", "netns", host.name)
            call("ip", "link", "set", port, "master", switch, "up")
            call(*inside, "ip", "addr", "add", f"{host.address}/24", "dev", "net0")
            call(*inside, "ip", "link", "set", "net0", "up")
            call(*inside, "ip", "link", "set", "lo", "up")
            if gbit is not None:
                burst = max(int(gbit * 1e9 / 8 * BURST_SECONDS), LEAST_BURST)
                limit = ("tbf", "rate", f"{gbit * 1e3:.0f}mbit", "burst", str(burst), "latency",
                         f"{QUEUE_SECONDS * 1e3:g}ms")
                call("tc", "qdisc", "add", "dev", port, "root", *limit)
                call(*inside, "tc", "qdisc", "add", "dev", "net0", "root", *limit)
        yield


@contextmanager
def cpu_share(name: str, share: float) -> Iterator[Path]:
    """A control group whose processes have that part of a core together; the file that takes them in."""
    unified = (CGROUPS / "cgroup.controllers").exists()
    group = CGROUPS / name if unified else CGROUPS / "cpu" / name
    period = round(QUOTA / share)
    try:
        group.mkdir()
        if unified:
            (group / "cpu.max").write_text(f"{QUOTA} {period}")
        else:
            (group / "cpu.cfs_period_us").write_text(str(period))
            (group / "cpu.cfs_quota_us").write_text(str(QUOTA))
    except OSError as error:
        raise HostsError(f"a host can't have a part of a core: {error}") from None
    try:
        yield group / "cgroup.procs"
    finally:
        remove_group(group)


def remove_group(group: Path) -> None:
    """When its last process, a daemon that mpirun does not wait for, has ended."""
    end = time.monotonic() + REMOVAL_SECONDS
    while True:
        try:
            group.rmdir()
            return
        except OSError as error:
            if time.monotonic() > end:
                print(f"{group} stays: {error}", file=sys.stderr)
                return
            time.sleep(0.05)


def write_agent(folder: Path, hosts: Sequence[Host], groups: Sequence[Path]) -> Path:
    """What mpirun starts its daemons with, in place of ssh: AGENT HOST COMMAND."""
    (folder / "hosts").write_text("127.0.0.1 localhost\n" + "".join(f"{h.address} {h.name}\n" for h in hosts))
    cases = "".join(f"{host.name}) cores={host.cores} groups='{group}' ;;\n"
                    for host, group in zip(hosts, groups or [""] * len(hosts), strict=True))
    inner = 'hostname "$1" && mount --bind "$2" /etc/hosts && exec sh -c "$3"'
    agent = folder / "agent"
    agent.write_text(f"""#!/bin/sh
host=$1; shift
case $host in
{cases}esac
for group in $groups; do echo $$ >"$group"; done
exec taskset -c "$cores" nsenter --net="/run/netns/$host" unshare --uts --mount \\
    sh -c '{inner}' sh "$host" {shlex.quote(str(folder / 'hosts'))} "$*"
""")
    agent.chmod(0o755)
    return agent


def find_mpirun() -> str:
    """
    Raises:
        HostsError: there is none.
    """
    found = shutil.which("mpirun", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    if found is None:
        raise HostsError("found no mpirun: install .[mpi]")
    return found


def mpirun_words(hosts: Sequence[Host], agent: Path, network: str, ranks: int) -> list[str]:
    settings = {"plm_rsh_agent": str(agent), "plm_rsh_no_tree_spawn": "1", "oob_tcp_if_include": network,
                "btl": "self,vader,tcp", "btl_tcp_if_include": network, "pml": "ob1"}
    options = [word for name, value in settings.items() for word in ("--mca", name, value)]
    return [find_mpirun(), *options, "--bind-to", "none", "--host", ",".join(f"{host.name}:{ranks}" for host in hosts),
            "-n", str(ranks * len(hosts)), "--map-by", "slot"]


def run(command: Sequence[str], count: int, gbit: float | None, share: float | None, ranks: int) -> int:
    """The status of the command, run by `ranks` ranks on each of `count` hosts.

    Raises:
        HostsError: hosts can't be made.
    """
    own = os.getpid()
    network = f"10.77.{own % 250}"
    cores = sorted(os.sched_getaffinity(0))
    each = max(len(cores) // count, 1)
    hosts = [Host(f"ngraph{own}-{n}", f"{network}.{n + 2}",
                  ",".join(map(str, (cores * count)[n * each:(n + 1) * each]))) for n in range(count)]
    with ExitStack() as undo:
        folder = Path(undo.enter_context(tempfile.TemporaryDirectory(prefix="network-hosts-")))
        undo.enter_context(links(hosts, f"ngb{own}", f"{network}.1", gbit))
        groups = [undo.enter_context(cpu_share(host.name, share)) for host in hosts] if share is not None else []
        words = mpirun_words(hosts, write_agent(folder, hosts, groups), f"{network}.0/24", ranks)
        return subprocess.run([*words, *command], env={**os.environ, **AS_ROOT}, check=False).returncode


@click.command(context_settings={"help_option_names": ["-h", "--help"], "ignore_unknown_options": True})
@click.option("--hosts", "count", default=2, show_default=True, type=click.IntRange(1, 200))
@click.option("--ranks", default=1, show_default=True, type=click.IntRange(1), help="Of each host.")
@click.option("--gbit", type=click.FloatRange(0, min_open=True), help="Of each link, both ways. Default: no limit.")
@click.option("--cpu-share", "share", type=click.FloatRange(0.01, 1), help="Of a core for each host, so that there may "
              "be more hosts than cores. Default: hosts divide the cores.")
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
def main(count: int, ranks: int, gbit: float | None, share: float | None, command: tuple[str, ...]) -> None:
    """Run COMMAND as an MPI job on several hosts that are this machine's."""
    if share is None and count > len(os.sched_getaffinity(0)):
        raise click.UsageError(f"found {len(os.sched_getaffinity(0))} cores for {count} hosts: give --cpu-share")
    try:
        sys.exit(run(command, count, gbit, share, ranks))
    except HostsError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
