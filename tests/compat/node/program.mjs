// What the programs in this folder have in common: modes, a voice on stdout, and an ear for the end of stdin.
//
//   admin BOOTSTRAP TOPIC                  creates the topic, asks for it, deletes it; prints what it saw as one JSON object
//   produce BOOTSTRAP TOPIC COUNT          sends records `key-N` → `value-N`
//   member BOOTSTRAP GROUP TOPIC name=…    a member of a group, in the words of tests/compat/group_member.py

export const PARTITIONS = 3
export const RETENTION_MS = '3600000'

export async function run (modes) {
  const [mode, ...words] = process.argv.slice(2)
  await modes[mode](...words)
}

export function tell (value) {
  console.log(JSON.stringify(value))
}

export function settingsOf (words) {
  return Object.fromEntries(words.map(word => word.split('=')))
}

export function owns (partitions) {
  console.log('owns', [...partitions].sort((a, b) => a - b).join(','))
}

export function read (partition, offset) {
  console.log('read', partition, String(offset))
}

export function untilStdinEnds () {
  return new Promise(resolve => process.stdin.on('end', resolve).resume())
}

export async function eventually (holds, timeoutMs = 15_000) {
  const deadline = Date.now() + timeoutMs
  while (!(await holds())) {
    if (Date.now() > deadline) throw new Error(`never came true: ${holds}`)
    await new Promise(resolve => setTimeout(resolve, 20))
  }
}
