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

---Fetches the whole tree, page by page.
---@param client vim.lsp.Client
---@param arguments table `filter`, `query`, `sessionId`
---@param callback fun(nodes?: pi_ls.Node[], err?: lsp.ResponseError) once, with all of it or what is wrong
---@param on_page? fun(nodes: pi_ls.Node[]) after each page but the last: what there is so far
function M.fetch(client, arguments, callback, on_page)
  local nodes = {} ---@type pi_ls.Node[]
  local function page(cursor)
    local asked = vim.tbl_extend('force', arguments, { cursor = cursor })
    local sent = require('pi_ls.client').command(client, 'pi.getTree', asked, function(err, result)
      if err then
        callback(nil, err)
        return
      end
      vim.list_extend(nodes, result.nodes)
      if result.hasMore and result.cursor ~= nil then
        if on_page then
          on_page(nodes)
        end
        page(result.cursor)
      else
        callback(nodes)
      end
    end)
    if not sent then
      callback(nil)
    end
  end
  page(nil)
end

---Fetches the whole tree; what goes wrong is shown.
---@param client vim.lsp.Client
---@param arguments table
---@param callback fun(nodes: pi_ls.Node[])
function M.all(client, arguments, callback)
  M.fetch(client, arguments, function(nodes, err)
    if nodes then
      callback(nodes)
    elseif err then
      require('pi_ls.client').show_error(err)
    end
  end)
end

---@class pi_ls.Row a line of the tree
---@field node pi_ls.Node
---@field depth integer 0 for the path
---@field begins boolean whether a branch begins here

---@param nodes pi_ls.Node[]
---@return table<string, pi_ls.Node[]> children by parent; those of no parent that is shown under ''
---@return table<string, integer> how many nodes each one's branch holds, itself included
local function family(nodes)
  local known, children, sizes = {}, {}, {}
  for _, node in ipairs(nodes) do
    known[node.id] = true
  end
  for _, node in ipairs(nodes) do
    local parent = node.parentId and known[node.parentId] and node.parentId or ''
    children[parent] = children[parent] or {}
    table.insert(children[parent], node)
  end
  for index = #nodes, 1, -1 do
    local node = nodes[index]
    sizes[node.id] = (sizes[node.id] or 0) + 1
    local parent = node.parentId
    if parent and known[parent] then
      sizes[parent] = (sizes[parent] or 0) + sizes[node.id]
    end
  end
  return children, sizes
end

---The one of some siblings that goes on at the same level: that on the path, else the one with most below.
---@param siblings pi_ls.Node[]
---@param sizes table<string, integer>
---@return pi_ls.Node
local function continuation(siblings, sizes)
  local best = siblings[1]
  for _, node in ipairs(siblings) do
    if node.onPath then
      return node
    elseif sizes[node.id] >= sizes[best.id] then
      best = node
    end
  end
  return best
end

---The tree as a person reads it: a talk is a flat list, and a branch beside it stands one level deeper, right
---after the entry it left. So the path is never indented, however often the talk forked, and no branch is
---deeper than the logarithm of the tree's size.
---@param nodes pi_ls.Node[] depth first, each after its parent
---@return pi_ls.Row[]
function M.arrange(nodes)
  local children, sizes = family(nodes)
  local rows = {} ---@type pi_ls.Row[]
  local pending = {} ---@type pi_ls.Row[]
  local function push(parent, depth)
    local followers = children[parent]
    if not followers then
      return
    end
    local next_one = continuation(followers, sizes)
    table.insert(pending, { node = next_one, depth = depth, begins = false })
    for index = #followers, 1, -1 do
      local node = followers[index]
      if node ~= next_one then
        table.insert(pending, { node = node, depth = depth + 1, begins = true })
      end
    end
  end
  push('', 0)
  while #pending > 0 do
    local row = table.remove(pending) --[[@as pi_ls.Row]]
    table.insert(rows, row)
    push(row.node.id, row.depth)
  end
  return rows
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
