"""Fixed partners: recurrent networks trained by `sprii overcooked partners train`, and scripted families."""
