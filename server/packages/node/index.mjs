// What the package gives, for those who import.

import leasehold from "./index.js";

export const { ReplyError, Server, serverBetween, start } = leasehold;
