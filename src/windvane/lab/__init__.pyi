from .experiment import open as open, simulate as simulate
from .report.presentation import present as present
from .results.export import export as export
from .results.leaderboard import rank_policies as rank_policies
from .results.results import Entry as Entry, Results as Results
from .results.summary import compare_entries as compare_entries
from .spec.environment_spec import EnvironmentSpec as EnvironmentSpec
from .spec.environment_spec import GymnasiumSpec as GymnasiumSpec
from .spec.environment_spec import LabelledStreamSpec as LabelledStreamSpec
from .spec.experiment_spec import Spec as Spec
from .spec.policy_spec import PolicySpec as PolicySpec
from .spec.schema import build_schema as build_schema
from .spec.spec_errors import SpecError as SpecError
from .studies.benchmarks import own_benchmark as own_benchmark
from .studies.paper import paper_spec as paper_spec
from .studies.reproductions import Reproduction as Reproduction, read_reproduction as read_reproduction
from .studies.world_benchmarks import benchmark_spec as benchmark_spec
