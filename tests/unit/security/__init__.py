"""Tests of the package `security`."""
