// Compares what the conformance suite found with what is expected of it.
//
//   node compare.mjs EXPECTED VERSION RESULTS
//
// RESULTS is the folder into which the suite wrote; EXPECTED says, for each check that fails or warns, why. Fails
// where a check does so that is not expected to, and where one is expected to and does not.
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';

const [expectedFile, version, results] = process.argv.slice(2);
const { reasons, checks } = JSON.parse(readFileSync(expectedFile));
const expected = checks[version];
const found = new Set();
let passed = 0;
for (const folder of readdirSync(results)) {
    // Named `server-SCENARIO-TIME`.
    const scenario = folder.replace(/^server-/, '').replace(/-\d{4}-\d\d-\d\dT.*$/, '');
    for (const check of JSON.parse(readFileSync(join(results, folder, 'checks.json')))) {
        if (check.status === 'SUCCESS') passed += 1;
        if (check.status !== 'FAILURE' && check.status !== 'WARNING') continue;
        const name = `${scenario}/${check.id}`;
        if (!found.has(name) && !(name in expected)) {
            console.error(`${version}: ${name}: ${check.status}: ${check.errorMessage ?? check.description}`);
            process.exitCode = 1;
        }
        found.add(name);
    }
}
for (const [name, reason] of Object.entries(expected)) {
    if (!(reason in reasons)) {
        console.error(`${version}: ${name}: there is no reason ${reason}`);
        process.exitCode = 1;
    }
    if (!found.has(name)) {
        console.error(`${version}: ${name} is expected to fail and does not: take it out of ${expectedFile}`);
        process.exitCode = 1;
    }
}
if (passed === 0) {
    console.error(`${version}: no check passed: did the suite run?`);
    process.exitCode = 1;
}
if (!process.exitCode) {
    console.log(`${version}: ${passed} checks passed, ${found.size} did not and are expected not to`);
}
