// The types of the package for import.

export * from "./index.js";
