"""Report words that this project avoids, with what to write instead; `make check` runs it.

    python scripts/check_words.py FILE_OR_FOLDER... [--skip FILE_OR_FOLDER...]

A line that contains "words: allow" is not checked.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

SUFFIXES = {".cpp", ".css", ".hpp", ".html", ".js", ".md", ".py", ".pyi", ".toml", ".yaml", ".yml"}
ALLOW = "words: allow"
THINGS = r"(?:benchmark|collection|data|descriptor|image|photo|picture|scene|set|vector)s?"
PLACES = r"(?:at|elsewhere|in|inside|there|under)"

RULES = {
    rf"made(?: |_){THINGS}": "synthetic, generated",
    r"whole numbers?": "integer",
    r"text ids?|ids? (?:of|as|are) text": "string ids",
    r"asks|asked": "requested, given",
    r"tells|told": "reported, given",
    r"answered": "result, scored, returned",
    r"says": "states, reports",
    r"the rest(?! of)|what (?:the|its) codes? leaves? out": "the residual; the others",
    r"(?:opens?|opened|opening) (?:of )?units|units (?:that )?(?:are|were) opened": "probed lists, probing",
    r"rivals?": "baselines, other libraries",
    r"dear|dearer": "expensive",
    r"anew": "again",
    r"beside": "next to",
    r"stands? for": "represents, means",
    r"the part p of": "the fraction p of",
    r"go(?:es)? on where": "resumes",
    r"as before": "unchanged",
    r"and leave": "exit",
    r"for machines": "JSON output",
    r"of no known kind|known are": "unsupported ...; supported: ...",
    rf"describ(?:e|es|ed|ing) the {THINGS}": "compute descriptors, index",
    r"nobody|somebody|everybody": "no vector, every vector, ...",
    r"twins?": "reference implementation",
    r"hears? of|hangs? together": "plain words",
    rf"(?:lie|lies) {PLACES}": "is, is stored",
    r"[a-z]*neighbour[a-z]*": "neighbor",
}


class Finding(NamedTuple):
    path: Path
    line: int
    found: str
    instead: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.found!r}: write {self.instead}"


def compile_rule(words: str) -> re.Pattern[str]:
    """Return the pattern of a rule: a space matches any white space, and words end at anything but a letter."""
    spaced = words.replace(" ", r"[\s/#*_]+")  # a phrase may be a name, or continue on the next line of a comment
    return re.compile(rf"(?<![A-Za-z])(?:{spaced})(?![A-Za-z])", re.IGNORECASE)


PATTERNS = {compile_rule(words): instead for words, instead in RULES.items()}


def check_text(text: str, path: Path = Path("text")) -> Iterator[Finding]:
    """Yield what was found in a text, line by line."""
    lines = text.split("\n")
    findings = []
    for pattern, instead in PATTERNS.items():
        for match in pattern.finditer(text):
            line = text.count("\n", 0, match.start()) + 1
            if ALLOW not in lines[line - 1]:
                findings.append(Finding(path, line, " ".join(match[0].split()), instead))
    yield from sorted(findings)


def files(paths: list[Path], skipped: list[Path]) -> Iterator[Path]:
    """Yield the text files in some folders, without this one, which lists the words."""
    own = Path(__file__).resolve()
    skip = {path.resolve() for path in skipped}
    for path in paths:
        for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
            real = file.resolve()
            if file.suffix in SUFFIXES and real != own and not skip & {real, *real.parents}:
                yield file


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("paths", nargs="+", type=Path)
    parser.add_argument("--skip", nargs="*", type=Path, default=[])
    options = parser.parse_args()
    findings = [
        finding for path in files(options.paths, options.skip) for finding in check_text(path.read_text(), path)
    ]
    print(*findings, sep="\n", end="\n" if findings else "")
    return bool(findings)


if __name__ == "__main__":
    sys.exit(main())
