"""The public names of ``windvane.policies`` and where they are defined; type checkers and ``lazy_loader`` read this."""

from .base import Policy as Policy
from .bandit_over_bandits import BanditOverBandits as BanditOverBandits
from .exp3 import EXP3 as EXP3
from .per_lane import PerLane as PerLane
from .registry import POLICIES as POLICIES
from .registry import get_policy as get_policy

# policies:begin
# Generated from registry.py by `make generate`.
from .adaptive_glm_ucb import AdaptiveGLMUCB as AdaptiveGLMUCB
from .bob import BOB as BOB
from .bob_bvd_glm_ucb import BOBBVDGLMUCB as BOBBVDGLMUCB
from .bvd_glm_ucb import BVDGLMUCB as BVDGLMUCB
from .d_glucb import DGLUCB as DGLUCB, SWGLUCB as SWGLUCB
from .d_lin_ucb import DLinUCB as DLinUCB
from .d_rand_lin_ucb import DRandLinUCB as DRandLinUCB
from .detection import DetectGLMUCB as DetectGLMUCB
from .glm_ucb import GLMUCB as GLMUCB
from .master import MasterGLMUCB as MasterGLMUCB, MasterOFUL as MasterOFUL
from .oful import OFUL as OFUL
from .one_pass_glm import OnePassGLM as OnePassGLM
from .references import Greedy as Greedy, Oracle as Oracle, UniformRandom as UniformRandom
from .restart import RestartGLB as RestartGLB, RestartUCB as RestartUCB
from .sampling import DGLMTS as DGLMTS, DLinTS as DLinTS
from .sc_glucb import SCDGLUCB as SCDGLUCB, SCSWGLUCB as SCSWGLUCB
from .sw_bvd_glm_ucb import SWBVDGLMUCB as SWBVDGLMUCB
from .sw_lin_ucb import SWLinUCB as SWLinUCB
from .weight_ucb import GLBWeightUCB as GLBWeightUCB, LBWeightUCB as LBWeightUCB, SCBWeightUCB as SCBWeightUCB
# policies:end
