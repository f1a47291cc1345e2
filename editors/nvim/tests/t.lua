---What the tests are written with. A test fails on an error of its own and on one in any handler.

local T = { passed = 0, failed = 0, messages = {} }

---Every message the plugin showed, newest last.
vim.notify = function(message)
  table.insert(T.messages, message)
end

---Waits until `condition` gives something, and returns it.
function T.wait(what, condition, ms)
  local value
  local done = vim.wait(ms or 20000, function()
    value = condition()
    return value
  end, 10)
  if not done then
    error(('timed out: %s\nmessages: %s'):format(what, vim.inspect(T.messages)), 2)
  end
  return value
end

function T.eq(want, got)
  if not vim.deep_equal(want, got) then
    error(('want %s, got %s'):format(vim.inspect(want), vim.inspect(got)), 2)
  end
end

function T.ok(value, what)
  if not value then
    error(what or 'not true', 2)
  end
  return value
end

---Waits for a message that matches the Lua pattern.
function T.message(pattern, ms)
  return T.wait('message ' .. pattern, function()
    for _, message in ipairs(T.messages) do
      if message:match(pattern) then
        return message
      end
    end
  end, ms)
end

---Answers the next `vim.ui.select`: a function from (items, options) to the item, or a text to look for.
function T.choose(how)
  local seen = {}
  vim.ui.select = function(items, options, on_choice)
    seen.items, seen.options, seen.shown = items, options, vim.tbl_map(options.format_item or tostring, items)
    local choice
    if type(how) == 'function' then
      choice = how(items, options)
    else
      for index, text in ipairs(seen.shown) do
        if how and not choice and text:find(how, 1, true) then
          choice = items[index]
        end
      end
    end
    vim.schedule(function()
      on_choice(choice)
    end)
  end
  return seen
end

---Answers the next `vim.ui.input`.
function T.type(text)
  vim.ui.input = function(_, on_confirm)
    vim.schedule(function()
      on_confirm(text)
    end)
  end
end

---Counts the `User` autocommands of a pattern.
function T.count(pattern)
  local events = {}
  vim.api.nvim_create_autocmd('User', {
    pattern = pattern,
    callback = function(event)
      table.insert(events, event.data)
    end,
  })
  return events
end

function T.test(name, body)
  T.messages = {}
  vim.v.errmsg = ''
  local ok, err = xpcall(body, debug.traceback)
  if ok and vim.v.errmsg ~= '' then
    ok, err = false, 'error outside the test: ' .. vim.v.errmsg
  end
  T[ok and 'passed' or 'failed'] = T[ok and 'passed' or 'failed'] + 1
  io.stdout:write(('%s %s\n%s'):format(ok and 'ok  ' or 'FAIL', name, ok and '' or err .. '\n'))
  io.stdout:flush()
end

function T.finish()
  for _, client in ipairs(vim.lsp.get_clients()) do
    client:stop()
  end
  vim.wait(5000, function()
    return #vim.lsp.get_clients() == 0
  end, 20)
  io.stdout:write(('%d passed, %d failed\n'):format(T.passed, T.failed))
  io.stdout:flush()
  if T.failed > 0 or T.passed == 0 then
    vim.cmd.cquit { count = 1 }
  end
end

return T
