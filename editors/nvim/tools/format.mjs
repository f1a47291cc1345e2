// The plugin's Lua in its format: node format.mjs [--check]. StyLua as WebAssembly, with ../stylua.toml.
import { readFileSync, writeFileSync } from 'node:fs';
import { execFileSync } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import * as stylua from '@johnnymorganz/stylua';

const root = fileURLToPath(new URL('..', import.meta.url));
const check = process.argv.includes('--check');
const enums = { indent_type: stylua.IndentType, quote_style: stylua.QuoteStyle, call_parentheses: stylua.CallParenType };

function config() { // a new one each time: formatting consumes it
  const made = stylua.Config.new();
  for (const [, key, value] of readFileSync(`${root}/stylua.toml`, 'utf8').matchAll(/^(\w+) = (.*)$/gm)) {
    const plain = JSON.parse(value);
    made[key] = key in enums ? enums[key][plain] : plain;
  }
  return made;
}

let changed = 0;
const files = execFileSync('git', ['ls-files', '-co', '--exclude-standard', '*.lua'], { cwd: root, encoding: 'utf8' });
for (const file of files.trim().split('\n')) {
  const path = `${root}/${file}`, source = readFileSync(path, 'utf8');
  const formatted = stylua.formatCode(source, config(), undefined, stylua.OutputVerification.Full);
  if (formatted === source) continue;
  changed += 1;
  console.log(`${check ? 'not in its format' : 'formatted'}: ${file}`);
  if (!check) writeFileSync(path, formatted);
}
process.exitCode = check && changed ? 1 : 0;
