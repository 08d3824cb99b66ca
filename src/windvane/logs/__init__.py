"""Logs of decisions: is a log sound, does its world drift, and what would another policy have earned?"""
