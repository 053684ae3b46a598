"""Imports point in one direction, names are exported, versions and extras agree, kernels use their vectors."""

import ast
import importlib
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
    {"_internal"},
    {"metrics", "results"},
    {"graph"},
    {"group_testing", "lists"},
    {"engine"},
    {"gpu"},
    {"storage", "methods"},
    {"_index_base"},
    {"_linked_index"},
    {"index"},
    {"evaluation", "augmentation", "descriptors", "integrations"},
    {"baselines", "datasets", "photos", "sklearn"},
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


NEEDED_LATER = {"numkong", "numpy.random", "rich", "safetensors", "threadpoolctl", "typer"}
OPTIONAL = {
    "PIL",
    "cupy",
    "faiss",
    "fastapi",
    "fsspec",
    "h5py",
    "matplotlib",
    "onnxruntime",
    "ray",
    "scipy",
    "sklearn",
    "starlette",
}


def test_importing_loads_nothing_heavy_and_makes_no_thread():
    code = "import os, sys, logt; print(len(os.listdir('/proc/self/task')), *sys.modules)"
    if not Path("/proc/self/task").exists():
        pytest.skip("needs Linux: reads /proc")
    env = {"PATH": "", "OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=env)
    threads, *loaded = done.stdout.split()
    assert threads == "1"
    assert not (NEEDED_LATER | OPTIONAL) & set(loaded)


def test_the_command_needs_no_extra():
    code = "import sys, logt.cli.main; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not OPTIONAL & set(done.stdout.split())


EXTRAS = {  # and a module that the integration imports first
    "fiftyone": "fiftyone.constants",
    "langchain": "langchain_core.documents",
    "sklearn": "sklearn.base",
    "txtai": "txtai.ann",
}


@pytest.mark.parametrize("extra", EXTRAS)
def test_an_integration_without_its_package_names_the_extra(extra, monkeypatch):
    monkeypatch.setitem(sys.modules, EXTRAS[extra], None)
    monkeypatch.delitem(sys.modules, f"logt.integrations.{extra}", raising=False)
    with pytest.raises(logt.MissingExtraError, match=rf"pip install 'logt-search\[{extra}\]'"):
        importlib.import_module(f"logt.integrations.{extra}")


def blocks(path, language):
    return re.findall(rf"```{language}\n(.*?)```", path.read_text(), re.DOTALL)


PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
EXTRA_PACKAGES = PROJECT["project"]["optional-dependencies"]


def test_the_version_has_one_source():
    """The build reads src/logt/__init__.py; the citation file has a copy because its format needs one."""
    assert PROJECT["project"]["dynamic"] == ["readme", "version"]
    assert PROJECT["tool"]["scikit-build"]["metadata"]["version"]["input"] == "src/logt/__init__.py"
    assert yaml.safe_load((ROOT / "CITATION.cff").read_text())["version"] == logt.__version__
    headings = re.findall(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert headings[0] == "Unreleased"
    assert ".dev" in logt.__version__ or headings[1] == logt.__version__  # the last release is another version


def test_install_hints_name_this_distribution_and_an_extra_that_exists():
    """`logt` on the Python Package Index is another project; only the import is called logt."""
    folders = ("benchmarks", "docs", "examples", "scripts", "src", "tests")
    files = (path for folder in folders for path in (ROOT / folder).rglob("*.*") if path.suffix in (".md", ".py"))
    hints = 0
    for path in [*ROOT.glob("*.md"), *files]:
        text = path.read_text()
        for name, wanted in re.findall(r"(?<![\w)\]-])(logt-search|logt|\.)\[((?:[a-z]+,)*[a-z]+)\]", text):
            assert name != "logt", f"{path.name}: write logt-search[{wanted}]"
            assert set(wanted.split(",")) <= set(EXTRA_PACKAGES), f"{path.name}: there is no extra {wanted}"
            hints += 1
        assert set(re.findall(r'needs_extra\("(\w+)"', text)) <= set(EXTRA_PACKAGES), path.name
        assert not re.search(r"pip install [\"']?logt(?!-search)\b", text), f"{path.name} installs another project"
    assert hints > 10


def test_the_extra_all_holds_every_extra_but_the_largest():
    names = sorted(set(EXTRA_PACKAGES) - {"all", "fiftyone", "gpu", "txtai"})
    assert EXTRA_PACKAGES["all"] == [f"logt-search[{','.join(names)}]"]


def test_kernels_share_no_code_between_instruction_sets():
    """A function that two copies of kernels.cpp both define could run with instructions a processor lacks."""
    objects = sorted(ROOT.glob("build/*/CMakeFiles/kernels_*.dir/**/*.o"))
    if not objects:
        pytest.skip("needs the objects in build/: make demo")
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
        ("amx", "lists", r"tdpb(us|su)d .*%tmm"),
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
        pytest.skip("needs objdump, and the objects of this processor in build/: make demo")
    newest = max(objects, key=lambda path: path.stat().st_mtime)
    code = subprocess.run(["objdump", "-d", newest], capture_output=True, text=True, check=True).stdout
    assert re.search(instruction, code)


def test_the_page_about_stability_lists_the_public_names():
    page = (ROOT / "docs" / "reference" / "stability.md").read_text()
    rows = re.findall(r"^\| `(logt[\w.]*)` \| (.*) \|$", page, re.MULTILINE)
    assert len(rows) > 8
    for module, names in rows:
        pytest.importorskip(
            {"logt.sklearn": "sklearn", "logt.integrations.langchain": "langchain_core"}.get(module, "numpy")
        )
        assert re.findall(r"`(\w+)`", names) == list(importlib.import_module(module).__all__), module
