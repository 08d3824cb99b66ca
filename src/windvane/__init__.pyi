"""The public names of ``windvane`` and where they are defined; type checkers and ``lazy_loader`` read this."""

from . import environments as environments
from . import estimation as estimation
from . import links as links
from . import policies as policies
from . import projection as projection
from . import theory as theory
from .agent import Agent as Agent
from .agent import ConflictingRewardError as ConflictingRewardError
from .agent import Decision as Decision
from .agent import DecisionError as DecisionError
from .agent import ExpiredDecisionError as ExpiredDecisionError
from .agent import Explanation as Explanation
from .agent import Features as Features
from .agent import UnknownDecisionError as UnknownDecisionError
from .arms import Ball as Ball
from .arms import Sphere as Sphere
from .checks import check_policy as check_policy
from .client import BatchError as BatchError
from .client import Client as Client
from .client import ClientError as ClientError
from .environments import Environment as Environment
from .errors import ArgumentError as ArgumentError
from .errors import WindvaneError as WindvaneError
from .estimation import Discount as Discount
from .estimation import MaximumLikelihoodEstimator as MaximumLikelihoodEstimator
from .estimation import Never as Never
from .estimation import OnePassEstimator as OnePassEstimator
from .estimation import Restart as Restart
from .estimation import RidgeEstimator as RidgeEstimator
from .estimation import Window as Window
from .kernels.threads import get_threads as get_threads
from .kernels.threads import set_threads as set_threads
from .links import CustomLink as CustomLink
from .links import Identity as Identity
from .links import Link as Link
from .links import Logistic as Logistic
from .links import Poisson as Poisson
from .links import Probit as Probit
from .links import get_link as get_link
from .policies import EXP3 as EXP3
from .policies import POLICIES as POLICIES
from .policies import BanditOverBandits as BanditOverBandits
from .policies import PerLane as PerLane
from .policies import Policy as Policy
from .policies import get_policy as get_policy
from .projection import Projection as Projection
from .projection import p0 as p0
from .projection import p2 as p2
from .warmup import warm_up as warm_up

# policies:begin
# Generated from registry.py by `make generate`.
from .policies import AdaptiveGLMUCB as AdaptiveGLMUCB
from .policies import BOB as BOB
from .policies import BOBBVDGLMUCB as BOBBVDGLMUCB
from .policies import BVDGLMUCB as BVDGLMUCB
from .policies import DGLMTS as DGLMTS
from .policies import DGLUCB as DGLUCB
from .policies import DLinTS as DLinTS
from .policies import DLinUCB as DLinUCB
from .policies import DRandLinUCB as DRandLinUCB
from .policies import DetectGLMUCB as DetectGLMUCB
from .policies import GLBWeightUCB as GLBWeightUCB
from .policies import GLMUCB as GLMUCB
from .policies import Greedy as Greedy
from .policies import LBWeightUCB as LBWeightUCB
from .policies import MasterGLMUCB as MasterGLMUCB
from .policies import MasterOFUL as MasterOFUL
from .policies import OFUL as OFUL
from .policies import OnePassGLM as OnePassGLM
from .policies import Oracle as Oracle
from .policies import RestartGLB as RestartGLB
from .policies import RestartUCB as RestartUCB
from .policies import SCBWeightUCB as SCBWeightUCB
from .policies import SCDGLUCB as SCDGLUCB
from .policies import SCSWGLUCB as SCSWGLUCB
from .policies import SWBVDGLMUCB as SWBVDGLMUCB
from .policies import SWGLUCB as SWGLUCB
from .policies import SWLinUCB as SWLinUCB
from .policies import UniformRandom as UniformRandom
# policies:end

__version__: str
