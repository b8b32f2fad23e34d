"""Fields of FitzHugh–Nagumo: batches of trajectories, the schedule of training, and what is measured of a learner."""
