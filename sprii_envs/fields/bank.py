"""Banks of fields; how they are built is the business of `banks.generated`."""

from sprii_envs import files
from sprii_envs.arguments import instance
from sprii_envs.banks import RecordedBank
from sprii_envs.banks.generated import Progress, build_generated
from sprii_envs.fields.protocols import FIELD, PROTOCOLS, BurgersProtocol, FHNProtocol, FieldProtocol

__all__ = ["FIELD", "PROTOCOLS", "BurgersProtocol", "FHNProtocol", "FieldProtocol", "build_fields"]


def build_fields(
    protocol: FieldProtocol, path: files.StrPath, *, workers: int = 1, progress: Progress | None = None
) -> RecordedBank:
    """Build the bank of `protocol` at `path`, or open it if it is there already; see `build_generated`.

    Raises:
        ValueError: for no protocol of fields, or no number of workers.
        StoreError: as `build_generated`.
    """
    return build_generated(instance("protocol", protocol, of=FieldProtocol), path, workers=workers, progress=progress)
