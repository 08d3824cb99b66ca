"""The public names of ``windvane.policies`` and where they are defined; type checkers and ``lazy_loader`` read this."""

from .base import Policy as Policy
from .bandit_over_bandits import EXP3 as EXP3
from .bandit_over_bandits import BanditOverBandits as BanditOverBandits
from .per_lane import PerLane as PerLane
from .registry import POLICIES as POLICIES
from .registry import get_policy as get_policy

# policies:begin
# Generated from registry.py by `make generate`.
from .abrupt import DGLUCB as DGLUCB, SCDGLUCB as SCDGLUCB, SCSWGLUCB as SCSWGLUCB, SWGLUCB as SWGLUCB
from .adaptive_glm_ucb import AdaptiveGLMUCB as AdaptiveGLMUCB
from .bob import BOB as BOB, BOBBVDGLMUCB as BOBBVDGLMUCB
from .bvd_glm_ucb import BVDGLMUCB as BVDGLMUCB
from .detection import DetectGLMUCB as DetectGLMUCB
from .glm import GLMUCB as GLMUCB, OnePassGLM as OnePassGLM, SWBVDGLMUCB as SWBVDGLMUCB
from .linear import DLinUCB as DLinUCB, DRandLinUCB as DRandLinUCB, OFUL as OFUL, SWLinUCB as SWLinUCB
from .master import MasterGLMUCB as MasterGLMUCB, MasterOFUL as MasterOFUL
from .references import Greedy as Greedy, Oracle as Oracle, UniformRandom as UniformRandom
from .restart import RestartGLB as RestartGLB, RestartUCB as RestartUCB
from .sampling import DGLMTS as DGLMTS, DLinTS as DLinTS
from .weight_ucb import GLBWeightUCB as GLBWeightUCB, LBWeightUCB as LBWeightUCB, SCBWeightUCB as SCBWeightUCB
# policies:end
