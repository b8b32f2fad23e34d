"""Banks of episodes on disk: protocols, building with resume, opening, verification and fast windows."""

from sprii_envs.banks.bank import Bank
from sprii_envs.banks.behaviours import Behaviour, ForceSegments
from sprii_envs.banks.building import build
from sprii_envs.banks.protocols import (
    D_CLEAN,
    POKE_FACTORIAL,
    POKE_ORIGINAL,
    PROTOCOLS,
    SPRING,
    SPRING_SEALED,
    SWIMMER,
    BankProtocol,
    register,
)
from sprii_envs.banks.storage import BankError

__all__ = [
    "D_CLEAN",
    "POKE_FACTORIAL",
    "POKE_ORIGINAL",
    "PROTOCOLS",
    "SPRING",
    "SPRING_SEALED",
    "SWIMMER",
    "Bank",
    "BankError",
    "BankProtocol",
    "Behaviour",
    "ForceSegments",
    "build",
    "register",
]
