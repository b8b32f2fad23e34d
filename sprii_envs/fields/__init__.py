"""Fields that evolve by an equation whose parameters persist: Burgers (`burgers`) and FitzHugh–Nagumo (`fhn`)."""

from sprii_envs.fields.bank import build_fields
from sprii_envs.fields.protocols import BurgersProtocol, FHNProtocol

__all__ = ["BurgersProtocol", "FHNProtocol", "build_fields"]
