"""Report blocks, blocks -> Markdown and HTML: the same content in both formats."""

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
    """A list of (statement, verdict, evidence); the verdict is printed in bold."""

    items: Sequence[tuple[str, str, str]]


@dataclass(frozen=True)
class Figure:
    """An image that is stored as name.png and name.svg."""

    name: str
    caption: str


@dataclass(frozen=True)
class Table:
    head: Sequence[str]
    rows: Sequence[Sequence[str]]


Block = Heading | Paragraph | Bullets | Figure | Table


# ------------------------------------------------------------------------------------------------- Markdown


def to_markdown(blocks: Sequence[Block]) -> str:
    """Return the report as Markdown."""
    return "\n\n".join(_markdown_block(block) for block in blocks) + "\n"


def _markdown_block(block: Block) -> str:
    if isinstance(block, Heading):
        return "#" * block.level + " " + block.text
    if isinstance(block, Paragraph):
        return block.text
    if isinstance(block, Bullets):
        return "\n".join(
            f"- *{_escape_stars(statement)}* **{verdict}.** {_escape_stars(evidence)}"
            for statement, verdict, evidence in block.items
        )
    if isinstance(block, Figure):
        return f"![{block.caption}]({block.name}.png)\n\n{block.caption} ([SVG]({block.name}.svg))"
    lines = ["| " + " | ".join(block.head) + " |", "|" + "---|" * len(block.head)]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in block.rows)])


def _escape_stars(text: str) -> str:
    """Return text for Markdown: the stars of LO-GT* and RND* must not start emphasis."""
    return text.replace("*", "\\*")


# ----------------------------------------------------------------------------------------------------- HTML


def to_html(title: str, blocks: Sequence[Block]) -> str:
    """Return the report as an HTML page."""
    body = "\n".join(_html_block(block) for block in blocks)
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


def _html_block(block: Block) -> str:
    if isinstance(block, Heading):
        return f"<h{block.level}>{html.escape(block.text)}</h{block.level}>"
    if isinstance(block, Paragraph):
        return f"<p>{_inline(block.text)}</p>"
    if isinstance(block, Bullets):
        return f"<ul>{''.join(map(_html_item, block.items))}</ul>"
    if isinstance(block, Figure):
        caption = html.escape(block.caption)
        return (
            f'<figure><a href="{block.name}.svg"><img src="{block.name}.svg" alt="{caption}"></a>'
            f"<figcaption>{caption}</figcaption></figure>"
        )
    return _html_table(block)


def _html_item(item: tuple[str, str, str]) -> str:
    statement, verdict, evidence = map(html.escape, item)
    return f"<li><em>{statement}</em> <strong>{verdict}.</strong> {evidence}</li>"


def _html_table(table: Table) -> str:
    columns = ([row[number] for row in table.rows] for number in range(len(table.head)))
    classes = [' class="n"' if all(map(_is_number, column)) else "" for column in columns]
    rows = [_html_cells("th", table.head, classes), *(_html_cells("td", row, classes) for row in table.rows)]
    return f"<table>{''.join(f'<tr>{row}</tr>' for row in rows)}</table>"


def _html_cells(tag: str, cells: Sequence[str], classes: Sequence[str]) -> str:
    return "".join(f"<{tag}{cls}>{_inline(cell)}</{tag}>" for cell, cls in zip(cells, classes, strict=True))


def _is_number(cell: str) -> bool:
    return re.fullmatch(r"[-+\d.,]*", cell) is not None


def _inline(text: str) -> str:
    """Return HTML for the two marks that paragraphs and cells use: **strong** and `code`."""
    text = re.sub(r"\*\*(.+?)\*\*", r"<strong>\1</strong>", html.escape(text))
    return re.sub(r"`(.+?)`", r"<code>\1</code>", text)
