"""Run a benchmark; if asked, also with each policy at the bonus scale that was best in each environment.

Scales are chosen on other runs than those that judge them. The folder of the benchmark holds the plain results, in
``held-back`` the runs that choose the scales, and in ``tuned/01``, ``tuned/02``, ... the tuned policies by environment.
The recipe of each part says which benchmark it belongs to.
"""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

from windvane.errors import ArgumentError
from windvane.lab.results.folder import FolderError
from windvane.lab.results.results import Results, group_by_environment
from windvane.lab.spec.experiment_spec import AnyEnvironmentSpec, Spec
from windvane.lab.studies.benchmarks import Conduct, ExperimentPart, merge_results, run_parts, simulate_part
from windvane.lab.studies.drift_benchmark import DRIFT
from windvane.lab.studies.notes import read_notes
from windvane.lab.studies.world_benchmarks import BENCHMARKS

OWN = "own-benchmark"  # the recipe of a benchmark in environments of a spec
RECIPES = (*(benchmark.recipe for benchmark in BENCHMARKS.values()), OWN)
BASE, HELD_BACK = "base", "held-back"  # parts of a benchmark; the others are tuned/01, tuned/02, ...
SCALES = (0.03, 0.1, 0.3, 1.0, 3.0)  # of the bonus, or of the spread of what is sampled
SEED_SHIFT = 1_000_003  # added to the seed for the runs that choose

Scales = dict[str, dict[str, float]]
"""A bonus scale by environment and policy."""


def shift_seed(seed: int) -> int:
    """Return the seed of the runs that are held back."""
    return (seed + SEED_SHIFT) % 2**64


def tuned_label(name: str) -> str:
    """Return what results call a policy with a tuned scale."""
    return f"{name} tuned"


def held_back_spec(base: Spec) -> Spec:
    """Return the sweep of every policy that explores over :data:`SCALES`, in a third as many runs as ``base``."""
    swept = [
        replace(policy, settings={k: v for k, v in policy.settings.items() if k != name}, sweep={name: SCALES})
        for policy in base.policies
        if not policy.sweep and (name := policy.scale)
    ]
    if not swept:
        names = [policy.name for policy in base.policies]
        raise ArgumentError("policies", names, "at least one with a bonus that can be tuned")
    title = f"{base.title[:150]}: bonus scales on runs held back"
    runs, seed = math.ceil(base.runs / 3), shift_seed(base.seed)
    return replace(base, title=title, policies=swept, runs=runs, seed=seed, lanes_per_cell=50)


def find_best_scales(held_back: Results) -> Scales:
    """Return the scale with the smallest mean regret: {environment: {policy: scale}}."""
    worst_first = sorted(held_back.entries, key=lambda entry: float(entry.final.mean()), reverse=True)
    return {
        name: {entry.policy: next(iter(entry.variant.values())) for entry in entries}  # the last one stays
        for name, entries in group_by_environment(worst_first).items()
    }


def tuned_spec(base: Spec, environment: AnyEnvironmentSpec, scales: dict[str, float]) -> Spec:
    """Return one environment of ``base``, on its own runs, with the policies at these scales."""
    policies = []
    for policy in base.policies:
        if policy.name in scales:
            settings = {**policy.settings, str(policy.scale): scales[policy.name]}
            policies.append(replace(policy, label=tuned_label(policy.name), settings=settings))
    return replace(base, environments=[environment], policies=policies)


def run_benchmark(
    base: Spec, folder: Path, conduct: Conduct = simulate_part, *, tuned: bool = False, name: str = DRIFT.recipe
) -> tuple[Results, Scales]:
    """Run ``base`` in ``folder``. With ``tuned``, also the tuned policies; then their scales are returned, too."""
    recipe: dict[str, Any] = {
        "name": name,
        "environments": [environment.name for environment in base.environments],
        "policies": [policy.name for policy in base.policies],
        **{key: getattr(base, key) for key in ("runs", "horizon", "seed")},
        "spec": base.fingerprint(),  # names do not say what a user's own policy or world is
    }
    held_back = held_back_spec(base) if tuned else None  # first, because it may be refused
    text = base.title[:1].lower() + base.title[1:]
    results = conduct(base, folder, text, {**recipe, "part": BASE})
    if held_back is None:
        return results, {}
    part = ExperimentPart(HELD_BACK, "bonus scales on runs held back", held_back, {"scales": SCALES})
    scales = find_best_scales(*run_parts([part], folder, conduct, recipe))
    parts = []
    for number, environment in enumerate(base.environments, 1):
        if best := scales.get(environment.name):
            text = f"tuned policies, environment {number} of {len(base.environments)}"
            spec = tuned_spec(base, environment, best)
            parts.append(ExperimentPart(_tuned_folder(number), text, spec, {"scales": best}))
    return merge_results(results, run_parts(parts, folder, conduct, recipe)), scales


def read_benchmark(results: Results) -> Results | None:
    """Return the benchmark whose plain part is ``results``, with its tuned policies if all of them are there.

    None if ``results`` are not a complete benchmark. A folder may also hold tuned policies of an older benchmark; they
    are left out.
    """
    recipe, folder = results.recipe, results.folder
    if recipe.get("name") not in RECIPES or recipe.get("part") != BASE or not results.complete:
        return None
    try:
        held_back = _read_part(folder, {**recipe, "part": HELD_BACK, "scales": list(SCALES)})
        scales = find_best_scales(held_back)
        numbered = enumerate(recipe["environments"], 1)
        recipes = [{**recipe, "part": _tuned_folder(n), "scales": scales[name]} for n, name in numbered]
        return merge_results(results, [_read_part(folder, part) for part in recipes])
    except (FolderError, KeyError):
        return results


def _read_part(folder: Path, recipe: dict[str, Any]) -> Results:
    """Return the complete results of the part with exactly this recipe; else raise :class:`FolderError`."""
    part = Results.open(folder / recipe["part"])
    if part.recipe != recipe or not part.complete:
        raise FolderError(part.folder, "other_experiment", "holds another part")
    return part


def _tuned_folder(number: int) -> str:
    return f"tuned/{number:02d}"


def explain_leaderboard(results: Results) -> dict[str, list[str]]:
    """Return notes for readers of a benchmark's leaderboard, by heading."""
    notes = read_notes("benchmark")
    lines = [*notes["first"], notes[results.recipe.get("name", DRIFT.recipe)], *notes["last"]]
    sizes = {key: results.manifest[key] for key in ("runs", "horizon")}
    scales = ", ".join(f"{scale:g}" for scale in SCALES)
    texts = [line.format(tuned=tuned_label("..."), scales=scales, **sizes) for line in lines]
    return {"How to read the leaderboard": texts}
