package clients

import (
	"path/filepath"
	"testing"

	"plantstore/e2e/harness"
	"plantstore/internal/testenv"
)

const toolsDir = harness.Root + "/e2e/tools"

func TestOpenAPIHasNoFindingOfRedocly(t *testing.T) {
	testenv.NeedsTools(t, harness.Root)
	got := run(t, toolsDir, nil, need(t, "node"), "--input-type=module", "--eval", `
import core from "@redocly/openapi-core";
const config = await core.createConfig({ extends: ["recommended"] });
for (const problem of await core.lint({ ref: "../../openapi.yaml", config })) {
  console.log(problem.severity, problem.ruleId, problem.message, problem.location[0].pointer);
}
`)
	if got != "" {
		t.Errorf("Redocly found\n%s", got)
	}
}

func TestOpenAPIHasNoFindingOfSpectral(t *testing.T) {
	testenv.NeedsTools(t, harness.Root)
	got := run(t, toolsDir, nil, need(t, "node"), "--input-type=module", "--eval", `
import { readFileSync } from "node:fs";
import core from "@stoplight/spectral-core";
import parsers from "@stoplight/spectral-parsers";
import rulesets from "@stoplight/spectral-rulesets";
const spectral = new core.Spectral();
spectral.setRuleset({ extends: [rulesets.oas] });
for (const problem of await spectral.run(new core.Document(readFileSync("../../openapi.yaml", "utf8"), parsers.Yaml))) {
  console.log(problem.code, problem.message, problem.path.join("."));
}
`)
	if got != "" {
		t.Errorf("Spectral found\n%s", got)
	}
}

// TestOpenAPIGeneratesAClient generates types with openapi-typescript and type-checks a
// program that uses them.
func TestOpenAPIGeneratesAClient(t *testing.T) {
	testenv.NeedsTools(t, harness.Root)
	dir := t.TempDir()
	bin, err := filepath.Abs(toolsDir + "/node_modules/.bin")
	if err != nil {
		t.Fatal(err)
	}
	run(t, toolsDir, nil, filepath.Join(bin, "openapi-typescript"), "../../openapi.yaml", "--output", filepath.Join(dir, "generated.ts"))
	write(t, filepath.Join(dir, "program.ts"), `
import type { components, operations, webhooks } from "./generated";

type Body<Operation extends { responses: object }, Status extends keyof Operation["responses"]> =
  Operation["responses"][Status] extends { content: { "application/json": infer Json } } ? Json : never;

const plant: components["schemas"]["NewPlant"] = { id: 1, name: "Monstera", tag: "tropical" };
const created: Body<operations["createPlant"], 200> = { name: plant.name };
const failed: components["schemas"]["Error"] = { error: 40010, message: "taken" };
const event: components["schemas"]["Event"]["type"] = "plant.created";
const report: Body<operations["importPlants"], 200> = { created: 1, unchanged: 0, failed: 1, errors: [{ line: 2, ...failed }] };
const hook: Body<operations["createWebhook"], 201>["secret"] = "whsec_AAAA";
const query: operations["listPlants"]["parameters"]["query"] = { after: 1, tag: ["tropical", "shade"] };
const message: webhooks["plant.created"]["post"]["requestBody"]["content"]["application/json"]["data"] = plant;
// @ts-expect-error the name is required
const nameless: Body<operations["getPlant"], 200> = {};
// @ts-expect-error there is no such operation
type Missing = operations["waterPlant"];

export { created, event, hook, message, nameless, query, report };
export type { Missing };
`)
	run(t, dir, nil, filepath.Join(bin, "tsc"), "--noEmit", "--strict", "--target", "ES2022", "--module", "ES2022", "--moduleResolution", "bundler", "program.ts")
}
