"""Stand-ins for this machine's C library, to link libraries that run with an older glibc.

    python cmake/old_glibc.py 2.28 FOLDER COMPILER READELF
    python cmake/old_glibc.py --check LIBRARY NM

FOLDER gets a `libc.so` and a `libm.so` for the linker. They offer each function at its newest version that the older
glibc has, as the libraries of that glibc do. A function that came later is not there: csrc/core/old_glibc.c has those
that our code, or the C++ library, calls. The versions come from this machine's libraries, which keep all that they ever
had.

A shared library may be linked without all that it calls, as modules of Python are. `--check` fails by the names of
functions that are not there.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

LIBRARIES = ("libc.so.6", "libm.so.6", "ld-linux-x86-64.so.2")
# The linker's own names for them. The second file has what is linked statically from any glibc.
SCRIPTS = {"libc.so": "GROUP ( libc.so.6 {libc_nonshared.a} AS_NEEDED ( ld-linux-x86-64.so.2 ) )",
           "libm.so": "INPUT ( libm.so.6 )"}
SYMBOL = re.compile(r"\d+: [0-9a-f]+ +\d+ (FUNC|IFUNC|OBJECT) +(?:GLOBAL|WEAK) +DEFAULT +(?!UND)\S+ "
                    r"(\w+)(@@?)GLIBC_([\d.]+)$")


def number(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))


def symbols(listing: str, oldest: str) -> dict[str, dict[str, str]]:
    """By version, the symbols and their types that `readelf --dyn-syms` lists and that a glibc `oldest` has."""
    versions: dict[str, list[str]] = defaultdict(list)
    types, current = {}, set()
    for line in listing.splitlines():
        if (found := SYMBOL.search(line)) is not None:
            kind, name, mark, version = found.groups()
            versions[name].append(version)
            types[name] = "object" if kind == "OBJECT" else "function"
            if mark == "@@":
                current.add(name)
    chosen: dict[str, dict[str, str]] = defaultdict(dict)
    for name in sorted(current):  # others are for programs that were linked long ago
        known = [version for version in versions[name] if number(version) <= number(oldest)]
        if known:
            chosen[max(known, key=number)][name] = types[name]
    return chosen


def write(folder: Path, oldest: str, compiler: str, readelf: str) -> None:
    def found(name: str) -> str:
        path = subprocess.run([compiler, f"-print-file-name={name}"], check=True, capture_output=True, text=True).stdout
        return path.strip()

    folder.mkdir(parents=True, exist_ok=True)
    for library in LIBRARIES:
        listing = subprocess.run([readelf, "--wide", "--dyn-syms", found(library)], check=True, capture_output=True,
                                 text=True).stdout
        nodes = symbols(listing, oldest)
        if not nodes:
            raise SystemExit(f"{found(library)} has no functions of glibc {oldest}, expected one of glibc's libraries")
        assembler, script = folder / f"{library}.s", folder / f"{library}.map"
        assembler.write_text("".join(f".globl {name}\n.type {name},@{kind}\n.size {name},8\n{name}: .quad 0\n"
                                     for names in nodes.values() for name, kind in names.items()))
        script.write_text("".join(f"GLIBC_{version} {{ global: {'; '.join(names)}; }};\n"
                                  for version, names in nodes.items()))
        subprocess.run([compiler, "-shared", "-nostdlib", f"-Wl,-soname,{library},--version-script,{script}",
                        "-o", str(folder / library), str(assembler)], check=True)
    for name, text in SCRIPTS.items():
        (folder / name).write_text(text.replace("{libc_nonshared.a}", found("libc_nonshared.a")) + "\n")


def check(library: str, nm: str) -> None:
    """Fail if the library needs a function that is neither Python's, nor a kernel, nor of a version of its library."""
    listing = subprocess.run([nm, "--dynamic", "--undefined-only", library], check=True, capture_output=True,
                             text=True).stdout
    unknown = re.findall(r"^ +U (?!_?Py|ng_)(\w+)$", listing, re.MULTILINE)
    if unknown:
        raise SystemExit(f"{library} calls what the older glibc lacks: {', '.join(unknown)}; csrc/core/old_glibc.c has "
                         "such functions")


if __name__ == "__main__":
    if sys.argv[1] == "--check":
        check(*sys.argv[2:])
    else:
        write(Path(sys.argv[2]), sys.argv[1], *sys.argv[3:])
