/** Calibration: mean prediction against mean reward, recent, all time and by arm. */

/** @import { CalibrationMeans, StreamInfo } from "./types.js" */

import { $, fillTable, setDetails } from "./dom.js";
import { describeCalibration } from "./findings.js";
import { countOf, formatCount, formatNumber } from "./format.js";
import { formatTick, numeric } from "./panel.js";

const COLUMNS = ["Outcomes", "Predicted", "Realised", "Gap"].map(numeric);

/**
 * Show the tables, and return a sentence that sums them up.
 *
 * @param {StreamInfo} info
 */
export function showCalibration({ calibration, counts }) {
  const { overall, recent, by_arm: arms, others } = calibration;
  const { kind, sentence } = describeCalibration(calibration, counts.settled);
  $("#predictions").dataset.calibration = kind;
  const table = /** @type {HTMLTableElement} */ ($("#calibration"));
  table.hidden = overall.settled === 0;
  fillTable(
    table,
    "Means of predictions and rewards, ± standard error",
    [{ head: "" }, ...COLUMNS],
    [makeRow("Recent", recent), makeRow("All time", overall)],
  );
  const details = /** @type {HTMLDetailsElement} */ ($("#calibration-arms"));
  details.hidden = arms.length === 0;
  setDetails(details, (list) =>
    fillTable(
      list,
      others.settled > 0
        ? `The ${countOf(arms.length, "most recently settled arm")}; other arms: ${countOf(others.settled, "outcome")}`
        : "All time, the arm with the most outcomes first; ± standard error",
      [{ head: "Arm" }, ...COLUMNS],
      arms.map((means) => makeRow(String(means.arm), means)),
    ),
  );
  return sentence;
}

/**
 * Round to two digits; the standard error makes more meaningless.
 *
 * @param {number} value
 */
const formatTwo = (value) => formatTick(Number(value.toPrecision(2)));

/**
 * @param {string} name
 * @param {CalibrationMeans} means
 */
function makeRow(name, { settled, mean_prediction: predicted, mean_reward: realised, standard_error: error }) {
  const difference =
    predicted === null || realised === null || error === null
      ? "–"
      : `${formatTwo(realised - predicted)} ±\u00a0${formatTwo(error)}`;
  return {
    key: name,
    cells: [name, formatCount(settled), formatNumber(predicted), formatNumber(realised), difference],
  };
}
