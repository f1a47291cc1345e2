---The session's tree as nodes, and the questions asked of it. Fetches; shows nothing.

---@class pi_ls.Node one node of `pi.getTree`
---@field id string
---@field parentId? string
---@field type string
---@field role? string
---@field text string
---@field label? string
---@field timestamp string|number
---@field tokens number
---@field childCount integer
---@field onPath boolean
---@field isLeaf boolean
---@field orphan? boolean

local M = {}

---@alias pi_ls.OnPage fun(nodes: pi_ls.Node[], is_last: boolean)

---Fetches the whole tree; calls back with each page as it comes, in order.
---@param client vim.lsp.Client
---@param arguments table `filter`, `query`, `sessionId`
---@param on_page pi_ls.OnPage
---@param on_error? fun()
function M.fetch(client, arguments, on_page, on_error)
  local function page(cursor)
    local asked = vim.tbl_extend('force', arguments, { cursor = cursor })
    require('pi_ls.client').command(client, 'pi.getTree', asked, function(err, result)
      if err then
        require('pi_ls.client').show_error(err)
        if on_error then
          on_error()
        end
        return
      end
      local has_more = result.hasMore and result.cursor ~= nil
      on_page(result.nodes, not has_more)
      if has_more then
        page(result.cursor)
      end
    end)
  end
  page(nil)
end

---Fetches the whole tree; calls back once.
---@param client vim.lsp.Client
---@param arguments table
---@param callback fun(nodes: pi_ls.Node[])
function M.all(client, arguments, callback)
  local nodes = {} ---@type pi_ls.Node[]
  M.fetch(client, arguments, function(page, is_last)
    vim.list_extend(nodes, page)
    if is_last then
      callback(nodes)
    end
  end)
end

---@class pi_ls.Placer knows the nodes it was given before
---@field private depths table<string, integer>
---@field private children table<string, integer>
local Placer = {}
Placer.__index = Placer

---@return pi_ls.Placer
function M.placer()
  return setmetatable({ depths = {}, children = {} }, Placer)
end

---How deep the next node lies, and whether it begins a branch.
---Only real forks count: a line of talk stays flat.
---@param node pi_ls.Node
---@return integer depth
---@return boolean begins
function Placer:place(node)
  local parent = node.parentId
  local begins = parent ~= nil and (self.children[parent] or 0) > 1
  local depth = (parent and self.depths[parent] or 0) + (begins and 1 or 0)
  self.depths[node.id], self.children[node.id] = depth, node.childCount
  return depth, begins
end

---The ends of the branches that are left aside, newest first.
---@param nodes pi_ls.Node[]
---@return pi_ls.Node[]
function M.other_tips(nodes)
  local tips = vim.tbl_filter(function(node)
    return node.childCount == 0 and not node.onPath
  end, nodes)
  local seconds = require('pi_ls.numbers').seconds
  table.sort(tips, function(a, b)
    local one, other = seconds(a.timestamp) or 0, seconds(b.timestamp) or 0
    return one ~= other and one > other or one == other and a.id > b.id
  end)
  return tips
end

---What the user said on the current path, newest first.
---@param nodes pi_ls.Node[]
---@return pi_ls.Node[]
function M.own_messages(nodes)
  local own = {}
  for _, node in ipairs(nodes) do
    if node.onPath and node.role == 'user' then
      table.insert(own, 1, node)
    end
  end
  return own
end

---@param node pi_ls.Node
---@return string
function M.kind(node)
  local kinds = { toolResult = 'tool', bashExecution = 'bash' }
  local role = node.role and (kinds[node.role] or node.role)
  return role or (node.type == 'branch_summary' and 'branch') or node.type:gsub('_.*', '')
end

return M
