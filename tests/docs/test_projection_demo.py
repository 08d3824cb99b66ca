"""The interactive picture of the projection: its solver is windvane's, and everybody can use it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pictures.projection import World, make_world

from windvane.projection import p2

DOCS = Path(__file__).parent.parent.parent / "docs"
STATIC = DOCS / "_static"
SOLVE = """([constants, cases]) => {
    const world = new window.windvaneProjection.World(constants);
    return cases.map(([x, y, beta]) => world.project([x, y], beta));
}"""


@pytest.fixture(scope="module")
def solver(browser) -> Iterator:
    page = browser.new_page()
    page.add_script_tag(path=STATIC / "projection-world.js")
    page.add_script_tag(path=STATIC / "projection-solver.js")
    yield page
    page.close()


def random_world(seed: int) -> World:
    rng = np.random.default_rng(seed)
    count = int(rng.integers(1, 9))
    directions = rng.normal(size=(count, 2))
    features = directions / np.linalg.norm(directions, axis=1, keepdims=True) * rng.uniform(0.2, 1, (count, 1))
    weights = rng.gamma(1.0, 8.0, count)
    return World(features, weights, weights * rng.uniform(0.1, 1, count))


@pytest.mark.parametrize("seed", range(12))
def test_the_solver_is_that_of_windvane(solver, seed: int) -> None:
    """In the world of the picture and in random ones, in all stages."""
    rng = np.random.default_rng(seed)
    world = make_world() if seed == 0 else random_world(seed)
    constants = {
        "features": world.features.tolist(), "weights": world.weights.tolist(),
        "squaredWeights": world.squared_weights.tolist(), "S": 1.0, "lambda": 1.0, "ridge": world.ridge,
    }  # fmt: skip
    cases = np.column_stack([rng.uniform(-3, 4, (60, 2)), np.exp(rng.uniform(-3, 1, 60))])
    solutions = solver.evaluate(SOLVE, [constants, cases.tolist()])
    stages = set()
    for (x, y, beta), found in zip(cases, solutions, strict=True):
        expected = world.project(np.array([x, y]), beta)
        case = (x, y, beta)
        assert found["stage"] == expected.stage, case
        np.testing.assert_allclose(found["theta"], expected.theta, atol=1e-7, err_msg=str(case))
        np.testing.assert_allclose(found["eta"], expected.eta, atol=1e-6, err_msg=str(case))
        assert found["value"] == pytest.approx(expected.value, abs=1e-9), case
        stages.add(found["stage"])
    assert stages == {1, 2, 3}


def test_the_constants_are_those_of_the_world(solver) -> None:
    constants, world = solver.evaluate("window.projectionWorld"), make_world()
    np.testing.assert_allclose(constants["features"], world.features, atol=1e-12)
    np.testing.assert_allclose(constants["weights"], world.weights, atol=1e-12)
    np.testing.assert_allclose(constants["squaredWeights"], world.squared_weights, atol=1e-12)
    assert constants["beta"] == pytest.approx(world.beta)


def test_level_sets_are_where_the_norms_are_equal(solver) -> None:
    world, centre, level = make_world(), np.array([2.0, 0.9]), 0.8
    points = solver.evaluate(
        """([centre, level]) => {
            const world = new window.windvaneProjection.World(window.projectionWorld);
            return [world.root, world.V].map((shape) => world.levelSet(centre, shape, level, 40));
        }""",
        [centre.tolist(), level],
    )
    for of_shape, metric in zip(points, (world.V_tilde, world.V @ world.V), strict=True):
        for point in of_shape:
            misfit = world.g(np.array(point)) - world.g(centre)
            assert misfit @ np.linalg.solve(metric, misfit) == pytest.approx(level**2, rel=1e-6)


@pytest.fixture
def visit(browser, tmp_path: Path) -> Iterator:
    """Open the picture as the page of the algorithm embeds it; only files of the documentation may be loaded."""
    contexts, requests, errors = [], [], []
    text = (DOCS / "explanation" / "algorithm.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"^```\{raw\} html\n(.*?)^```", text, re.M | re.S)
    (tmp_path / "explanation").mkdir()
    (tmp_path / "_static").symlink_to(STATIC)
    head = '<!doctype html><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
    page_file = tmp_path / "explanation" / "algorithm.html"
    page_file.write_text(f"{head}<title>Test</title><body><main>{block}</main>", encoding="utf-8")

    def go(width: int = 1000, **settings: Any):
        context = browser.new_context(viewport={"width": width, "height": 900}, **settings)
        contexts.append(context)
        page = context.new_page()
        page.on("request", lambda request: requests.append(request.url))
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.on("console", lambda message: errors.append(message.text))
        page.goto(page_file.as_uri())
        return page

    yield go
    for context in contexts:
        context.close()
    assert errors == []
    assert [url for url in requests if not url.startswith(tmp_path.as_uri())] == []


def verdict(page) -> str:
    return page.locator("#projection-demo .verdict").inner_text()


def read_theta(page) -> tuple[float, float]:
    values = page.locator("#projection-demo input").evaluate_all("inputs => inputs.map((input) => input.valueAsNumber)")
    return values[0], values[1]


def test_the_estimate_can_be_dragged(visit) -> None:
    page = visit()
    assert verdict(page).startswith("Out of reach")
    handle = page.locator("#projection-demo .hat .handle").bounding_box()
    box = page.locator("#projection-demo svg").bounding_box()
    page.mouse.move(handle["x"] + handle["width"] / 2, handle["y"] + handle["height"] / 2)
    page.mouse.down()
    scale = box["width"] / 560
    page.mouse.move(box["x"] + 200 * scale, box["y"] + 200 * scale, steps=4)
    page.mouse.up()
    assert verdict(page).startswith("Inside")
    assert read_theta(page) == pytest.approx((0.5, 0.3), abs=0.02)


def test_the_keyboard_is_enough(visit) -> None:
    page = visit(reduced_motion="reduce")
    first = page.get_by_label("θ̂₁")
    first.focus()
    before = read_theta(page)[0]
    page.keyboard.press("ArrowLeft")
    assert read_theta(page)[0] == pytest.approx(before - 0.01)
    page.keyboard.press("Home")
    assert read_theta(page)[0] == pytest.approx(-1.4)
    page.get_by_role("button", name="Within reach").press("Enter")
    assert verdict(page).startswith("Within reach")
    page.get_by_label("β, the confidence radius").press("Home")
    assert verdict(page).startswith("Out of reach")


def test_without_motion_an_example_is_shown_at_once(visit) -> None:
    page = visit(reduced_motion="reduce")
    shown = page.evaluate(
        """() => {
            document.querySelector("#projection-demo button").click();
            return document.querySelector("#projection-demo .verdict").textContent;
        }"""
    )
    assert shown.startswith("Inside")


def test_with_motion_an_example_is_reached(visit) -> None:
    page = visit()
    page.get_by_role("button", name="Inside").click()
    page.wait_for_function("document.querySelectorAll('#projection-demo input')[0].valueAsNumber < 0.56")
    assert read_theta(page) == pytest.approx((0.55, 0.5))


def test_the_last_example_has_the_radius_of_the_policy(visit) -> None:
    page = visit(reduced_motion="reduce")
    page.get_by_role("button", name="own β").click()
    assert f"β = {make_world().beta:.2f}" in page.locator("#projection-demo .numbers").inner_text()


def test_the_numbers_are_those_of_p2(visit) -> None:
    page, world = visit(reduced_motion="reduce"), make_world()
    page.get_by_role("button", name="Out of reach").click()
    theta = p2(
        world.features, world.weights, b=world.g(np.array([2.9, 0.9])), V=world.V, V_tilde=world.V_tilde, beta=1.0,
        S=1.0, ridge=world.ridge, link="logistic",
    ).theta  # fmt: skip
    assert f"θ̃ = ({theta[0]:.2f}, {theta[1]:.2f})" in page.locator("#projection-demo .numbers").inner_text()


@pytest.mark.parametrize("width", [390, 820])
def test_it_fits_a_screen(visit, width: int) -> None:
    page = visit(width, has_touch=True)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    handle = page.locator("#projection-demo .hat .handle").bounding_box()
    assert handle["width"] >= 24  # of WCAG 2.2, for a finger
    assert page.locator("#projection-demo .hat").evaluate("node => getComputedStyle(node).touchAction") == "none"


def test_without_scripts_the_page_says_so(visit) -> None:
    page = visit(java_script_enabled=False)
    assert "needs JavaScript" in page.locator("#projection-demo").inner_text()
