"""Banks of CoPhy written in the published layout, which `published` tells of: an example a folder, and lists of ids."""

import functools
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import numpy as np

from sprii_envs import files
from sprii_envs.arguments import WORKERS, integer
from sprii_envs.banks import Store, StoreError, open_store
from sprii_envs.banks.generated import Progress
from sprii_envs.banks.recorded import MANIFEST
from sprii_envs.cophy.bank import boxes, frames, scene_of, slots, states
from sprii_envs.cophy.objects import COLOURS, INTERVAL, KINDS, PALETTE
from sprii_envs.cophy.protocols import VIDEOS, kinds_of
from sprii_envs.cophy.published import NAMED, PICTURES, TOGETHER, Layout, list_names
from sprii_envs.dependencies import require
from sprii_envs.processes import in_order
from sprii_envs.videos import write_video


def export_cophy(
    store: Store,
    root: files.StrPath,
    *,
    size: int = PICTURES,
    workers: int = 1,
    progress: Progress | None = None,
) -> None:
    """Write a bank in the published layout: an example a folder, each whole or not there, and lists of ids.

    `rgb.mp4` is the bank's pictures, or drawn from its states; `segm.mp4` has each object in its colour on black,
    without loss. Arrays are padded to the scene's colours, but Blocktower's confounders are (objects, 2), in the order
    of `colors.txt`. Where the scene has no `explanations.txt`, as Blocktower, it is written nonetheless. The same call
    goes on after a kill.

    Args:
        store: a bank of CoPhy, of which a worker opens its own.
        root: a folder, which becomes what is published as `CoPhy_224`.
        size: pixels along a side of the videos, even.
        workers: processes that draw and encode.
        progress: (done, total) examples.

    Raises:
        ValueError: for a size or number of workers that cannot be, and one larger than the bank's own pictures.
        StoreError: for a store of anything else, and a folder that holds the export of another.
        PackageImportError: without imageio-ffmpeg.
    """
    scene = scene_of(store)
    workers = integer("workers", workers, least=1, most=WORKERS)
    if integer("size", size, least=16, most=2 * PICTURES) % 2:
        raise ValueError(f"size is {size}; legal: even numbers")
    require("writing CoPhy's videos", "'sprii[cophy]'", "imageio_ffmpeg")
    if f"{VIDEOS[0]}_frames" in store.columns:
        frames(store, [0], VIDEOS[0], [0], size)  # refuses a size that is too large
    table = store.table
    layout = Layout(files.absolute(root), scene, int(table["objects"][0]), str(table["variant"][0]), size)
    _claim(layout, store.fingerprint)
    examples = table["example"].tolist()
    rows = [row for row, example in enumerate(examples) if not (layout.folder / example).is_dir()]
    chunks = [rows[i : i + TOGETHER] for i in range(0, len(rows), TOGETHER)]
    tell, done = progress or (lambda done, total: None), len(examples) - len(rows)
    tell(done, len(examples))
    write = functools.partial(_write_some, store if workers == 1 else store.name, layout)
    with closing(in_order(write, chunks, min(workers, max(1, len(chunks))))) as written:
        for count in written:
            done += count
            tell(done, len(examples))
    of = table["split"].astype(str)
    for split, names in NAMED.items():
        name = list_names(layout, names[:1])[0]
        lines = "".join(f"{example}\n" for example in table["example"][of == split])
        files.write_whole(layout.root / "splits" / name, lines.encode())


def _claim(layout: Layout, fingerprint: str) -> None:
    """Say in the folder whose export it is; StoreError where it is another's, or holds anything else."""
    marker, told = layout.folder / ".export.json", {"fingerprint": fingerprint, "size": layout.size}
    for folder in (layout.folder, *layout.folder.parents):
        if (folder / MANIFEST).is_file():
            raise StoreError(f"{folder} holds a bank, and {layout.folder} would be in it; choose another folder")
    if marker.is_file():
        if files.read_json(marker, StoreError) != told:
            raise StoreError(f"{layout.folder} holds the export of another bank or size; choose another folder")
    elif layout.folder.exists() and any(layout.folder.iterdir()):
        raise StoreError(f"{layout.folder} is not empty, and no export; choose another folder")
    else:
        files.write_json(marker, told)


def _write_some(store: Store | str, layout: Layout, rows: Sequence[int]) -> int:
    opened = open_store(store) if isinstance(store, str) else store
    for row in rows:
        with files.written_folder(layout.folder / str(opened.table["example"][row])) as folder:
            _write(opened, row, layout, folder)
    return len(rows)


def _write(store: Store, row: int, layout: Layout, folder: Path) -> None:
    """One example into an empty folder."""
    from sprii_envs.cophy.pictures import masks

    scene, size = layout.scene, layout.size or PICTURES
    of = slots(store, [row])
    colours, kinds = np.array([PALETTE[name] for name in COLOURS[scene]] + [(0, 0, 0)], np.uint8), of.kind[0]
    for video in VIDEOS:
        place, (found,) = folder / video, states(store, [row], video)
        place.mkdir()
        there = np.flatnonzero((found[0, :, :3] != 0.0).any(axis=-1))
        typed = (f"type={KINDS[kinds[slot]]} " if scene == "collision" else "" for slot in there)
        named = (f"color={COLOURS[scene][slot]}" if scene == "collision" else COLOURS[scene][slot] for slot in there)
        (place / "colors.txt").write_text("".join(f"{a}{b}\n" for a, b in zip(typed, named, strict=True)))
        np.save(place / "states.npy", found)
        np.save(place / "bboxes.npy", boxes(store, [row], video)[0])
        write_video(place / "rgb.mp4", frames(store, [row], video, None, size)[0], round(1 / INTERVAL))
        drawn = masks(scene, found, kinds_of(found[None], of.kind), size)
        write_video(place / "segm.mp4", colours[drawn], round(1 / INTERVAL), exact=True)
    confounders = np.stack([of.mass[0], of.friction[0], of.restitution[0]], axis=-1)
    confounders = confounders[kinds >= 0, :2] if scene == "blocktower" else confounders
    np.save(folder / "confounders.npy", confounders)
    if scene == "blocktower":
        (folder / "gravity.txt").write_text("gravity_x={:g} gravity_y={:g}\n".format(*of.gravity[0]))
    (folder / "explanations.txt").write_text(f"{store.table['explanation'][row]}\n", encoding="utf-8")
