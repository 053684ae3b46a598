"""Imports point in one direction, names are exported, versions and extras agree, kernels use their vectors."""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

import logt

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "src" / "logt"

LEVELS = [
    {"_kernels", "errors"},
    {"_internal", "results"},
    {"metrics"},
    {"graph", "group_testing", "lists"},
    {"engine"},
    {"storage", "methods"},
    {"_index_base"},
    {"index"},
    {"evaluation", "augmentation", "descriptors", "integrations", "sklearn"},
    {"baselines", "datasets", "photos"},
    {"distributed"},
    {"reproduce", "server"},
    {"cli"},
    {"__main__"},
]


def imported(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "logt":
            inside = node.module.split(".")[1:]
            yield from ([inside[0]] if inside else [alias.name for alias in node.names])
        elif isinstance(node, ast.Import):
            yield from (a.name.split(".")[1] for a in node.names if a.name.startswith("logt."))


def test_imports_point_one_way():
    level = {name: number for number, names in enumerate(LEVELS) for name in names}
    files = [path for path in PACKAGE.rglob("*.py") if path.name != "__init__.py" or path.parent != PACKAGE]
    for path in files:
        name = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
        assert name in level, f"{name} is missing from the order of imports"
        for other in imported(path):
            allowed = level[other] < level[name] or other == name
            assert allowed, f"{name} imports {other}, which is at the same level or above"


def test_public_names_are_exactly_all():
    public = {name for name in vars(logt) if not name.startswith("_")}
    modules = {path.stem for path in PACKAGE.glob("*") if path.stem != "__pycache__"}
    assert public - modules | {"methods"} == set(logt.__all__)
    assert list(logt.__all__) == sorted(logt.__all__)


def test_importing_loads_nothing_heavy():
    code = "import sys, logt; print(*sorted(sys.modules))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    for heavy in (
        "fastapi",
        "faiss",
        "fsspec",
        "h5py",
        "jinja2",
        "matplotlib",
        "numkong",
        "onnxruntime",
        "PIL",
        "ray",
        "rich",
        "safetensors",
        "scipy",
        "sklearn",
        "threadpoolctl",
        "typer",
        "uvicorn",
    ):
        assert heavy not in loaded


def test_importing_makes_no_thread():
    code = "import os, logt; print(len(os.listdir('/proc/self/task')))"
    if not Path("/proc/self/task").exists():
        pytest.skip("no /proc on this system")
    env = {"PATH": "", "OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=env)
    assert done.stdout.strip() == "1"


def blocks(path, language):
    return re.findall(rf"```{language}\n(.*?)```", path.read_text(), re.DOTALL)


def test_the_version_has_one_source():
    """The build reads src/logt/__init__.py; the citation file has a copy because its format needs one."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert project["project"]["dynamic"] == ["version"]
    assert project["tool"]["scikit-build"]["metadata"]["version"]["input"] == "src/logt/__init__.py"
    assert yaml.safe_load((ROOT / "CITATION.cff").read_text())["version"] == logt.__version__
    headings = re.findall(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert headings[0] == "Unreleased"
    assert ".dev" in logt.__version__ or headings[1] == logt.__version__  # the last release is another version


def tracked_text_files():
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode:
        pytest.skip("not a git checkout")
    names = listed.stdout.splitlines()
    kinds = {".py", ".md", ".toml", ".html", ".yml", ".yaml"}
    return [ROOT / name for name in names if Path(name).suffix in kinds and (ROOT / name).exists()]


def test_install_hints_name_this_distribution_and_an_extra_that_exists():
    """`logt` on the Python Package Index is another project; only the import is called logt."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    hints = 0
    for path in tracked_text_files():
        text = path.read_text()
        for name, wanted in re.findall(r"(?<![\w)\]-])(logt-search|logt|\.)\[((?:[a-z]+,)*[a-z]+)\]", text):
            assert name != "logt", f"{path.name}: write logt-search[{wanted}]"
            assert set(wanted.split(",")) <= set(extras), f"{path.name}: {wanted} names an extra that does not exist"
            hints += 1
        assert not re.search(r"pip install [\"']?logt(?!-search)\b", text), f"{path.name} installs another project"
    assert hints > 10


def test_the_extra_all_holds_every_extra_but_the_largest():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert extras["all"] == [f"logt-search[{','.join(sorted(set(extras) - {'all', 'fiftyone', 'txtai'}))}]"]


def test_kernels_share_no_code_between_instruction_sets():
    """A function that two copies of kernels.cpp both define could run with instructions a processor lacks."""
    objects = sorted(ROOT.glob("build/*/CMakeFiles/kernels_*.dir/**/*.o"))
    if not objects:
        pytest.skip("built elsewhere: the object files are not here")
    for path in objects:
        names = subprocess.run(
            ["nm", "-C", "--defined-only", path], capture_output=True, text=True, check=True
        ).stdout
        assert not [line for line in names.splitlines() if " W " in line], f"{path.parent} exports weak functions"


@pytest.mark.parametrize(
    ("isa", "source", "instruction"),
    [
        ("avx2", "lists", r"vpmaddubsw .*%ymm"),
        ("avx512", "lists", r"vpmaddubsw .*%zmm"),
        ("avx512vnni", "lists", r"vpdpbusd .*%zmm"),
        ("amx", "lists", r"tdpbsud .*%tmm"),
        ("avx2", "kernels", r"vfmadd\d+ps .*%ymm"),
        ("avx512", "kernels", r"vfmadd\d+ps .*%zmm"),
        ("avx2", "kernels", r"vgatherdps .*%ymm"),
        ("avx2", "kernels", r"vpmaddwd .*%ymm"),
        ("dotprod", "lists", r"sdot\s+v"),
        ("dotprod", "kernels", r"fmla\s+v"),
    ],
)
def test_inner_loops_use_the_vectors_of_their_instruction_set(isa, source, instruction):
    objects = sorted(ROOT.glob(f"build/*/CMakeFiles/kernels_{isa}.dir/**/{source}.cpp.o"))
    if not objects or not shutil.which("objdump"):
        pytest.skip("built elsewhere, or there is no objdump")
    newest = max(objects, key=lambda path: path.stat().st_mtime)
    code = subprocess.run(["objdump", "-d", newest], capture_output=True, text=True, check=True).stdout
    assert re.search(instruction, code)
