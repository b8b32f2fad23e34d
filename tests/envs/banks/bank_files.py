"""Reading a bank's folder byte by byte."""

from pathlib import Path


def read(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.iterdir()}
