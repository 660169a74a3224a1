"""The tables of the pages, one file for each subject."""
