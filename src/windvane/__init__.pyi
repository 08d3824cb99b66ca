"""The public names of ``windvane`` and where they are defined; type checkers and ``lazy_loader`` read this."""

from . import environments as environments, estimation as estimation, links as links, policies as policies
from . import projection as projection, theory as theory
from .agent import Agent as Agent, ConflictingRewardError as ConflictingRewardError, DecisionError as DecisionError
from .agent import Features as Features, UnknownDecisionError as UnknownDecisionError
from .arms import Ball as Ball, Sphere as Sphere
from .checks import check_policy as check_policy
from .client import AsyncClient as AsyncClient, BatchError as BatchError, Client as Client, ClientError as ClientError
from .cluster_map import ClusterInfo as ClusterInfo, ClusterNode as ClusterNode
from .environments import Environment as Environment
from .errors import ArgumentError as ArgumentError, WindvaneError as WindvaneError
from .estimation import Discount as Discount, MaximumLikelihoodEstimator as MaximumLikelihoodEstimator, Never as Never
from .estimation import OnePassEstimator as OnePassEstimator, Restart as Restart, RidgeEstimator as RidgeEstimator
from .estimation import Window as Window
from .kernels.threads import get_threads as get_threads, set_threads as set_threads
from .links import CustomLink as CustomLink, Identity as Identity, Link as Link, Logistic as Logistic
from .links import Poisson as Poisson, Probit as Probit, get_link as get_link
from .policies import EXP3 as EXP3, POLICIES as POLICIES, BanditOverBandits as BanditOverBandits, PerLane as PerLane
from .policies import Policy as Policy, get_policy as get_policy
from .projection import Projection as Projection, p0 as p0, p2 as p2
from .records import AgentInfo as AgentInfo, Decision as Decision, Explanation as Explanation
from .warmup import warm_up as warm_up

# policies:begin
# Generated from registry.py by `make generate`.
from .policies import AdaptiveGLMUCB as AdaptiveGLMUCB, BOB as BOB, BOBBVDGLMUCB as BOBBVDGLMUCB
from .policies import BVDGLMUCB as BVDGLMUCB, DGLMTS as DGLMTS, DGLUCB as DGLUCB
from .policies import DLinTS as DLinTS, DLinUCB as DLinUCB, DRandLinUCB as DRandLinUCB
from .policies import DetectGLMUCB as DetectGLMUCB, GLBWeightUCB as GLBWeightUCB, GLMUCB as GLMUCB
from .policies import Greedy as Greedy, LBWeightUCB as LBWeightUCB, MasterGLMUCB as MasterGLMUCB
from .policies import MasterOFUL as MasterOFUL, OFUL as OFUL, OnePassGLM as OnePassGLM
from .policies import Oracle as Oracle, RestartGLB as RestartGLB, RestartUCB as RestartUCB
from .policies import SCBWeightUCB as SCBWeightUCB, SCDGLUCB as SCDGLUCB, SCSWGLUCB as SCSWGLUCB
from .policies import SWBVDGLMUCB as SWBVDGLMUCB, SWGLUCB as SWGLUCB, SWLinUCB as SWLinUCB
from .policies import UniformRandom as UniformRandom
# policies:end

__version__: str
