---Choosing, making and leaving sessions.

local M = {}

---@param state table session state
---@param how string
local function told(state, how)
  local title = require('pi_ls.state').title { id = state.sessionId, info = state }
  require('pi_ls.notify').info(('%s %s'):format(how, title))
end

---@param session table row of `pi.listSessions`
---@param everywhere boolean
---@return string
local function describe(session, everywhere)
  local numbers = require('pi_ls.numbers')
  local title = session.name or session.firstMessage
  title = title and title ~= '' and title:gsub('%s+', ' ') or session.id
  local details = { ('%d messages'):format(session.messageCount), numbers.ago(session.modified) }
  if everywhere and session.cwd then
    table.insert(details, 1, vim.fn.fnamemodify(session.cwd, ':~'))
  end
  return ('%s  (%s)'):format(vim.fn.strcharpart(title, 0, 70), table.concat(details, ', '))
end

---Asks which of the project's sessions to open.
---@param client vim.lsp.Client
---@param query? string
---@param everywhere? boolean those of every project
function M.select(client, query, everywhere)
  local arguments = { query = query ~= '' and query or nil, all = everywhere or nil }
  require('pi_ls.client').command(client, 'pi.listSessions', arguments, function(err, result)
    if err then
      require('pi_ls.client').show_error(err)
      return
    elseif #result.sessions == 0 then
      require('pi_ls.notify').info(
        query and query ~= '' and 'no session matches'
          or everywhere and 'there is no session yet'
          or 'this project has no session yet; :PiLs new begins one'
      )
      return
    end
    vim.ui.select(result.sessions, {
      prompt = 'Session',
      kind = 'pi_ls_session',
      format_item = function(session)
        return describe(session, everywhere == true)
      end,
    }, function(session)
      if session then
        M.open(client, { path = session.path })
      end
    end)
  end)
end

---@param client vim.lsp.Client
---@param which { path?: string, id?: string }
function M.open(client, which)
  require('pi_ls.client').command(client, 'pi.openSession', which, function(err, state)
    if err then
      require('pi_ls.client').show_error(err)
    else
      told(state, 'opened')
    end
  end)
end

---@param client vim.lsp.Client
---@param name? string
function M.new(client, name)
  local arguments = { name = name ~= '' and name or nil }
  require('pi_ls.client').command(client, 'pi.newSession', arguments, function(err, state)
    if err then
      require('pi_ls.client').show_error(err)
    else
      told(state, 'began')
    end
  end)
end

---@param client vim.lsp.Client
---@param name? string nil or '': ask
function M.rename(client, name)
  local function set(text)
    if text and vim.trim(text) ~= '' then
      require('pi_ls.client').command(client, 'pi.setSessionName', { name = text })
    end
  end
  if name and name ~= '' then
    set(name)
    return
  end
  local session = require('pi_ls.state').current(client.id)
  vim.ui.input({ prompt = 'Name of the session: ', default = session and session.info.name or '' }, set)
end

---A new session from before a message of the user, whose text goes to the prompt.
---@param client vim.lsp.Client
---@param entry_id string
function M.fork(client, entry_id)
  require('pi_ls.client').command(client, 'pi.forkSession', { entryId = entry_id }, function(err, result)
    if err then
      require('pi_ls.client').show_error(err)
      return
    end
    told(result.session, 'forked to')
    if result.text and result.text ~= '' then
      require('pi_ls.prompt').open(client, result.text)
    end
  end)
end

---Asks before which message to fork.
---@param client vim.lsp.Client
function M.select_fork(client)
  local outline = require('pi_ls.outline')
  outline.all(client, { filter = 'user-only' }, function(nodes)
    local items = outline.own_messages(nodes)
    if #items == 0 then
      require('pi_ls.notify').info('there is no message to fork from')
      return
    end
    vim.ui.select(items, {
      prompt = 'Fork before',
      kind = 'pi_ls_fork',
      format_item = function(node)
        return node.text
      end,
    }, function(node)
      if node then
        M.fork(client, node.id)
      end
    end)
  end)
end

---@param client vim.lsp.Client
---@param format string
---@param path? string
function M.export(client, format, path)
  local arguments = { format = format, path = path and vim.fs.abspath(vim.fn.expand(path)) or nil }
  require('pi_ls.client').command(client, 'pi.exportSession', arguments, function(err, result)
    if err then
      require('pi_ls.client').show_error(err)
    else
      require('pi_ls.notify').info(('exported to %s'):format(result.path))
    end
  end)
end

return M
