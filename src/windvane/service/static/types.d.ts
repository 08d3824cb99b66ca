/* The JSON of HTTP v1 as the page reads it, and the shapes that the page's modules exchange. */

export type ArmName = string | number;
export type Timestamp = string; // RFC 3339, UTC
export type Status = "pending" | "rewarded" | "expired" | "dropped";

export interface Decision {
  id: string;
  arm: ArmName;
  index: number;
  time: Timestamp;
  propensity: number | null;
  explored: boolean;
  prediction: number;
  bonus: number;
  preferred: ArmName;
  rival: ArmName | null;
  rival_score: number | null;
  projected: boolean | null;
}

export interface DecisionRecord {
  decision: Decision;
  status: Status;
  reward: number | null;
  late_reward: number | null;
}

export interface Explanation {
  arm: ArmName;
  preferred: ArmName;
  explored: boolean;
  prediction: number;
  bonus: number;
  score: number;
  rival: ArmName | null;
  rival_score: number | null;
  projected: boolean | null;
  text: string;
}

export interface Counts {
  decisions: number;
  rewards: number;
  pending: number;
  held: number;
  settled: number;
  expired: number;
  defaulted: number;
  dropped: number;
  history_rows: number;
}

export interface Drift {
  verdict: string;
  evidence: number;
  memory: number | null;
  memory_low: number | null;
  memory_high: number | null;
  scale: number | null;
  rate: number | null;
  rate_low: number | null;
  rate_high: number | null;
  variation: number | null;
}

export interface HalfLife {
  decisions: number | null;
  seconds: number | null;
  text: string;
}

export interface CalibrationMeans {
  settled: number;
  mean_prediction: number | null;
  mean_reward: number | null;
  standard_error: number | null;
  z: number | null;
}

export interface ArmCalibration extends CalibrationMeans {
  arm: ArmName;
}

export interface Calibration {
  overall: CalibrationMeans;
  recent: CalibrationMeans;
  by_arm: ArmCalibration[];
  others: CalibrationMeans;
  is_off: boolean;
}

export interface Alert {
  code: string;
  message: string;
}

export type MemoryUnit = "decisions" | "seconds";

/** A declared field: a category, a number with a range, or any number. */
export interface Field {
  values?: string[];
  low?: number;
  high?: number;
}

export interface Features {
  shared?: Record<string, Field>;
  per_arm?: Record<string, Field>;
  by_arm?: Record<string, Field>;
  arms?: ArmName[];
}

/** Arguments of Agent; only those that the page reads are named. */
export interface Settings {
  features?: Features | null;
  S?: number | null;
  L?: number;
  scaling?: unknown;
  reward_timeout?: string | number | null;
  default_reward?: number | null;
  epsilon?: number;
  [name: string]: unknown;
}

export interface RemovedEvents {
  number: number;
  first: Timestamp;
  last: Timestamp;
}

export interface StreamInfo {
  name: string;
  title: string | null;
  created: Timestamp;
  archived: Timestamp | null;
  events: number;
  retention: string | null;
  removed: RemovedEvents | null;
  policy: string;
  link: string;
  dim: number;
  learn: string;
  counts: Counts;
  mean_reward: number | null;
  theta: Record<string, number>;
  S: number | null;
  projected_share: number;
  recent_projected_share: number;
  memory: number | null;
  memory_unit: MemoryUnit;
  half_life: HalfLife;
  decisions_per_second: number | null;
  drift: Drift | null;
  calibration: Calibration;
  alerts: Alert[];
  settings: Settings;
}

export type StreamSummary = Pick<
  StreamInfo,
  "name" | "title" | "created" | "archived" | "events" | "policy" | "counts" | "mean_reward" | "alerts"
>;

export interface UnavailableStream {
  name: string;
  reason: string;
}

export interface StreamList {
  streams: StreamSummary[];
  next: string | null;
  unavailable: UnavailableStream[];
}

/** A node, and the shards that it owns. */
export interface ClusterNode {
  name: string;
  url: string;
  version: string;
  shards: number[];
  streams: number | null;
}

/** The nodes as one of them sees them; a service on a file has none. */
export interface ClusterInfo {
  node: string | null;
  shards: number;
  nodes: ClusterNode[];
  unowned: number[];
}

export interface ArmBucket {
  decisions: number;
  predicted: number; // sum
  settled: number;
  realised: number; // sum
}

export interface Model {
  norm: number;
  memory: number | null;
  rate: number | null;
}

export interface Bucket {
  since: Timestamp;
  until: Timestamp;
  decisions: number;
  settled: number;
  total: number;
  projected: number | null;
  arms: Record<string, ArmBucket>;
  others: number;
  model: Model | null;
}

export interface RecentDecision {
  id: string;
  time: Timestamp;
  arm: ArmName;
  prediction: number;
  status: Status;
  reward: number | null;
}

export interface Charts {
  width: number;
  buckets: Bucket[];
  arms: Record<string, number>;
  others: number;
  recent: RecentDecision[];
}

export interface LiveEvent {
  info: StreamInfo;
  charts: Charts;
}

export interface Problem {
  type: string;
  title: string;
  status: number;
  detail: string;
  errors?: { pointer: string; detail: string }[];
}

/* --- inside the page --- */

export type AxisKind = "time" | "decisions";

/** A request that the page shows as a command and can send itself. */
export interface ExampleRequest {
  method: "POST" | "PUT" | "DELETE";
  path: string;
  body: unknown;
}

/** One line of a chart. Colours are names of custom properties of the style sheet. */
export interface Line {
  label: string;
  values: (number | null)[];
  color: string;
  style?: "line" | "dots" | "steps" | "area";
  width?: number;
  dash?: number[];
  describe?: (value: number, index: number) => string; // in the tooltip; left out: the line is not listed
}

export interface ChartSpec {
  kind: AxisKind;
  x: number[]; // seconds since 1970, or decisions
  range: [number, number];
  y: { range: [number, number]; log?: boolean; ticks?: number[]; format: (value: number) => string };
  lines: Line[];
  band?: { low: number; high: number; label: string }; // a shaded range of y with a label at its upper end
  interval?: { low: number; high: number; color: string }; // a bar at the last point
}

/** Everything that the charts are drawn from. */
export interface Series {
  kind: AxisKind;
  range: [number, number];
  buckets: Bucket[];
  starts: number[];
  ends: number[];
  before: number[]; // decisions before each bucket
  width: number; // buckets in a moving average
  last: Bucket[];
  means: (number | null)[];
  averages: (number | null)[];
  recentMean: number | null;
  recentSettled: number;
}
