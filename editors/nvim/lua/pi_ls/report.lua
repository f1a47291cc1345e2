---Reports to read: what a compaction would do, what the context consists of.

local LABEL_WIDTH = 25
local M = {}

---@param label string
---@param value string
---@return string
local function row(label, value)
  return label .. (' '):rep(math.max(1, LABEL_WIDTH - vim.fn.strdisplaywidth(label))) .. value
end

---What the server's categories are called.
local KINDS = { system = 'instructions', toolResults = 'tool results', unattributed = 'other' }

---@param files string[]?
---@return string
local function listed(files)
  return files and #files > 0 and table.concat(files, ', ') or 'none'
end

---@param preview table result of `pi.previewCompaction`
---@return string[]
function M.preview(preview)
  local count = require('pi_ls.numbers').count
  if not preview.possible then
    return { '# Compaction preview', '', preview.reason or 'A compaction is not possible now.' }
  end
  local lines = {
    '# Compaction preview',
    '',
    'What `:PiLs compact` would do. No model was asked, nothing was written.',
    '',
    row('Context now', count(preview.tokensBefore) .. ' tokens'),
    row('Afterwards, about', count(preview.estimatedTokensAfter) .. ' tokens'),
    row('Entries summarized', tostring(#preview.summarizedEntryIds)),
  }
  if preview.isSplitTurn then
    table.insert(lines, row('Start of a split turn', ('%d entries'):format(#preview.turnPrefixEntryIds)))
  end
  vim.list_extend(lines, {
    row('Entries kept', ('%d, from %s'):format(#preview.keptEntryIds, preview.firstKeptEntryId)),
    row('Earlier summary', preview.previousSummary and 'is taken up' or 'none'),
    row('Files read', listed(preview.readFiles)),
    row('Files changed', listed(preview.modifiedFiles)),
    '',
  })
  for _, prompt in ipairs(preview.prompts or {}) do
    table.insert(lines, row('Prompt', ('%s, %s tokens'):format(prompt.name, count(prompt.tokens))))
  end
  return lines
end

---@param usage table result of `pi.contextUsage` with detail
---@return string[]
function M.context(usage)
  local count = require('pi_ls.numbers').count
  if not usage.contextWindow then
    return { '# Context', '', 'Unknown: no model, or a model whose window is not known.' }
  end
  local figure = require('pi_ls.status').figure(usage)
  local tokens = usage.tokens and count(usage.tokens)
    or ('unknown until the next answer; about %s'):format(count(usage.estimatedTokens or 0))
  local lines = {
    '# Context',
    '',
    row('Full', figure),
    row('Tokens', ('%s of %s'):format(tokens, count(usage.contextWindow))),
    row('How this is known', usage.source or ''),
  }
  if usage.thresholdTokens then
    local auto = not usage.autoCompactionEnabled and 'off'
      or usage.autoCompactionPaused and 'paused'
      or ('above %s tokens'):format(count(usage.thresholdTokens))
    table.insert(lines, row('Automatic compaction', auto))
  end
  if usage.cost and usage.cost > 0 then
    table.insert(lines, row('Cost so far', ('$%.4f'):format(usage.cost)))
  end
  local total = usage.tokens or usage.estimatedTokens or 0
  local function shares(title, items)
    table.sort(items, function(a, b)
      return a[2] ~= b[2] and a[2] > b[2] or a[2] == b[2] and a[1] < b[1]
    end)
    if #items > 0 then
      vim.list_extend(lines, { '', '## ' .. title, '' })
    end
    for _, item in ipairs(items) do
      local share = total > 0 and ('%3d%%'):format(100 * item[2] / total + 0.5) or ''
      table.insert(lines, row(item[1], ('%9s  %s'):format(count(item[2]), share)))
    end
  end
  local categories = {}
  for name, value in pairs(usage.categories or {}) do
    if value ~= 0 then
      table.insert(categories, { KINDS[name] or name, value })
    end
  end
  shares('By kind', categories)
  shares(
    'By file',
    vim.tbl_map(function(file)
      return { file.path, file.tokens }
    end, usage.files or {})
  )
  return lines
end

---@param stats table result of `pi.sessionStats`
---@param client vim.lsp.Client
---@return string[]
function M.stats(stats, client)
  local session = require('pi_ls.state').current(client.id)
  local count = require('pi_ls.numbers').count
  return {
    '# Session',
    '',
    row('Messages', count(stats.totalMessages)),
    row('  yours', count(stats.userMessages)),
    row('  the model’s', count(stats.assistantMessages)),
    row('Tool calls', count(stats.toolCalls)),
    row('Tokens in', count(stats.tokens.input)),
    row('Tokens out', count(stats.tokens.output)),
    row('Read from cache', count(stats.tokens.cacheRead)),
    row('Written to cache', count(stats.tokens.cacheWrite)),
    row('Cost', ('$%.4f'):format(stats.cost or 0)),
    row('File', session and session.info.sessionFile or 'none'),
  }
end

---Asks for a report and shows it.
---@param client vim.lsp.Client
---@param name string
---@param command string
---@param arguments? table
function M.show(client, name, command, arguments)
  require('pi_ls.client').command(client, command, arguments, function(err, result)
    if err then
      require('pi_ls.client').show_error(err)
      return
    end
    require('pi_ls.view').text(name, client, M[name](result, client))
  end)
end

return M
