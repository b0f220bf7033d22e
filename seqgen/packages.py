"""Optional packages: check that they are installed, and suggest the install command."""

from __future__ import annotations

import importlib

from seqgen.errors import SeqgenError

# Packages that are imported by another name than the one that pip knows.
MODULES = {"scikit-learn": "sklearn"}


class MissingPackage(SeqgenError):  # noqa: N818
    """A package that a feature needs is not installed."""


def require_packages(feature: str, *packages: str) -> None:
    """Check that the packages that a feature needs can be imported.

    Args:
        feature: what needs them, as the subject of a sentence.
        packages: their names on the package index.

    Raises:
        MissingPackage: some are missing; names them and says how to install them.
    """
    missing = [package for package in packages if not _is_installed(package)]
    if missing:
        noun = "package" if len(missing) == 1 else "packages"
        names = " and ".join(missing)
        raise MissingPackage(f"{feature} needs the {noun} {names}: {install_command(*missing)}")


def install_command(*packages: str) -> str:
    """Write the command that installs packages.

    It names the packages themselves, not an extra of seqgen: that is right wherever seqgen was
    installed from.
    """
    return f"pip install {' '.join(packages)}"


def _is_installed(package: str) -> bool:
    try:
        importlib.import_module(MODULES.get(package, package))
    except ImportError:
        return False
    return True
