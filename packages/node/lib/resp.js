"use strict";
// The little of Redis's protocol that a control connection needs: requests, and replies of RESP2.

/** An error that the server answered with. */
class ReplyError extends Error {
  name = "ReplyError";
}

/** A request as the server reads it. */
function encode(args) {
  const parts = args.map((arg) => (ArrayBuffer.isView(arg) ? arg : Buffer.from(String(arg))));
  const lines = parts.map((part) => [`$${part.length}\r\n`, part, "\r\n"]);
  return Buffer.concat([`*${parts.length}\r\n`, ...lines.flat()].map((it) => Buffer.from(it)));
}

/**
 * The reply at the beginning of `bytes` and where the next one begins, or undefined if it is not
 * there as a whole yet. An error is a value here: it may be part of an array.
 */
function decode(bytes, begin = 0) {
  const end = bytes.indexOf("\r\n", begin);
  if (end < 0) return undefined;
  const line = bytes.toString("utf8", begin + 1, end);
  const next = end + 2;
  switch (String.fromCharCode(bytes[begin])) {
    case "+":
      return { reply: line, next };
    case "-":
      return { reply: new ReplyError(line), next };
    case ":":
      return { reply: Number(line), next };
    case "$":
      return decodeBulk(bytes, next, Number(line));
    case "*":
      return decodeArray(bytes, next, Number(line));
    default:
      throw new Error(`this is no reply: ${line}`);
  }
}

function decodeBulk(bytes, begin, length) {
  if (length < 0) return { reply: null, next: begin };
  const end = begin + length;
  if (bytes.length < end + 2) return undefined;
  return { reply: bytes.toString("utf8", begin, end), next: end + 2 };
}

function decodeArray(bytes, begin, length) {
  if (length < 0) return { reply: null, next: begin };
  const reply = [];
  let next = begin;
  while (reply.length < length) {
    const element = decode(bytes, next);
    if (!element) return undefined;
    reply.push(element.reply);
    next = element.next;
  }
  return { reply, next };
}

module.exports = { ReplyError, decode, encode };
