"""Fuzz the loaders: python tests/fuzz.py [--seconds N] [--target NAME ...] [--seed S] [--corpus FOLDER].

Inputs are mutated at random; one that reaches a new line of logt, or a new error message, is mutated again. A loader
may return, or raise one of the typed errors; anything else, a signal, more than 2 s of CPU time or 1 GiB of memory is
a finding, and its input is kept. Inputs are loaded in a child process, which is started again after a crash.

An input is a few files, kept as a zip. tests/corpus has those that tests/test_fuzz.py replays; new ones are written
to FOLDER/TARGET, findings to FOLDER/findings. tests/fuzz_targets.py has the targets.
"""

import argparse
import faulthandler
import hashlib
import os
import random
import re
import resource
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import warnings
from contextlib import suppress
from pathlib import Path

from fuzz_inputs import mutate, pack, read_corpus, unpack, write_input

import logt
from logt.errors import CorruptIndexError, FormatVersionError, InvalidInputError

EXPECTED = (InvalidInputError, CorruptIndexError, FormatVersionError, FileNotFoundError)
CPU_SECONDS, HANG_SECONDS, MOST_MEMORY, ADDRESS_SPACE = 2, 30, 1 << 30, 4 << 30
KEPT = Path(__file__).parent / "corpus"
PACKAGE = str(Path(logt.__file__).parent)


# ------------------------------------------------------------------------------------------- running a target


class Coverage:
    """The lines of logt that were run in this thread and in new ones. Functions without new lines are not traced."""

    def __init__(self):
        self.left, self.lines, self.messages = {}, 0, set()

    def __enter__(self):
        self.before = sys.gettrace()
        threading.settrace(self._call)
        sys.settrace(self._call)
        return self

    def __exit__(self, *_):
        threading.settrace(None)
        sys.settrace(self.before)

    def _call(self, frame, event, arg):
        code = frame.f_code
        if code not in self.left:
            lines = {line for *_, line in code.co_lines() if line} if code.co_filename.startswith(PACKAGE) else set()
            self.left[code] = lines
        return self._line if self.left[code] else None

    def _line(self, frame, event, arg):
        left = self.left[frame.f_code]
        if frame.f_lineno in left:
            left.remove(frame.f_lineno)
            self.lines += 1
        return self._line if left else None

    def is_new(self, message):
        """Return whether a message, without its numbers and names, is new."""
        shape = re.sub(r"'.*?'|[\d,.]+|\S*/\S*|\\x\w\w|[^\x20-\x7e]+", "", message[:500])[:60]
        is_new = len(self.messages) < 300 and shape not in self.messages
        self.messages.add(shape)
        return is_new


def run_input(target, files, folder):
    """Load an input; return (finding, message): a finding is a name and a traceback, or None."""
    write_input(files, folder)
    memory = peak_memory()
    start = time.process_time()
    finding, message = None, ""
    try:
        target.load(folder)
    except EXPECTED as error:
        message = f"{type(error).__name__}: {error}"
    except Exception as error:
        finding = finding_of(error)
    if time.process_time() - start > CPU_SECONDS:
        finding = "slow", f"{time.process_time() - start:.1f} s of CPU time"
    if peak_memory() - memory > MOST_MEMORY:
        finding = "memory", f"{(peak_memory() - memory) >> 20} MiB of memory"
    return finding, message


def finding_of(error):
    """Return the name of a finding, the same for errors at the same line, and the traceback."""
    frames = traceback.extract_tb(error.__traceback__)
    last = next((frame for frame in reversed(frames) if frame.filename.startswith(PACKAGE)), frames[-1])
    text = "".join(traceback.format_exception(error))
    return f"{type(error).__name__}-{Path(last.filename).stem}-{last.lineno}", text


def peak_memory():
    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return used if sys.platform == "darwin" else used << 10


def explore(target, inputs, rng, is_over, before=lambda files: None):
    """Load inputs and then mutated ones, until `is_over(count)`; yield (files, finding), finding None if it is new.

    before: called with each input before it is loaded.
    """
    with tempfile.TemporaryDirectory(dir="/dev/shm" if os.path.isdir("/dev/shm") else None) as folder:
        corpus, known = list(inputs), Coverage()
        todo, count = list(corpus), 0
        while not is_over(count):
            is_given = bool(todo)
            files = todo.pop() if is_given else mutate(rng.choice(corpus), rng.choice(corpus), target.pattern, rng)
            before(files)
            lines = known.lines
            with known:
                finding, message = run_input(target, files, Path(folder) / "input")
            count += 1
            if finding:
                yield files, finding
            elif (known.is_new(message) or known.lines > lines) and not is_given:
                corpus.append(files)
                yield files, None


