"""A setting, a learner and data of one's own, registered from outside the package: see docs/own_setting.md."""
