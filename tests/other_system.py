"""What other systems lack, and commands on a simulated one: `python tests/other_system.py SYSTEM`.

Only seqgen's modules get the simulated `os`, `sys` and so on: the libraries that it uses have
versions of their own for each system. Of Windows, its rules are simulated too: what is open cannot
be moved or deleted, and nothing is renamed to a name that is taken.

It reads a JSON list of arguments a line, and answers each with one of the exit code, standard
output and standard error. An empty list imports all modules.
"""

from __future__ import annotations

import builtins
import contextlib
import importlib
import io
import json
import os
import pkgutil
import sys
import types
from pathlib import Path

# Of the standard library's documentation, "Availability: Unix", and not on Windows.
MODULES = {
    *("fcntl", "resource", "termios", "tty", "pty", "pwd", "grp", "syslog", "crypt", "nis", "spwd"),
    *("curses", "readline", "posix", "posixpath", "_posixshmem"),
}
ATTRIBUTES = {
    "os": {
        *("fork", "forkpty", "register_at_fork", "wait", "waitid", "wait3", "wait4", "killpg"),
        *("posix_spawn", "posix_spawnp", "setsid", "setpgid", "getpgid", "getpgrp", "tcsetpgrp"),
        *("getuid", "geteuid", "getgid", "getegid", "getgroups", "setuid", "setgid", "setgroups"),
        *("chown", "fchown", "lchown", "fchmod", "mkfifo", "mknod", "major", "minor", "makedev"),
        *("sched_getaffinity", "sched_setaffinity", "sched_yield", "nice", "getpriority"),
        *("posix_fadvise", "posix_fallocate", "sync", "fdatasync", "pread", "pwrite", "preadv"),
        *("pwritev", "readv", "writev", "sendfile", "splice", "copy_file_range", "memfd_create"),
        *("statvfs", "fstatvfs", "pathconf", "fpathconf", "sysconf", "confstr", "getloadavg"),
        *("uname", "openpty", "ttyname", "ctermid", "pipe2", "lockf", "chroot", "fchdir"),
        *("O_DIRECTORY", "O_NOFOLLOW", "O_NONBLOCK", "O_SYNC", "O_DSYNC", "O_CLOEXEC", "O_TMPFILE"),
        *("WNOHANG", "WIFEXITED", "WEXITSTATUS", "WIFSIGNALED", "WTERMSIG", "getxattr", "setxattr"),
        *("listxattr", "removexattr", "eventfd", "environb", "getenvb", "EX_OK", "EX_USAGE"),
    },
    "signal": {
        *("SIGHUP", "SIGUSR1", "SIGUSR2", "SIGPIPE", "SIGALRM", "SIGCHLD", "SIGKILL", "SIGQUIT"),
        *("SIGBUS", "SIGCONT", "SIGSTOP", "SIGTSTP", "SIGWINCH", "SIGTTIN", "SIGTTOU", "alarm"),
        *("setitimer", "getitimer", "ITIMER_REAL", "ITIMER_PROF", "SIGPROF", "pthread_sigmask"),
        *("pthread_kill", "pause"),
        *("sigwait", "sigwaitinfo", "sigtimedwait", "sigpending", "siginterrupt", "SIG_BLOCK"),
    },
    "mmap": {
        *("MAP_PRIVATE", "MAP_SHARED", "MAP_ANONYMOUS", "MAP_ANON", "MAP_POPULATE"),
        *("PROT_READ", "PROT_WRITE", "PROT_EXEC", "MADV_DONTNEED", "MADV_HUGEPAGE"),
        *("MADV_NOHUGEPAGE", "MADV_WILLNEED", "MADV_SEQUENTIAL", "MADV_RANDOM", "MADV_FREE"),
    },
    "socket": {"AF_UNIX", "socketpair", "SO_REUSEPORT", "send_fds", "recv_fds"},
    "time": {"clock_gettime", "clock_getres", "CLOCK_MONOTONIC", "CLOCK_REALTIME", "tzset"},
    "select": {"poll", "epoll", "kqueue"},
}
# Of macOS.
ON_MACOS = {
    "os": {"sched_getaffinity", "sched_setaffinity", "posix_fadvise", "posix_fallocate", "splice"},
    "mmap": {"MADV_HUGEPAGE", "MADV_NOHUGEPAGE", "MAP_POPULATE"},
    "signal": {"sigtimedwait", "sigwaitinfo"},
    "select": {"epoll"},
}
PYTHONS_OWN = ("pathlib", "io", "_io", "codecs", "tempfile")


