"""One thin file per environment: its `World`, its spaces and reward, and the docstring that is its manual."""
