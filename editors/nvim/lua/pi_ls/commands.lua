---`:PiLs`: one table of subcommands. Each loads what it needs when it is run.

local M = {}

---@class pi_ls.Arguments
---@field text string everything after the subcommand
---@field words string[]
---@field range? { [1]: integer, [2]: integer }
---@field bang boolean
---@field client vim.lsp.Client

---@class pi_ls.Subcommand
---@field summary string what it does, in a few words
---@field run fun(arguments: pi_ls.Arguments)
---@field complete? fun(lead: string): string[]
---@field alone? boolean works without a server
---@field more? string what it does nothing without

---@param ... string
---@return fun(lead: string): string[]
local function words(...)
  local list = { ... }
  return function(lead)
    return vim.tbl_filter(function(word)
      return vim.startswith(word, lead)
    end, list)
  end
end

---@param command string
---@param arguments? table
---@param told? fun(result: any): string?
---@return fun(arguments: pi_ls.Arguments)
local function simple(command, arguments, told)
  return function(given)
    local client = require('pi_ls.client')
    client.command(given.client, command, arguments, function(err, result)
      if err then
        client.show_error(err)
        return
      end
      local sentence = told and told(result)
      if sentence then
        require('pi_ls.notify').info(sentence)
      end
    end)
  end
end

---@param command 'pi.prompt'|'pi.steer'|'pi.followUp'
---@return fun(arguments: pi_ls.Arguments)
local function prompt(command)
  return function(given)
    local prompts = require('pi_ls.prompt')
    local selection = given.range
      and prompts.selection(0, given.range[1], given.range[2], given.client.root_dir)
    if given.text == '' then
      prompts.open(given.client, selection and selection .. '\n\n')
    else
      prompts.send(given.client, selection and selection .. '\n\n' .. given.text or given.text, command)
    end
  end
end

---@param given pi_ls.Arguments
local function compact(given)
  local client = require('pi_ls.client')
  local arguments = { customInstructions = given.text ~= '' and given.text or nil }
  client.command(given.client, 'pi.compact', arguments, function(err, result)
    if err then
      client.show_error(err)
      return
    end
    local count = require('pi_ls.numbers').count
    require('pi_ls.notify').info(
      ('compacted: %s → about %s tokens'):format(
        count(result.tokensBefore),
        count(result.estimatedTokensAfter)
      )
    )
  end)
end

---@param given pi_ls.Arguments
local function auto(given)
  local word = given.words[1]
  if word ~= 'on' and word ~= 'off' then
    require('pi_ls.client').command(given.client, 'pi.sessionState', nil, function(err, state)
      if err then
        require('pi_ls.client').show_error(err)
        return
      end
      local current = require('pi_ls.state').current(given.client.id)
      local paused = current and current.usage and current.usage.autoCompactionPaused
      local how = not state.autoCompactionEnabled and 'off' or paused and 'paused' or 'on'
      require('pi_ls.notify').info('automatic compaction is ' .. how)
    end)
    return
  end
  simple('pi.setAutoCompaction', { enabled = word == 'on' }, function(result)
    local enabled = result.autoCompactionEnabled and 'on' or 'off'
    local saved = result.notSaved and (' (%s)'):format(result.notSaved) or ''
    return 'automatic compaction is ' .. enabled .. saved
  end)(given)
end

---@param given pi_ls.Arguments
local function label(given)
  local session = require('pi_ls.state').current(given.client.id)
  local leaf = session and session.info.leafId
  if not leaf then
    require('pi_ls.notify').info('there is no entry to label')
    return
  end
  require('pi_ls.tree').label(given.client, leaf, given.text ~= '' and given.text or nil)
end

---@param given pi_ls.Arguments
local function open(given)
  if given.text == '' then
    require('pi_ls.sessions').select(given.client)
  elseif given.text:match('[/\\]') or given.text:match('%.jsonl$') then
    require('pi_ls.sessions').open(given.client, { path = vim.fs.abspath(vim.fn.expand(given.text)) })
  else
    require('pi_ls.sessions').open(given.client, { id = given.text })
  end
end

---@param lead string
---@return string[]
local function complete_session(lead)
  local result = require('pi_ls.client').ask('pi.listSessions', nil, 1000)
  local ids = vim.tbl_map(function(session)
    return session.id
  end, result and result.sessions or {})
  return vim.list_extend(words(unpack(ids))(lead), vim.fn.getcompletion(lead, 'file'))
end

---@param given pi_ls.Arguments
local function branch(given)
  if given.text == '-' then
    require('pi_ls.navigate').back(given.client)
  elseif given.text ~= '' then
    require('pi_ls.navigate').to(given.client, given.text)
  else
    require('pi_ls.navigate').select(given.client)
  end
end

