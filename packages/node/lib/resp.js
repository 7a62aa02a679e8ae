"use strict";
// The part of the Redis protocol that this package needs: requests, and replies of RESP2.

/** An error reply. */
class ReplyError extends Error {
  name = "ReplyError";
}

/** Encodes a request. */
function encode(args) {
  const parts = args.map((arg) => (ArrayBuffer.isView(arg) ? arg : Buffer.from(String(arg))));
  const lines = parts.map((part) => [`$${part.length}\r\n`, part, "\r\n"]);
  return Buffer.concat([`*${parts.length}\r\n`, ...lines.flat()].map((it) => Buffer.from(it)));
}

/**
 * Decodes the reply at `begin`. Returns it with the start of the next one, or undefined if the reply
 * is incomplete. An error is returned as a value, since it may be an element of an array.
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
      throw new Error(`not a reply: ${line}`);
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
