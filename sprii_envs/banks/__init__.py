"""Banks of episodes on disk: protocols, building with resume, opening, verification and fast windows."""

from sprii_envs.banks.bank import Bank
from sprii_envs.banks.behaviours import Behaviour, ForceSegments, UniformSegments
from sprii_envs.banks.building import build
from sprii_envs.banks.protocols import (
    D_CLEAN,
    POKE_FACTORIAL,
    POKE_FRESH,
    POKE_ORIGINAL,
    PROTOCOLS,
    SPRING,
    SPRING_SEALED,
    SWIMMER,
    BankProtocol,
    register,
    register_protocol,
)
from sprii_envs.banks.recorded import RecordedBank, Recording, StreamSpec
from sprii_envs.banks.storage import FORMAT, BankError
from sprii_envs.banks.store import ArrayStore, Store, StoreError, Stream, open_store, register_store
from sprii_envs.banks.tables import from_pandas

register_store(FORMAT, Bank.open)
register_store("sprii-histories", "sprii_envs.overcooked.bank:HistoryBank")
register_store("sprii-minari", "sprii_envs.banks.minari:MinariWindows.open")
register_store("sprii-lerobot", "sprii_envs.banks.lerobot:LeRobotStore.load")
register_store("sprii-lance", "sprii_envs.banks.lance:LanceStore.open")

__all__ = [
    "D_CLEAN",
    "POKE_FACTORIAL",
    "POKE_FRESH",
    "POKE_ORIGINAL",
    "PROTOCOLS",
    "SPRING",
    "SPRING_SEALED",
    "SWIMMER",
    "ArrayStore",
    "Bank",
    "BankError",
    "BankProtocol",
    "Behaviour",
    "ForceSegments",
    "RecordedBank",
    "Recording",
    "Store",
    "StoreError",
    "Stream",
    "StreamSpec",
    "UniformSegments",
    "build",
    "from_pandas",
    "open_store",
    "register",
    "register_protocol",
    "register_store",
]
