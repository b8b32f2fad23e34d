"""Formation (later Use and Value): what a learner's contexts contain, measured on frozen weights."""
