/** The page's address: "#/STREAM", "#/STREAM/DECISION" or "#new". */

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

/** @returns {{ isNew: boolean, stream: string | null, decision: string | null }} */
export function readAddress(hash = location.hash) {
  const [root, stream = "", decision = ""] = hash.split("/");
  const isStream = root === "#" && stream !== "";
  return {
    isNew: hash === "#new",
    stream: isStream ? decode(stream) : null,
    decision: isStream && decision !== "" ? decode(decision) : null,
  };
}
