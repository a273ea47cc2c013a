-- Health of a MetricsBackend for Argo CD.
--
-- Healthy only when the operator has seen the current spec and Ready is True.
-- Degraded when it needs a hand (Stalled), or when it tried and it does not work
-- (Ready is False). Everything else is under way.

local function progressing(message)
  return { status = "Progressing", message = message }
end

if obj.metadata.deletionTimestamp ~= nil then
  return progressing("Being deleted: versions leave discovery before anything stops serving them")
end

local status = obj.status
if status == nil or status.conditions == nil then
  return progressing("Waiting for the operator")
end
if status.observedGeneration ~= obj.metadata.generation then
  return progressing("Waiting for the operator to see generation " .. tostring(obj.metadata.generation))
end

local conditions = {}
for _, condition in ipairs(status.conditions) do
  conditions[condition.type] = condition
end

local stalled = conditions["Stalled"]
if stalled ~= nil and stalled.status == "True" then
  return { status = "Degraded", message = stalled.reason .. ": " .. stalled.message }
end

local ready = conditions["Ready"]
if ready == nil then
  return progressing("Waiting for the operator")
end
-- It may speak of a generation before.
if ready.observedGeneration ~= obj.metadata.generation then
  return progressing("Waiting for Ready of generation " .. tostring(obj.metadata.generation))
end
if ready.status == "True" then
  return { status = "Healthy", message = ready.message }
end
if ready.status == "False" then
  return { status = "Degraded", message = ready.reason .. ": " .. ready.message }
end
return progressing(ready.message)
