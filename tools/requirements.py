"""Prints what pip shall install for a purpose, as pyproject.toml says it: build or test."""

import sys
import tomllib
from pathlib import Path

project = tomllib.loads(Path("pyproject.toml").read_text(encoding="utf-8"))
# scikit-build-core asks for these two when it is built in isolation and the system has none.
build = [*project["build-system"]["requires"], "cmake>=3.24", "ninja>=1.11"]
wanted = {"build": build, "test": project["project"]["optional-dependencies"]["test"]}
print("\n".join(wanted[sys.argv[1]]))
