---Figures as people read them.

local M = {}

---12345 → "12,345"
---@param value number
---@return string
function M.count(value)
  local digits = ('%d'):format(math.floor(value + 0.5))
  local grouped = digits:reverse():gsub('(%d%d%d)', '%1,'):reverse()
  return (grouped:gsub('^(-?),', '%1'))
end

---340 → "340", 12345 → "12k"
---@param value number
---@return string
function M.short(value)
  if value < 1000 then
    return ('%d'):format(value)
  elseif value < 10000 then
    return ('%.1fk'):format(value / 1000)
  elseif value < 1000000 then
    return ('%dk'):format(math.floor(value / 1000 + 0.5))
  end
  return ('%.1fM'):format(value / 1000000)
end

---Seconds since 1970 of what an entry has as its time: ISO 8601, or milliseconds.
---@param timestamp string|number|nil
---@return integer?
function M.seconds(timestamp)
  if type(timestamp) == 'number' then
    return math.floor(timestamp / 1000)
  end
  local year, month, day, hour, minute, second =
    tostring(timestamp or ''):match('^(%d%d%d%d)%-(%d%d)%-(%d%d)T(%d%d):(%d%d):(%d%d)')
  if not year then
    return
  end
  local utc = os.time {
    year = tonumber(year) or 1970,
    month = tonumber(month) or 1,
    day = tonumber(day) or 1,
    hour = tonumber(hour),
    min = tonumber(minute),
    sec = tonumber(second),
    isdst = false,
  }
  local now = os.time()
  local shown = os.date('!*t', now) --[[@as osdateparam]]
  shown.isdst = false
  return utc + os.difftime(now, os.time(shown))
end

---"5 min ago", or the date once it is older than a week.
---@param timestamp string|number|nil
---@param now? integer
---@return string
function M.ago(timestamp, now)
  local seconds = M.seconds(timestamp)
  if not seconds then
    return ''
  end
  local age = (now or os.time()) - seconds
  if age < 60 then
    return 'just now'
  elseif age < 3600 then
    return ('%d min ago'):format(age / 60)
  elseif age < 86400 then
    return ('%d h ago'):format(age / 3600)
  elseif age < 7 * 86400 then
    return ('%d d ago'):format(age / 86400)
  end
  return os.date('%Y-%m-%d', seconds) --[[@as string]]
end

return M
