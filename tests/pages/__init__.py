"""Tests of what people read: the pages, the site, the pictures, and that commands and code in them run."""
