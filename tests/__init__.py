"""Tests of pi_ls."""
