// Whether a limit is worth trying on this device.

import assert from "node:assert/strict";
import { test } from "node:test";
import { Pace } from "../dist/pace.js";

const paced = (...took) => {
  const pace = new Pace();
  for (const ms of took) pace.add(ms);
  return pace;
};

test("before five runs nothing is known, and every limit is tried", () => {
  const pace = paced(500, 500, 500, 500);
  assert.equal(pace.usualMs, null);
  assert.ok(pace.allows(1));
});

test("the usual time is the median of the last five: a first slow run does not count for long", () => {
  assert.equal(paced(900, 3, 1, 2, 700).usualMs, 3);
  assert.equal(paced(900, 900, 900, 5, 4, 3, 2, 1).usualMs, 3);
});

test("too little time: one in five is tried, so that a device that gets faster is noticed", () => {
  const pace = paced(30, 30, 30, 30, 30);
  assert.ok(pace.allows(30));
  const tried = Array.from({ length: 20 }, () => pace.allows(20));
  assert.equal(tried.filter(Boolean).length, 4);
  for (let run = 0; run < 3; run += 1) pace.add(1);
  assert.ok(pace.allows(20));
});
