"use strict";
// The interactive picture of the projection: move theta_hat, and see theta_tilde and the sets that define it.
{
  /** @typedef {[number, number]} Vector */
  const SVG = "http://www.w3.org/2000/svg";
  const SIZE = { width: 560, height: 400 };
  const SCALE = 100;
  const CENTRE = /** @type {Vector} */ ([150, 230]);
  const POINTS = 90;
  const MOVING = 600; // milliseconds of a move to an example
  const EXAMPLES = /** @type {[string, Vector, number][]} */ ([
    ["Inside", [0.55, 0.5], 1],
    ["Within reach", [1.3, 0.72], 1],
    ["Out of reach", [2.9, 0.9], 1],
    ["The policy’s own β", [2.9, 0.9], 0], // 0: the radius of the policy
  ]);
  const VERDICTS = [
    "",
    "Inside the ball: θ̃ = θ̂.",
    "Within reach: noise alone can explain why θ̂ is outside. θ̃ is the point of the ball closest to θ̂ in the " +
      "metric of learning.",
    "Out of reach: noise explains the way from θ̂ to θ′, at most. The world has moved: θ̃ is as close to θ′ as " +
      "possible, in the metric of tracking.",
  ];

  /**
   * @param {Element | null} parent @param {string} tag @param {Record<string, string | number>} attributes
   * @param {string} [text] @returns {any}
   */
  function element(parent, tag, attributes, text) {
    const inSvg = tag === "svg" || parent instanceof SVGElement;
    const made = inSvg ? document.createElementNS(SVG, tag) : document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, String(value));
    if (text !== undefined) made.textContent = text;
    parent?.append(made);
    return made;
  }

  /** @param {Vector} theta @returns {Vector} where it is on the picture */
  const place = (theta) => [CENTRE[0] + SCALE * theta[0], CENTRE[1] - SCALE * theta[1]];

  /** @param {Vector[]} thetas @param {string} end "Z" for a closed line */
  const path = (thetas, end = "Z") =>
    `M${thetas
      .map((theta) =>
        place(theta)
          .map((value) => value.toFixed(1))
          .join(" "),
      )
      .join("L")}${end}`;

  /** @param {number} value @param {number} low @param {number} high */
  const clip = (value, low, high) => Math.min(high, Math.max(low, value));

  const LIMITS = /** @type {[Vector, Vector]} */ ([
    [-1.4, 4],
    [-1.6, 2.2],
  ]);

  class Demo {
    /** @param {HTMLElement} container */
    constructor(container) {
      const { World } = window.windvaneProjection;
      this.world = new World(window.projectionWorld);
      this.ownBeta = window.projectionWorld.beta;
      /** @type {Vector} */
      this.thetaHat = [2.9, 0.9];
      this.beta = 1;
      container.replaceChildren();
      this.draw(container);
      this.addControls(container);
      this.addPointer();
      this.update();
    }

    /** @param {HTMLElement} container */
    draw(container) {
      const svg = element(container, "svg", {
        viewBox: `0 0 ${SIZE.width} ${SIZE.height}`,
        role: "img",
        "aria-label": "The ball, the estimate, and its projection. The text below says what is shown.",
      });
      this.svg = svg;
      for (const { d, label, x, y } of [
        { d: "M0 230H560", label: "θ₁", x: 536, y: 222 },
        { d: "M150 0V400", label: "θ₂", x: 158, y: 20 },
      ]) {
        element(svg, "path", { d, class: "axis" });
        element(svg, "text", { x, y, class: "muted" }, label);
      }
      element(svg, "circle", { cx: CENTRE[0], cy: CENTRE[1], r: SCALE * this.world.S, class: "ball" });
      element(svg, "text", { x: 82, y: 352, class: "muted" }, "‖θ‖ ≤ S");
      /** @type {Record<string, any>} */
      this.parts = {};
      for (const name of ["region", "learning", "tracking", "noise", "drift"]) {
        this.parts[name] = element(svg, "path", { class: name });
      }
      for (const [name, label] of [
        ["prime", "θ′"],
        ["tilde", "θ̃"],
        ["hat", "θ̂"],
      ]) {
        const group = element(svg, "g", { class: name });
        if (name === "hat") element(group, "circle", { r: 24, class: "handle" });
        element(group, "circle", { r: name === "prime" ? 6 : 8 });
        element(group, "text", { x: 12, y: name === "hat" ? -10 : 22 }, label);
        this.parts[name] = group;
      }
    }

    /** @param {HTMLElement} container */
    addControls(container) {
      const controls = element(container, "div", { class: "controls" });
      /** @type {Record<string, HTMLInputElement>} */
      this.inputs = {};
      for (const [name, label, low, high] of [
        ["x", "θ̂₁", ...LIMITS[0]],
        ["y", "θ̂₂", ...LIMITS[1]],
        ["beta", "β, the confidence radius", 0.1, 3],
      ]) {
        const row = element(controls, "label", {}, `${label} `);
        const input = element(row, "input", { type: "range", min: low, max: high, step: 0.01 });
        input.addEventListener("input", () => this.readInputs());
        this.inputs[name] = input;
      }
      const buttons = element(container, "div", { class: "examples" });
      for (const [name, thetaHat, beta] of EXAMPLES) {
        const button = element(buttons, "button", { type: "button" }, name);
        button.addEventListener("click", () => this.move(thetaHat, beta || this.ownBeta));
      }
      this.verdict = element(container, "p", { class: "verdict", "aria-live": "polite" });
      this.numbers = element(container, "p", { class: "numbers" });
    }

    addPointer() {
      /** @param {PointerEvent | MouseEvent} event */
      const follow = (event) => {
        const box = this.svg.getBoundingClientRect();
        const x = ((event.clientX - box.left) / box.width) * SIZE.width;
        const y = ((event.clientY - box.top) / box.height) * SIZE.height;
        this.show([(x - CENTRE[0]) / SCALE, (CENTRE[1] - y) / SCALE], this.beta);
      };
      const hat = this.parts.hat;
      hat.addEventListener("pointerdown", (/** @type {PointerEvent} */ event) => {
        event.preventDefault();
        hat.setPointerCapture(event.pointerId);
      });
      hat.addEventListener("pointermove", (/** @type {PointerEvent} */ event) => {
        if (hat.hasPointerCapture(event.pointerId)) follow(event);
      });
      this.svg.addEventListener("click", follow);
    }

    readInputs() {
      const { x, y, beta } = this.inputs;
      this.show([x.valueAsNumber, y.valueAsNumber], beta.valueAsNumber);
    }

    /**
     * Show another estimate and radius at once.
     * @param {Vector} thetaHat @param {number} beta
     */
    show(thetaHat, beta) {
      cancelAnimationFrame(this.frame ?? 0);
      this.thetaHat = [clip(thetaHat[0], ...LIMITS[0]), clip(thetaHat[1], ...LIMITS[1])];
      this.beta = beta;
      this.update();
    }

    /**
     * Move there; at once, if the reader prefers less motion.
     * @param {Vector} goal @param {number} beta
     */
    move(goal, beta) {
      const { plus } = window.windvaneProjection;
      const still = window.matchMedia("(prefers-reduced-motion: reduce)").matches;
      const [from, radius, begin] = [this.thetaHat, this.beta, performance.now()];
      const step = () => {
        const share = still ? 1 : clip((performance.now() - begin) / MOVING, 0, 1);
        const eased = share * share * (3 - 2 * share);
        this.show(plus(from, eased, plus(goal, -1, from)), radius + eased * (beta - radius));
        if (share < 1) this.frame = requestAnimationFrame(step);
      };
      step();
    }

    /** Draw the projection of the estimate. */
    update() {
      const { plus, times } = window.windvaneProjection;
      const { world, thetaHat, beta, parts } = this;
      const { stage, theta, eta, value, learning } = world.project(thetaHat, beta);
      const outside = stage > 1;
      const noise = times(world.root, eta);
      const prime = world.invert(plus(world.g(thetaHat), -beta, noise), thetaHat);
      const set = (/** @type {string} */ name, /** @type {boolean} */ shown, /** @type {() => string} */ d) =>
        parts[name].setAttribute("d", shown ? d() : "");
      set("region", outside, () => path(world.levelSet(thetaHat, world.root, beta, POINTS)));
      set("learning", stage === 2, () => path(world.levelSet(thetaHat, world.root, learning, POINTS)));
      set("tracking", stage === 3, () => path(world.levelSet(prime, world.V, value, POINTS)));
      set("noise", outside, () => path([thetaHat, stage === 3 ? prime : theta], ""));
      set("drift", stage === 3, () => path([prime, theta], ""));
      for (const [name, at] of /** @type {[string, Vector][]} */ ([
        ["hat", thetaHat],
        ["tilde", theta],
        ["prime", prime],
      ])) {
        parts[name].setAttribute(
          "transform",
          `translate(${place(at)
            .map((v) => v.toFixed(1))
            .join(" ")})`,
        );
      }
      parts.prime.style.display = stage === 3 ? "" : "none";
      this.inputs.x.valueAsNumber = thetaHat[0];
      this.inputs.y.valueAsNumber = thetaHat[1];
      this.inputs.beta.valueAsNumber = beta;
      if (this.verdict.textContent !== VERDICTS[stage]) this.verdict.textContent = VERDICTS[stage];
      const pair = (/** @type {Vector} */ [x, y]) => `(${x.toFixed(2)}, ${y.toFixed(2)})`.replaceAll("-", "−");
      this.numbers.textContent =
        `θ̂ = ${pair(thetaHat)}, θ̃ = ${pair(theta)}, β = ${beta.toFixed(2)}` +
        `; learning ${learning.toFixed(2)}, tracking ${value.toFixed(3)}`;
    }
  }

  const container = document.getElementById("projection-demo");
  if (container) new Demo(container);
}
