-- Makes a project with the session that ships with the server, for the screen tests: prints its directory.
local here = vim.fs.dirname(vim.fs.abspath(debug.getinfo(1, 'S').source:sub(2)))
local F = dofile(here .. '/fixture.lua')

local root = F.project('meterlog')
local lines = vim.fn.readfile(vim.env.PI_LS_ROOT .. '/pi_ls/demo_session.jsonl')
local header = vim.json.decode(table.remove(lines, 1))
header.cwd = root
table.insert(lines, 1, vim.json.encode(header))
F.write(F.session_file(root, header.id), table.concat(lines, '\n') .. '\n')

F.settings {
  compaction = { models = { 'offline/extractive' }, reserveTokens = 8192, keepRecentTokens = 6000 },
}
local models = {}
for _, id in ipairs { 'qwen3-coder-30b', 'qwen3-coder-480b' } do
  table.insert(models, { id = id, contextWindow = 40960, maxTokens = 8192, reasoning = true })
end
local workstation =
  { baseUrl = 'http://127.0.0.1:9/v1', api = 'openai-completions', apiKey = 'none', models = models }
F.write(F.agent_dir .. '/models.json', vim.json.encode { providers = { workstation = workstation } })

F.write(
  root .. '/bucket.py',
  [[
"""Sums of readings by hour of a local day."""

from datetime import date, timedelta, tzinfo

HOUR = timedelta(hours=1)


def by_hour(readings, day: date, zone: tzinfo) -> list[int]:
    """One bucket for each hour the local day has (23, 24 or 25), in order."""
    first, last = bounds(day, zone)
    wh = [0] * int((last - first) / HOUR)
    for reading in readings:
        wh[int((reading.start - first) / HOUR)] += reading.wh
    return wh
]]
)
io.stdout:write(root, '\n')
