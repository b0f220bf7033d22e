"""The memory that a process may use: the least limit of its control groups and of the machine."""

from __future__ import annotations

import pytest

from seqgen.engines import memory_limit


@pytest.fixture
def limits(tmp_path, monkeypatch):
    """Return a function that lays out control groups: those of a process, and files of limits."""

    def lay_out(groups: str, files: dict[str, str]) -> None:
        (tmp_path / "cgroup").write_text(groups)
        for name, limit in files.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(limit)

    monkeypatch.setattr(memory_limit, "CGROUPS", tmp_path / "cgroup")
    v2, v1 = (tmp_path / "v2", "memory.max"), (tmp_path / "v1", "memory.limit_in_bytes")
    monkeypatch.setattr(memory_limit, "CGROUP_LIMITS", (v2, v1))
    return lay_out


@pytest.mark.parametrize(
    ("groups", "files"),
    [
        ("0::/\n", {"v2/memory.max": "1000\n"}),  # of a container with groups of its own
        ("", {"v2/memory.max": "1000\n"}),
        ("0::/a/b\n", {"v2/a/memory.max": "1000\n", "v2/a/b/memory.max": "max\n"}),
        ("0::/a/b\n", {"v2/a/memory.max": "2000\n", "v2/a/b/memory.max": "1000\n"}),
        ("5:memory:/jobs/7\n0::/\n", {"v1/jobs/7/memory.limit_in_bytes": "1000\n"}),
        ("5:hugetlb,memory:/jobs\n", {"v1/jobs/memory.limit_in_bytes": "1000\n"}),
        # Docker with version 1: the group's path on the host is not there in the container.
        ("5:memory:/docker/c0ffee\n", {"v1/memory.limit_in_bytes": "1000\n"}),
    ],
)
def test_the_least_limit_holds(limits, groups, files):
    limits(groups, files)
    assert memory_limit.memory() == 1000


def test_groups_of_other_controllers_and_files_without_numbers_limit_nothing(limits):
    unlimited = memory_limit.memory()
    files = {"v1/other/memory.limit_in_bytes": "1000\n", "v2/a/memory.max": "max\n"}
    limits("3:cpuset:/other\n1:name=systemd:/other\n0::/a\n", files)
    assert memory_limit.memory() == unlimited > 1 << 20
