"""Planning with a model, learned or true, and acting online with the plan."""
