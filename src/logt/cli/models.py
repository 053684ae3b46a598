"""`logt models`: download models that search photos by text."""

from typing import Annotated, Any

import typer
from rich.table import Table

from logt.cli.console import AsJson, out, print_json, progress, say
from logt.descriptors.downloads import damaged_files, download, find_in_catalog, is_download, remove
from logt.descriptors.model_catalog import CATALOG, CatalogModel
from logt.descriptors.model_files import models_folder

app = typer.Typer(name="models", help="Download models for searching photos by text.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(metavar="NAME", help=f"The name of the model: {', '.join(CATALOG)}.")]


@app.command("list")
def list_models(as_json: AsJson = False) -> None:
    """List the models that can be downloaded, and those that have been."""
    rows = [_describe(model) for model in CATALOG.values()]
    if as_json:
        print_json(rows)
        return
    table = Table("name", "MB", "texts in", "license", "repository", "state", title=f"Models in {models_folder()}")
    for row in rows:
        size = f"{row['bytes'] / 1e6:,.0f}"
        table.add_row(row["name"], size, row["languages"], row["license"], row["repository"], row["state"])
    out.print(table)


@app.command()
def get(name: Name) -> None:
    """Download a model. An interrupted download is resumed, and a complete one is checked."""
    model = find_in_catalog(name)
    say(f"{model.repository}, {model.bytes / 1e6:,.0f} MB; weights of {model.origin}, license {model.license}")
    with progress(False, f"logt models get {name} resumes") as report:
        folder = download(name, report)
    say(f"the model is in {folder}; use it with: logt images index FOLDER --text {name}")


@app.command("remove")
def remove_model(name: Name) -> None:
    """Remove a downloaded model. Indexes that were built with it need it for searches by new photos and by text."""
    say(f"{remove(name) / 1e6:,.0f} MB removed")


def _describe(model: CatalogModel) -> dict[str, Any]:
    folder = models_folder() / model.name
    if is_download(folder):
        state = "damaged" if damaged_files(folder) else "downloaded"
    else:
        state = "another model has this name" if folder.exists() else "not downloaded"
    fields = ("name", "bytes", "languages", "license", "repository", "revision", "origin")
    return {**{field: getattr(model, field) for field in fields}, "state": state}
