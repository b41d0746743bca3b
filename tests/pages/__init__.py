"""Tests of the documentation: the pages, the site, the pictures, and that commands and code in them run."""
