"""The public names of ``windvane`` and where they are defined; type checkers and ``lazy_loader`` read this."""

from . import bibliography as bibliography, environments as environments, estimation as estimation, links as links
from . import policies as policies, projection as projection, theory as theory
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
from .policies import AdaOFUECOLog as AdaOFUECOLog, AdaptiveGLMUCB as AdaptiveGLMUCB, BOB as BOB
from .policies import BOBBVDGLMUCB as BOBBVDGLMUCB, BOFUCB as BOFUCB, BVDGLMUCB as BVDGLMUCB
from .policies import DGLMTS as DGLMTS, DGLUCB as DGLUCB, DLinTS as DLinTS
from .policies import DLinUCB as DLinUCB, DRandLinUCB as DRandLinUCB, DUCB as DUCB
from .policies import DetectGLMUCB as DetectGLMUCB, DetectLogisticUCB1 as DetectLogisticUCB1, DetectOFUL as DetectOFUL
from .policies import DynamicLinUCB as DynamicLinUCB, ECOLogUCB as ECOLogUCB, EXP3S as EXP3S
from .policies import GLBWeightUCB as GLBWeightUCB, GLMTS as GLMTS, GLMUCB as GLMUCB
from .policies import GLOC as GLOC, GLOCTS as GLOCTS, Greedy as Greedy
from .policies import LBWeightUCB as LBWeightUCB, LinTS as LinTS, LogisticUCB1 as LogisticUCB1
from .policies import MasterGLMUCB as MasterGLMUCB, MasterLogisticUCB1 as MasterLogisticUCB1, MasterOFUL as MasterOFUL
from .policies import OFUGLB as OFUGLB, OFUGLBe as OFUGLBe, OFUL as OFUL
from .policies import OFULogR as OFULogR, OnePassGLM as OnePassGLM, Oracle as Oracle
from .policies import PGTS as PGTS, RestartGLB as RestartGLB, RestartUCB as RestartUCB
from .policies import Rexp3 as Rexp3, SCBWeightUCB as SCBWeightUCB, SCDGLUCB as SCDGLUCB
from .policies import SCSWGLUCB as SCSWGLUCB, SWBVDGLMUCB as SWBVDGLMUCB, SWGLUCB as SWGLUCB
from .policies import SWLinUCB as SWLinUCB, SWUCB as SWUCB, UCBGLM as UCBGLM
from .policies import UniformRandom as UniformRandom
# policies:end

__version__: str
