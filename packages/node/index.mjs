// What the package gives, for those who import.

import lockwheel from "./index.js";

export const { ReplyError, Server, serverBetween, start } = lockwheel;
