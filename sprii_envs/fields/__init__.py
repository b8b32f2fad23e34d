"""Fields that evolve by an equation whose parameters persist: Burgers (`burgers`) and FitzHugh–Nagumo (`fhn`)."""