class Simulated(types.ModuleType):
    """A module as another system has it: some names are missing, others have another value."""

    def __init__(self, real: types.ModuleType, missing: set[str], changed: dict) -> None:
        super().__init__(real.__name__)
        self.__dict__.update(_real=real, _missing=missing, **changed)

    def __getattr__(self, name: str):
        if name in self._missing:
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}", name=name)
        return getattr(self._real, name)

    def __setattr__(self, name: str, value) -> None:
        setattr(self._real, name, value)


def simulate(system: str) -> None:
    """Show seqgen another system: windows or macos."""
    windows = system == "windows"
    missing = ATTRIBUTES if windows else ON_MACOS
    changed = {"sys": {"platform": "win32" if windows else "darwin"}}
    if windows:
        changed["os"] = {"name": "nt", "supports_dir_fd": set(), "open": open_file}
        os.rename = refusing_taken_names(os.rename)
    modules = {
        name: Simulated(importlib.import_module(name), missing.get(name, set()), about)
        for name in {*missing, *changed}
        for about in [changed.get(name, {})]
    }
    modules["_signal"] = modules["signal"]
    original = builtins.__import__

    def import_module(name, variables=None, local=None, fromlist=(), level=0):
        found = original(name, variables, local, fromlist, level)
        if level or not is_seqgen((variables or {}).get("__name__")):
            return found
        if windows and name.partition(".")[0] in MODULES:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return modules.get(name if fromlist else name.partition(".")[0], found)

    builtins.__import__ = import_module
    sys.addaudithook(audit_windows if windows else audit_paths)


def is_seqgen(name: str | None) -> bool:
    return (name or "").partition(".")[0] == "seqgen"


def open_file(path, flags: int, *more, **how) -> int:
    """Open a file as Windows does, which has no handles of folders."""
    if Path(path).is_dir():
        raise PermissionError(13, "Permission denied", str(path))
    return os.open(path, flags, *more, **how)


def refusing_taken_names(rename):
    """Rename as Windows does, which replaces nothing."""

    def renamed(source, target, **how):
        if os.path.lexists(target):
            raise FileExistsError(17, "File exists", str(source), None, str(target))
        return rename(source, target, **how)

    return renamed


def audit_paths(event: str, arguments: tuple) -> None:
    """Hide /proc and /sys from seqgen."""
    if event != "open" or not str(arguments[0]).startswith(("/proc/", "/sys/")):
        return
    frame = sys._getframe(1)
    while frame and frame.f_globals.get("__name__", "").partition(".")[0] in PYTHONS_OWN:
        frame = frame.f_back
    if frame and is_seqgen(frame.f_globals.get("__name__")):
        raise FileNotFoundError(2, "No such file or directory", str(arguments[0]))


def audit_windows(event: str, arguments: tuple) -> None:
    """Hide /proc and /sys, too, and let no file be moved or deleted that this process has open."""
    audit_paths(event, arguments)
    if event in ("os.rename", "os.remove", "os.rmdir"):
        places = arguments[: 2 if event == "os.rename" else 1]
        for place in places:
            if held := open_at(Path(os.fsdecode(place)).absolute()):
                message = "The process cannot access the file because it is being used"
                raise PermissionError(13, f"{message}: {held}", str(place))


def open_at(place: Path) -> Path | None:
    """Find an open or mapped file of this process that is a path, or below it."""
    found = []
    for handle in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):  # of this listing itself
            found.append(handle.readlink())
    maps = Path("/proc/self/maps").read_text().splitlines()
    found += [Path("/", line.partition("/")[2]) for line in maps]
    return next((path for path in found if path.is_relative_to(place)), None)


def answer(arguments: list[str]) -> tuple[int, str, str]:
    """Run a command, or import all modules."""
    out, said = io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(said):
        if arguments:
            from seqgen.cli import run

            code = run(arguments)
        else:
            import seqgen

            code = 0
            for module in pkgutil.walk_packages(seqgen.__path__, "seqgen."):
                importlib.import_module(module.name)
    return code, out.buffer.getvalue().decode(), said.getvalue()


def main() -> None:
    """Answer the commands on standard input."""
    os.environ["SEQGEN_TRACEBACK"] = "1"
    simulate(sys.argv[1])
    asked, sys.stdin = sys.stdin, io.StringIO()  # commands read standard input
    for line in asked:
        sys.__stdout__.write(json.dumps(answer(json.loads(line))) + "\n")
        sys.__stdout__.flush()


if __name__ == "__main__":
    main()
