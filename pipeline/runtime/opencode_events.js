// Tells what happens in a session, one JSON object a line, on descriptor 3. It
// is a plugin of the CLI: what the CLI prints by itself leaves out words on
// their way, requests that are sent again, and tools that run.
import { writeSync } from "node:fs"

const longest = 8192 // characters of a tool's result
const beat = 300 // milliseconds between two pieces of a text, or two signs of life

const cut = (text) => (text.length > longest ? text.slice(0, longest) + "…" : text)

const say = (session, kind, more) => {
  let rest = Buffer.from(JSON.stringify({ session, kind, ...more }) + "\n")
  while (rest.length > 0) rest = rest.subarray(writeSync(3, rest))
}

export const Events = async () => {
  const answers = new Set() // ids of the model's messages
  const kinds = new Map() // id of a text → text or thinking
  const streamed = new Set() // ids of texts that came in pieces
  const running = new Set() // ids of tool calls that were told of
  let held = { text: "" }
  let lastBeat = 0

  const flush = () => {
    clearTimeout(held.timer)
    if (held.text !== "") say(held.session, held.kind, { text: held.text })
    held = { text: "" }
  }
  const piece = (session, part, text) => {
    const kind = kinds.get(part)
    if (kind === undefined) return
    if (held.kind !== kind) flush()
    streamed.add(part)
    held.session = session
    held.kind = kind
    held.text += text
    held.timer ??= setTimeout(flush, beat)
  }
  const words = (session, part, kind) => {
    kinds.set(part.id, kind)
    if (part.time?.end === undefined) return
    if (!streamed.has(part.id)) piece(session, part.id, part.text)
    flush()
    say(session, "said", { text: kind === "text" ? part.text : "" })
  }
  const tool = (session, part) => {
    const { status, input, output, error } = part.state
    if (status === "pending") return
    if (!running.has(part.callID)) {
      running.add(part.callID)
      flush()
      say(session, "call", { tool: part.tool, input })
    }
    if (status === "completed") say(session, "result", { tool: part.tool, text: cut(output) })
    if (status === "error") say(session, "result", { tool: part.tool, text: cut(error), failed: true })
    if (status === "running" && Date.now() - lastBeat > beat) {
      lastBeat = Date.now()
      say(session, "alive")
    }
  }
  const updated = (session, part) => {
    if (!answers.has(part.messageID)) return
    switch (part.type) {
      case "text":
        return words(session, part, "text")
      case "reasoning":
        return words(session, part, "thinking")
      case "tool":
        return tool(session, part)
      case "step-start":
        return say(session, "begin")
      case "step-finish":
        flush()
        return say(session, "step", { reason: part.reason, cost: part.cost, tokens: part.tokens })
    }
  }
  return {
    event: async ({ event: { type, properties: p } }) => {
      switch (type) {
        case "message.updated":
          if (p.info.role === "assistant") answers.add(p.info.id)
          return
        case "message.part.delta":
          return piece(p.sessionID, p.partID, p.delta)
        case "message.part.updated":
          return updated(p.part.sessionID, p.part)
        case "session.created":
          return say(p.info.id, "alive")
        case "session.status":
          if (p.status.type === "retry") say(p.sessionID, "retry", { attempt: p.status.attempt, text: p.status.message, next: p.status.next })
          if (p.status.type === "idle") say(p.sessionID, "idle")
          return
        case "session.error":
          return say(p.sessionID, "error", { error: p.error })
      }
    },
  }
}
