"""Relation pairs inside other libraries: one library a module, imported only with that module."""
