"""Drift diagnosis: does the world of a log drift, how fast, where, and what to do about it?"""
