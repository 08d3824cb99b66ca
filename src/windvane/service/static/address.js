/** The page's address: "#/STREAM", "#/STREAM/DECISION", "#new" or "#cluster". */

/**
 * @param {string} stream
 * @param {string} [decision]
 */
export const addressOf = (stream, decision) =>
  `#/${[stream, ...(decision === undefined ? [] : [decision])].map(encodeURIComponent).join("/")}`;

/** @param {string} part */
function decode(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

/** @returns {{ isNew: boolean, isNodes: boolean, stream: string | null, decision: string | null }} */
export function readAddress(hash = location.hash) {
  const [root, stream = "", decision = ""] = hash.split("/");
  const isStream = root === "#" && stream !== "";
  return {
    isNew: hash === "#new",
    isNodes: hash === "#cluster",
    stream: isStream ? decode(stream) : null,
    decision: isStream && decision !== "" ? decode(decision) : null,
  };
}
