"""CoPhy's three scenes: rigid bodies whose mass, friction and restitution persist, and counterfactual pairs of them.

Balls, Collision and Blocktower after Baradel et al., "CoPhy: Counterfactual Learning of Physical Dynamics" (ICLR
2020), made anew in MuJoCo; what the published sources leave open, and what is ours, is in `docs/envs/cophy.md`.
"""
