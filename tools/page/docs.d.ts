/** What the scripts of the documentation share. */

type Constants = {
  features: [number, number][];
  weights: number[];
  squaredWeights: number[];
  S: number;
  lambda: number;
  ridge: number;
  beta: number;
};

interface Window {
  projectionWorld: Constants;
  windvaneProjection: {
    World: new (constants: Constants) => any;
    plus(a: [number, number], factor: number, b: [number, number]): [number, number];
    times(matrix: [number, number, number], vector: [number, number]): [number, number];
  };
}
