"""Compiles the kernels into the wheel, if there is a C compiler; else NumPy does their work.

With SEQGEN_NATIVE=0 in the environment, the wheel has no kernels and is for every machine.
"""

import importlib.util
import os
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

FOLDER = Path("seqgen/engines/native")
# The texts of `seqgen course`. An editable install reads those of the checkout.
TEXTS = ("exciting.tsv", "hello.txt", "hotel.txt", "fox.txt", "dates.tsv", "play.txt")
TEXTS += ("reverse.tsv", "virus.tsv", "watch.txt", "watch.tsv", "xor.txt", "capitals.txt")
TEXTS += ("its.txt", "derivatives.py", "points.py")


class CustomBuildHook(BuildHookInterface):
    """Adds the compiled library, and says for which machine the wheel is."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile; see hatchling for the arguments."""
        if version != "editable":
            for name in TEXTS:
                build_data["force_include"][f"corpora/{name}"] = (
                    f"seqgen/plugins/course/corpora/{name}"
                )
        spec = importlib.util.spec_from_file_location(
            "library", Path(self.root) / FOLDER / "library.py"
        )
        kernels = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(kernels)
        if os.environ.get(kernels.VARIABLE) == "0":
            return
        try:
            made = kernels.compile_all()
        except OSError as error:
            self.app.display_warning(f"the kernels are left out: {error}")
            return
        build_data["artifacts"] += [f"/{FOLDER / library.name}" for library in made]
        build_data["pure_python"] = False
        platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
        build_data["tag"] = f"py3-none-{platform}"
