/** What the page knows: the list of streams, the selected stream, and whether the server answers. */

/** @import { AxisKind, ClusterInfo, LiveEvent, StreamList } from "./types.js" */

import { readAddress } from "./address.js";

export const state = {
  /** @type {StreamList | null} */ list: null,
  pages: 1,
  /** @type {ClusterInfo | null} */ cluster: null,
  ...readAddress(), // isNew, isNodes, stream, decision
  /** @type {LiveEvent | null} */ live: null,
  isMissing: false,
  /** @type {string | null} */ contact: null, // when the server last sent something
  /** @type {Record<"list" | "live", string | null>} */ errors: { list: null, live: null },
  /** @type {string | null} */ denied: null, // the code of a refusal for want of a token
  /** @type {string | null} */ paused: null, // since when
  /** @type {AxisKind | null} */ axis: null, // as the reader chose
};