---@param given pi_ls.Arguments
local function export(given)
  local format, path = given.words[1] or 'markdown', given.words[2]
  if format ~= 'markdown' and format ~= 'jsonl' then
    format, path = 'markdown', format
  end
  require('pi_ls.sessions').export(given.client, format, path)
end

---@param given pi_ls.Arguments
local function model(given)
  local models = require('pi_ls.models')
  if given.text == '' then
    models.select(given.client)
  else
    models.set(given.client, given.text)
  end
end

---@param given pi_ls.Arguments
local function thinking(given)
  local models = require('pi_ls.models')
  if given.text ~= '' then
    models.think(given.client, given.text)
    return
  end
  vim.ui.select(models.LEVELS, { prompt = 'Thinking level', kind = 'pi_ls_thinking' }, function(level)
    if level then
      models.think(given.client, level)
    end
  end)
end

---@param given pi_ls.Arguments
local function trust(given)
  simple('pi.setTrust', { trusted = given.words[1] ~= 'off' }, function(state)
    local saved = state.notSaved and (' (%s)'):format(state.notSaved) or ''
    return (state.trusted and 'this project is trusted' or 'this project is not trusted') .. saved
  end)(given)
end

---@param given pi_ls.Arguments
local function bash(given)
  local client = require('pi_ls.client')
  client.command(given.client, 'pi.bash', { command = given.text }, function(err, result)
    if err then
      client.show_error(err)
      return
    end
    local message = {
      role = 'bashExecution',
      command = given.text,
      output = result.output,
      exitCode = result.exitCode,
    }
    require('pi_ls.view').text('bash', given.client, require('pi_ls.render').message(message))
  end)
end

---@param given pi_ls.Arguments
local function unqueue(given)
  local client = require('pi_ls.client')
  client.command(given.client, 'pi.clearQueue', nil, function(err, result)
    if err then
      client.show_error(err)
      return
    end
    local texts = vim.list_extend(result.steering, result.followUp)
    if #texts == 0 then
      require('pi_ls.notify').info('nothing waits')
    else
      require('pi_ls.prompt').open(given.client, table.concat(texts, '\n\n'))
    end
  end)
end

---@param result table
---@return string
local function aborted(result)
  return result.aborted and 'stopped' or 'nothing was running'
end

