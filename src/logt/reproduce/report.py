"""The report: one content, (blocks) -> Markdown and HTML."""

from __future__ import annotations

import html
import re
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Heading:
    level: int
    text: str


@dataclass(frozen=True)
class Paragraph:
    text: str


@dataclass(frozen=True)
class Bullets:
    """Each item: what is said, in bold what is found of it, and the figures."""

    items: Sequence[tuple[str, str, str]]


@dataclass(frozen=True)
class Figure:
    name: str
    caption: str


@dataclass(frozen=True)
class Table:
    head: Sequence[str]
    rows: Sequence[Sequence[str]]


Block = Heading | Paragraph | Bullets | Figure | Table


def markdown(blocks: Sequence[Block]) -> str:
    return "\n\n".join(_markdown(block) for block in blocks) + "\n"


def page(title: str, blocks: Sequence[Block]) -> str:
    body = "\n".join(_html(block) for block in blocks)
    return (
        f'<!doctype html>\n<html lang="en">\n<meta charset="utf-8">\n'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{html.escape(title)}</title>\n<style>{_STYLE}</style>\n{body}\n</html>\n"
    )


_STYLE = (
    "body{max-width:60rem;margin:2rem auto;padding:0 1rem;font:16px/1.5 system-ui,sans-serif;color:#222}"
    "table{border-collapse:collapse;font-size:.85rem;font-variant-numeric:tabular-nums;display:block;overflow-x:auto}"
    "th,td{padding:.2rem .7rem;border-bottom:1px solid #ddd;text-align:left;vertical-align:top}"
    ".n{text-align:right;white-space:nowrap}"
    "img{max-width:100%}figure{margin:1rem 0}figcaption{color:#555;font-size:.85rem}li{margin:.4rem 0}"
)


def _markdown(block: Block) -> str:
    if isinstance(block, Heading):
        return "#" * block.level + " " + block.text
    if isinstance(block, Paragraph):
        return block.text
    if isinstance(block, Bullets):
        items = ((_starred(said), verdict, _starred(figures)) for said, verdict, figures in block.items)
        return "\n".join(f"- *{said}* **{verdict}.** {figures}" for said, verdict, figures in items)
    if isinstance(block, Figure):
        return f"![{block.caption}]({block.name}.png)\n\n{block.caption} ([SVG]({block.name}.svg))"
    lines = ["| " + " | ".join(block.head) + " |", "|" + "---|" * len(block.head)]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in block.rows)])


def _starred(text: str) -> str:
    """Text whose stars are those of LO-GT* and RND*."""
    return text.replace("*", "\\*")


def _html(block: Block) -> str:
    if isinstance(block, Heading):
        return f"<h{block.level}>{html.escape(block.text)}</h{block.level}>"
    if isinstance(block, Paragraph):
        return f"<p>{_inline(block.text)}</p>"
    if isinstance(block, Bullets):
        items = (tuple(map(html.escape, item)) for item in block.items)
        listed = (
            f"<li><em>{said}</em> <strong>{verdict}.</strong> {figures}</li>" for said, verdict, figures in items
        )
        return f"<ul>{''.join(listed)}</ul>"
    if isinstance(block, Figure):
        caption = html.escape(block.caption)
        return (
            f'<figure><a href="{block.name}.svg"><img src="{block.name}.svg" alt="{caption}"></a>'
            f"<figcaption>{caption}</figcaption></figure>"
        )
    columns = ([row[number] for row in block.rows] for number in range(len(block.head)))
    kinds = [' class="n"' if all(map(_is_number, column)) else "" for column in columns]
    rows = [_cells("th", block.head, kinds), *(_cells("td", row, kinds) for row in block.rows)]
    return f"<table>{''.join(f'<tr>{row}</tr>' for row in rows)}</table>"


def _cells(tag: str, cells: Sequence[str], kinds: Sequence[str]) -> str:
    return "".join(f"<{tag}{kind}>{_inline(cell)}</{tag}>" for cell, kind in zip(cells, kinds, strict=True))


def _is_number(cell: str) -> bool:
    return re.fullmatch(r"[-+\d.,]*", cell) is not None


def _inline(text: str) -> str:
    """The two marks that paragraphs and cells use: **strong** and `code`."""
    text = re.sub(r"\*\*(.+?)\*\*", r"<strong>\1</strong>", html.escape(text))
    return re.sub(r"`(.+?)`", r"<code>\1</code>", text)
