"use strict";
// The projection of BVD-GLM-UCB in two dimensions, as docs/explanation/algorithm.md defines it.
// A test compares it with windvane.p2. Outside the ball every solution is on the circle ||theta|| = S,
// because the gradients H u of both programs vanish only where their values are 0: one angle is searched.
{
  /** @typedef {[number, number]} Vector */
  /** @typedef {[number, number, number]} Symmetric the entries (1, 1), (1, 2) and (2, 2) */
  const GRID = 360;
  const TIMES = 60; // halvings of a bracket: below rounding
  const CLOSE = 1e-12;

  /** @param {Vector} a @param {Vector} b @returns {number} */
  const dot = (a, b) => a[0] * b[0] + a[1] * b[1];

  /** @param {Vector} a @param {number} factor @param {Vector} b @returns {Vector} a + factor b */
  const plus = (a, factor, b) => [a[0] + factor * b[0], a[1] + factor * b[1]];

  /** @param {Symmetric} m @param {Vector} v @returns {Vector} */
  const times = (m, v) => [m[0] * v[0] + m[1] * v[1], m[1] * v[0] + m[2] * v[1]];

  /** @param {Symmetric} m @returns {Symmetric} */
  function invertMatrix([a, b, c]) {
    const determinant = a * c - b * b;
    return [c / determinant, -b / determinant, a / determinant];
  }

  /** @param {Symmetric} m @returns {Symmetric} the symmetric root, by Cayley and Hamilton */
  function root([a, b, c]) {
    const s = Math.sqrt(a * c - b * b);
    const t = Math.sqrt(a + c + 2 * s);
    return [(a + s) / t, b / t, (c + s) / t];
  }

  /** A world: past rounds as features with two sums of weights. */
  class World {
    /** @param {{features: Vector[], weights: number[], squaredWeights: number[], S: number, lambda: number,
     *   ridge: number}} constants */
    constructor({ features, weights, squaredWeights, S, lambda, ridge }) {
      this.features = features;
      this.weights = weights;
      this.S = S;
      this.ridge = ridge;
      this.V = this.gram(weights, lambda);
      this.VTilde = this.gram(squaredWeights, lambda);
      this.root = root(this.VTilde);
      this.VInverse = invertMatrix(this.V);
      this.VTildeInverse = invertMatrix(this.VTilde);
    }

    /** @param {number[]} weights @param {number} diagonal @returns {Symmetric} */
    gram(weights, diagonal) {
      /** @type {Symmetric} */
      const sum = [diagonal, 0, diagonal];
      this.features.forEach(([x, y], i) => {
        sum[0] += weights[i] * x * x;
        sum[1] += weights[i] * x * y;
        sum[2] += weights[i] * y * y;
      });
      return sum;
    }

    /** @param {Vector} theta @returns {Vector} */
    g(theta) {
      /** @type {Vector} */
      let sum = [this.ridge * theta[0], this.ridge * theta[1]];
      this.features.forEach((x, i) => {
        sum = plus(sum, this.weights[i] / (1 + Math.exp(-dot(x, theta))), x);
      });
      return sum;
    }

    /** @param {Vector} theta @returns {Symmetric} the Jacobian of g */
    H(theta) {
      const slopes = this.features.map((x, i) => {
        const mean = 1 / (1 + Math.exp(-dot(x, theta)));
        return this.weights[i] * mean * (1 - mean);
      });
      return this.gram(slopes, this.ridge);
    }

    /** @param {Vector} value @param {Vector} start @returns {Vector} the theta with g(theta) = value */
    invert(value, start) {
      let theta = start;
      for (let i = 0; i < 100; i++) {
        const step = times(invertMatrix(this.H(theta)), plus(value, -1, this.g(theta)));
        const length = Math.hypot(...step);
        theta = plus(theta, Math.min(1, 1 / (length + Number.MIN_VALUE)), step);
        if (length < CLOSE) break;
      }
      return theta;
    }

    /**
     * @param {Vector} centre @param {Symmetric} shape @param {number} level @param {number} count
     * @returns {Vector[]} points of {theta: g(theta) = g(centre) + level shape u, ||u|| = 1}
     */
    levelSet(centre, shape, level, count) {
      const middle = this.g(centre);
      const points = [];
      let theta = centre;
      for (let i = 0; i < count; i++) {
        const angle = (2 * Math.PI * i) / count;
        theta = this.invert(plus(middle, level, times(shape, [Math.cos(angle), Math.sin(angle)])), theta);
        points.push(theta);
      }
      return points;
    }

    /**
     * The best ||eta|| <= 1 for V^-1 (g - b) + beta V^-1 V_tilde^(1/2) eta, with the rest rho.
     * @param {Vector} misfit g - b @param {number} beta @returns {{eta: Vector, rho: Vector}}
     */
    fitSlack(misfit, beta) {
      const exact = times(invertMatrix(this.root), misfit);
      if (Math.hypot(...exact) <= beta) return { eta: [-exact[0] / beta, -exact[1] / beta], rho: [0, 0] };
      // (A'A + nu I) eta = -A' V^-1 misfit, with nu > 0 so that ||eta|| = 1; ||eta|| falls as nu grows
      const columns = [
        times(this.VInverse, [this.root[0], this.root[1]]),
        times(this.VInverse, [this.root[1], this.root[2]]),
      ];
      const rest = times(this.VInverse, misfit);
      /** @type {Vector} */
      const right = [-beta * dot(columns[0], rest), -beta * dot(columns[1], rest)];
      const square = beta * beta;
      /** @param {number} nu @returns {Vector} */
      const etaAt = (nu) => {
        const a = square * dot(columns[0], columns[0]) + nu;
        const c = square * dot(columns[1], columns[1]) + nu;
        return times(invertMatrix([a, square * dot(columns[0], columns[1]), c]), right);
      };
      const nu = bisect((x) => 1 - Math.hypot(...etaAt(x)), 0, Math.hypot(...right));
      const eta = etaAt(nu);
      return { eta, rho: plus(plus(rest, beta * eta[0], columns[0]), beta * eta[1], columns[1]) };
    }

    /**
     * The canonical solution of P2.
     * @param {Vector} thetaHat @param {number} beta
     * @returns {{stage: number, theta: Vector, eta: Vector, value: number, learning: number}}
     */
    project(thetaHat, beta) {
      if (Math.hypot(...thetaHat) <= this.S) return { stage: 1, theta: thetaHat, eta: [0, 0], value: 0, learning: 0 };
      const b = this.g(thetaHat);
      /** @param {Vector} theta */
      const misfit = (theta) => plus(this.g(theta), -1, b);
      const near = this.minimise((theta) => {
        const u = times(this.VTildeInverse, misfit(theta));
        return { value: dot(misfit(theta), u), gradient: times(this.H(theta), u) };
      });
      const learning = Math.sqrt(dot(misfit(near), times(this.VTildeInverse, misfit(near))));
      if (learning <= beta) {
        const { eta } = this.fitSlack(misfit(near), beta);
        return { stage: 2, theta: near, eta, value: 0, learning };
      }
      const theta = this.minimise((point) => {
        const { rho } = this.fitSlack(misfit(point), beta);
        return { value: dot(rho, rho), gradient: times(this.H(point), times(this.VInverse, rho)) };
      });
      const { eta, rho } = this.fitSlack(misfit(theta), beta);
      return { stage: 3, theta, eta, value: Math.hypot(...rho), learning: beta };
    }

    /**
     * @param {(theta: Vector) => {value: number, gradient: Vector}} program
     * @returns {Vector} its best point on the circle
     */
    minimise(program) {
      /** @param {number} angle @returns {Vector} */
      const point = (angle) => [this.S * Math.cos(angle), this.S * Math.sin(angle)];
      /** @param {number} angle the derivative along the circle */
      const slope = (angle) => dot(program(point(angle)).gradient, [-Math.sin(angle), Math.cos(angle)]);
      const width = (2 * Math.PI) / GRID;
      const values = Array.from({ length: GRID }, (_, i) => program(point(i * width)).value);
      const best = values.indexOf(Math.min(...values)) * width;
      return point(bisect(slope, best - width, best + width));
    }
  }

  /** @param {(x: number) => number} f negative at ``low`` @param {number} low @param {number} high */
  function bisect(f, low, high) {
    for (let i = 0; i < TIMES; i++) {
      const middle = (low + high) / 2;
      if (f(middle) < 0) low = middle;
      else high = middle;
    }
    return (low + high) / 2;
  }

  window.windvaneProjection = { World, plus, times };
}