# ------------------------------------------------------------------------------------------ child and parent


def run_child(name, seconds, runs, seed, folder):
    """Fuzz one target in this process; print the number of inputs."""
    from fuzz_targets import TARGETS

    warnings.simplefilter("ignore")
    faulthandler.enable()
    target, rng = TARGETS[name], random.Random(f"{seed} {name}")
    end, current, count = time.monotonic() + seconds, folder / f"{name}.current", 0
    inputs = [*target.seeds(), *read_corpus(KEPT / name), *read_corpus(folder / name)]
    crashed = [path.read_bytes() for path in (folder / "findings").glob(f"{name}-*.zip")]
    inputs = [files for files in inputs if pack(files) not in crashed]  # they would end each child
    used = int(Path("/proc/self/statm").read_text().split()[0]) * 4096 if Path("/proc/self/statm").exists() else 0
    with suppress(ValueError, OSError):  # macOS has no such limit
        resource.setrlimit(resource.RLIMIT_AS, (used + ADDRESS_SPACE,) * 2)

    def is_over(done):
        nonlocal count
        count = done
        return done >= runs or time.monotonic() > end

    def before(files):
        current.write_bytes(pack(files))
        faulthandler.dump_traceback_later(HANG_SECONDS, exit=True)

    for files, finding in explore(target, inputs, rng, is_over, before):
        if finding:
            keep_finding(folder, name, files, *finding)
        else:
            digest = hashlib.sha256(pack(files)).hexdigest()[:12]
            (folder / name).mkdir(exist_ok=True)
            (folder / name / f"{digest}.zip").write_bytes(pack(files))
        if finding and finding[0] == "memory":
            break  # the peak of this process hides those of later inputs
    faulthandler.cancel_dump_traceback_later()
    current.unlink(missing_ok=True)
    print(count)


def keep_finding(folder, name, files, kind, text):
    """Write the input and what happened, once for each kind."""
    path = folder / "findings" / f"{name}-{kind}.zip"
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists():
        path.write_bytes(pack(files))
        path.with_suffix(".txt").write_text(text)
        print(f"{name}: {kind}: {path}", flush=True)


def fuzz(name, seconds, runs, seed, folder):
    """Fuzz one target in child processes; return the number of inputs, without those of children that crashed."""
    end, count = time.monotonic() + seconds, 0
    while count < runs and time.monotonic() < end:
        words = [name, end - time.monotonic(), runs - count, seed, folder]
        command = [sys.executable, __file__, "--child", *map(str, words)]
        done = subprocess.run(command, capture_output=True, text=True, errors="replace")
        seed += 1
        if done.returncode == 0:
            *found, runs_done = done.stdout.splitlines()
            print(*found, sep="\n", end="\n" if found else "")
            count += int(runs_done)
            continue
        current = folder / f"{name}.current"
        if not current.exists():
            print(f"{name} does not start: {done.stderr}")
            break
        frames = re.findall(r'File "(?:.*/)?(.*?)\.py", line (\d+) in', done.stderr)[:1] or [("none", "0")]
        reason = "hang" if "Timeout (" in done.stderr else f"signal{-done.returncode}"
        kind = "-".join((reason, *frames[0]))
        keep_finding(folder, name, unpack(current.read_bytes()), kind, done.stderr[-9000:])
    return count


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=600, help="for all targets together")
    parser.add_argument("--runs", type=int, default=1 << 60, help="inputs for each target, at most")
    parser.add_argument("--target", action="append", help="default: all")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--corpus", type=Path, default=Path("build/fuzz"), help="folder of new inputs and findings")
    args = parser.parse_args()
    from fuzz_targets import TARGETS

    names = args.target or [name for name, target in TARGETS.items() if target.is_default]
    args.corpus.mkdir(parents=True, exist_ok=True)
    for name in names:
        count = fuzz(name, args.seconds / len(names), args.runs, args.seed, args.corpus.resolve())
        print(f"{name:15} {count:9,} inputs", flush=True)
    findings = sorted((args.corpus / "findings").glob("*.zip"))
    print(f"{len(findings)} findings", *findings, sep="\n")
    sys.exit(bool(findings))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        child_name, *numbers, child_folder = sys.argv[2:]
        run_child(child_name, float(numbers[0]), int(numbers[1]), int(numbers[2]), Path(child_folder))
    else:
        main()
