// The types of lockwheel/locks for import.

export * from "./locks.js";
