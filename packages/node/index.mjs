// The exports of the package for import.

import lockwheel from "./index.js";

export const { CheckError, ReplyError, Server, serverBetween, start } = lockwheel;
