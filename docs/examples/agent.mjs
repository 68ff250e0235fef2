// A whole agent for the runtime `command`: one JSON object on standard input,
// JSON lines on standard output. It knows a single trick, so that the protocol
// is easy to see: whatever the goal, it adds greet.mjs with a test. A real
// agent would send call.system and call.prompt to a model instead.
import { readFileSync, writeFileSync } from "node:fs";

const call = JSON.parse(readFileSync(0, "utf8"));
const say = (line) => process.stdout.write(JSON.stringify(line) + "\n");
const criterion = { text: "greet('Ada') returns 'Hello, Ada!'", prd_ids: ["ac-1"] };

const roles = {
  pm: () => ({
    title: "Greet people by name",
    validated_description: "The package can greet a person by name.",
    acceptance_criteria: [{ id: "ac-1", text: criterion.text, must_have: true }],
    size: "trivial",
  }),
  sprint_planner: () => ({
    rationale: "One function and its test belong together.",
    issues: [{
      name: "add-greet", title: "Add greet", description: "Add greet.mjs, which exports greet(name), and a test.",
      acceptance_criteria: [criterion], files_to_create: ["greet.mjs", "greet.test.mjs"],
      guidance: { needs_new_tests: true, risk_rationale: "New files only; nothing depends on them yet." },
    }],
  }),
  issue_writer: () => ({
    issue_name: "add-greet", success: true,
    spec: "Export `greet(name)` from greet.mjs. Test it with node:test in greet.test.mjs.",
  }),
  coder: () => {
    say({ type: "tool_call", name: "WRITE", input: { path: "greet.mjs" } });
    writeFileSync("greet.mjs", "export const greet = (name) => `Hello, ${name}!`;\n");
    writeFileSync("greet.test.mjs", [
      'import test from "node:test";',
      'import assert from "node:assert/strict";',
      'import { greet } from "./greet.mjs";',
      "",
      'test("greets by name", () => assert.equal(greet("Ada"), "Hello, Ada!"));',
      "",
    ].join("\n"));
    return { files_changed: ["greet.mjs", "greet.test.mjs"], summary: "Added greet and its test.", complete: true };
  },
  code_reviewer: () => ({ approved: true, blocking: false, summary: "Small, tested, does what was asked." }),
  verifier: () => ({
    summary: "The one criterion is met.",
    criteria_results: [{ prd_id: "ac-1", passed: true, evidence: "greet.test.mjs: greets by name", issue_name: "add-greet" }],
  }),
  lens: () => ({ findings: [] }),
  git: () => ({ title: "Greet people by name", summary: "Adds greet(name) with a test." }),
};

const role = roles[call.role];
if (!role) {
  console.error(`this example has no answer for the role ${call.role}`);
  process.exit(1);
}
say({ type: "text", text: `I am the ${call.role}.` });
const output = role(); // before the usage line, so that events come in the order of the work
say({ type: "usage", input_tokens: call.prompt.length >> 2, output_tokens: 50, cost_usd: 0.001 });
say({ type: "result", output });