---@type table<string, pi_ls.Subcommand>
M.subcommands = {
  abort = {
    summary = 'stop whatever runs in the session',
    run = simple('pi.abort', nil, aborted),
  },
  approve = {
    summary = 'answer what the agent asks',
    run = function(given)
      require('pi_ls.approval').approve(given.client, given.words[1])
    end,
    complete = words('once', 'session', 'always', 'no'),
  },
  auto = {
    summary = 'automatic compaction: on, off, or how it is',
    run = auto,
    complete = words('on', 'off'),
  },
  bash = { summary = 'run a shell command, and tell the agent', run = bash, more = 'a command' },
  branch = {
    summary = 'go to another branch or an earlier message; "-": back',
    run = branch,
    complete = words('-'),
  },
  clone = {
    summary = 'go on in a new session that holds the current path',
    run = simple('pi.cloneSession', nil, function(result)
      return ('cloned to %s'):format(result.session.name or result.session.sessionId)
    end),
  },
  close = { summary = 'close the session', run = simple('pi.closeSession') },
  compact = { summary = 'compact now; the rest is what the summary should keep', run = compact },
  context = {
    summary = 'what the context consists of',
    run = function(given)
      require('pi_ls.report').show(given.client, 'context', 'pi.contextUsage', { detail = true })
    end,
  },
  continue = { summary = 'let the agent go on', run = simple('pi.continue') },
  export = {
    summary = 'write the session to a file: [markdown|jsonl] [path]',
    run = export,
    complete = words('markdown', 'jsonl'),
  },
  followup = {
    summary = 'a prompt for when the agent has stopped',
    run = prompt('pi.followUp'),
    more = 'a text',
  },
  fork = {
    summary = 'a new session from before a message of yours',
    run = function(given)
      require('pi_ls.sessions').select_fork(given.client)
    end,
  },
  label = { summary = 'label the entry the session is at', run = label },
  log = {
    summary = 'the log of the server',
    alone = true,
    run = function()
      local path = vim.lsp.log.get_filename()
      vim.cmd.split { args = { vim.fn.fnameescape(path) } }
      vim.cmd.normal { 'G', bang = true }
    end,
  },
  model = {
    summary = 'the model: provider/id, or choose',
    run = model,
    complete = function(lead)
      return require('pi_ls.models').matching(lead)
    end,
  },
  new = {
    summary = 'begin a session; the rest is its name',
    run = function(given)
      require('pi_ls.sessions').new(given.client, given.text)
    end,
  },
  open = { summary = 'open a session by id or file', run = open, complete = complete_session },
  preview = {
    summary = 'what a compaction would do',
    run = function(given)
      local instructions = given.text ~= '' and given.text or nil
      local arguments = { customInstructions = instructions }
      require('pi_ls.report').show(given.client, 'preview', 'pi.previewCompaction', arguments)
    end,
  },
  prompt = { summary = 'ask the agent; with a range about those lines', run = prompt('pi.prompt') },
  prune = {
    summary = 'leave out old tool output',
    run = simple('pi.pruneToolOutputs', nil, function(result)
      return ('%d results left out, %s tokens saved'):format(
        result.prunedCount,
        require('pi_ls.numbers').count(result.tokensSaved)
      )
    end),
  },
  restore = {
    summary = 'bring back tool output that was left out',
    run = simple('pi.restorePruned', nil, function(result)
      return ('%d results are back'):format(result.restoredCount)
    end),
  },
  reload = {
    summary = 'read the settings again',
    run = simple('pi.reloadSettings', nil, function(result)
      return ('settings read, %d problems'):format(#(result.problems or {}))
    end),
  },
  rename = {
    summary = 'name the session',
    run = function(given)
      require('pi_ls.sessions').rename(given.client, given.text)
    end,
  },
  restart = {
    summary = 'stop the server and start it anew',
    alone = true,
    run = function()
      require('pi_ls.client').restart()
    end,
  },
  sessions = {
    summary = 'choose a session of this project; with ! of any',
    run = function(given)
      require('pi_ls.sessions').select(given.client, given.text, given.bang)
    end,
  },
  stats = {
    summary = 'messages, tokens and cost of the whole session',
    run = function(given)
      require('pi_ls.report').show(given.client, 'stats', 'pi.sessionStats')
    end,
  },
  steer = { summary = 'tell the agent something while it works', run = prompt('pi.steer'), more = 'a text' },
  thinking = {
    summary = 'the thinking level',
    run = thinking,
    complete = function(lead)
      return words(unpack(require('pi_ls.models').LEVELS))(lead)
    end,
  },
  transcript = {
    summary = 'the conversation, as it goes on',
    run = function(given)
      require('pi_ls.transcript').open(given.client)
    end,
  },
  tree = {
    summary = 'the session’s tree',
    run = function(given)
      require('pi_ls.tree').open(given.client)
    end,
  },
  trust = {
    summary = 'trust this project: its own settings and extensions; off: do not',
    run = trust,
    complete = words('on', 'off'),
  },
  unqueue = { summary = 'take back what waits to be said, into the prompt', run = unqueue },
  undo = {
    summary = 'take the last compaction back',
    run = simple('pi.undoCompaction', nil, function(result)
      local left = result.entriesLeft or 0
      local note = left > 0 and (' %d later entries are on a branch now.'):format(left) or ''
      return 'the compaction is undone.' .. note .. ' Back: :PiLs branch -'
    end),
  },
}

---@return string[]
function M.names()
  local names = vim.tbl_keys(M.subcommands)
  table.sort(names)
  return names
end

---Asks for a subcommand; one that needs more than its name is put into the command line.
local function menu()
  vim.ui.select(M.names(), {
    prompt = 'PiLs',
    kind = 'pi_ls_menu',
    format_item = function(name)
      return ('%-10s  %s'):format(name, M.subcommands[name].summary)
    end,
  }, function(name)
    if name and M.subcommands[name].more then
      vim.api.nvim_feedkeys(':PiLs ' .. name .. ' ', 'n', false)
    elseif name then
      vim.cmd.PiLs(name)
    end
  end)
end

---@param command vim.api.keyset.create_user_command.command_args
function M.run(command)
  local name, text = command.args:match('^(%S*)%s*(.-)%s*$')
  local subcommand = M.subcommands[name]
  if name == '' then
    menu()
    return
  elseif not subcommand then
    require('pi_ls.notify').error(('there is no :PiLs %s; :PiLs alone shows what there is'):format(name))
    return
  elseif subcommand.more and text == '' then
    require('pi_ls.notify').error((':PiLs %s needs %s'):format(name, subcommand.more))
    return
  end
  ---@type pi_ls.Arguments
  local arguments = {
    text = text,
    words = vim.split(text, '%s+', { trimempty = true }),
    bang = command.bang,
    range = command.range > 0 and { command.line1, command.line2 } or nil,
  }
  if subcommand.alone then
    subcommand.run(arguments)
    return
  end
  require('pi_ls.client').ensure(nil, function(client)
    arguments.client = client
    subcommand.run(arguments)
  end)
end

---@param lead string
---@param line string
---@return string[]
function M.complete(lead, line)
  local name = line:match("^['<,>%d%%.$]*PiLs!?%s+(%S+)%s")
  if not name then
    return words(unpack(M.names()))(lead)
  end
  local subcommand = M.subcommands[name]
  return subcommand and subcommand.complete and subcommand.complete(lead) or {}
end

return M
