"""The public names of ``windvane.policies`` and where they are defined; type checkers and ``lazy_loader`` read this."""

from .base import Policy as Policy
from .bandit_over_bandits import BanditOverBandits as BanditOverBandits
from .exponential_weights import EXP3 as EXP3
from .per_lane import PerLane as PerLane
from .registry import POLICIES as POLICIES
from .registry import get_policy as get_policy

# policies:begin
# Generated from registry.py by `make generate`.
from .abrupt import DGLUCB as DGLUCB, SCDGLUCB as SCDGLUCB, SCSWGLUCB as SCSWGLUCB, SWGLUCB as SWGLUCB
from .ada_ofu_ecolog import AdaOFUECOLog as AdaOFUECOLog
from .adaptive_glm_ucb import AdaptiveGLMUCB as AdaptiveGLMUCB
from .bob import BOB as BOB, BOBBVDGLMUCB as BOBBVDGLMUCB
from .bof_ucb import BOFUCB as BOFUCB
from .bvd_glm_ucb import BVDGLMUCB as BVDGLMUCB
from .detection import DetectGLMUCB as DetectGLMUCB, DetectLogisticUCB1 as DetectLogisticUCB1, DetectOFUL as DetectOFUL
from .dynamic_lin_ucb import DynamicLinUCB as DynamicLinUCB
from .ecolog import ECOLogUCB as ECOLogUCB
from .exp3 import EXP3S as EXP3S, Rexp3 as Rexp3
from .glm import GLMUCB as GLMUCB, OnePassGLM as OnePassGLM, SWBVDGLMUCB as SWBVDGLMUCB
from .gloc import GLOC as GLOC, GLOCTS as GLOCTS
from .lin_ts import GLMTS as GLMTS, LinTS as LinTS
from .linear import DLinUCB as DLinUCB, DRandLinUCB as DRandLinUCB, OFUL as OFUL, SWLinUCB as SWLinUCB
from .logistic_ucb_1 import LogisticUCB1 as LogisticUCB1
from .master_bases import MasterGLMUCB as MasterGLMUCB
from .master_bases import MasterLogisticUCB1 as MasterLogisticUCB1, MasterOFUL as MasterOFUL
from .multi_armed import DUCB as DUCB, SWUCB as SWUCB
from .ofuglb import OFUGLB as OFUGLB, OFUGLBe as OFUGLBe
from .ofulog_r import OFULogR as OFULogR
from .pg_ts import PGTS as PGTS
from .references import Greedy as Greedy, Oracle as Oracle, UniformRandom as UniformRandom
from .restart import RestartGLB as RestartGLB, RestartUCB as RestartUCB
from .sampling import DGLMTS as DGLMTS, DLinTS as DLinTS
from .ucb_glm import UCBGLM as UCBGLM
from .weight_ucb import GLBWeightUCB as GLBWeightUCB, LBWeightUCB as LBWeightUCB, SCBWeightUCB as SCBWeightUCB
# policies:end
