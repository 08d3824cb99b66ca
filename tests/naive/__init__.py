"""Oracles: every algorithm of the library, transcribed literally from its paper and checked by eye.

They share no code with the library but its random numbers, and they are as slow as they are plain.
"""

from naive.adaptive import NaiveAdaptiveGLMUCB as NaiveAdaptiveGLMUCB
from naive.dynamic import NaiveDynamicLinUCB as NaiveDynamicLinUCB
from naive.glm import *  # noqa: F403
from naive.history import *  # noqa: F403
from naive.linear import *  # noqa: F403
from naive.masters import *  # noqa: F403
from naive.multi_armed import *  # noqa: F403
from naive.online import *  # noqa: F403
from naive.projection import *  # noqa: F403
from naive.stationary import *  # noqa: F403
from naive.thompson import *  # noqa: F403
