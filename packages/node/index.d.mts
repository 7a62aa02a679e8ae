// The types, for those who import.

export * from "./index.js";
