// KafkaJS: see program.mjs for what it does.

import kafkajs from 'kafkajs'

import { PARTITIONS, RETENTION_MS, eventually, owns, read, run, settingsOf, tell, untilStdinEnds } from './program.mjs'

const { ConfigResourceTypes, Kafka, Partitioners, logLevel } = kafkajs

function connect (bootstrap) {
  return new Kafka({ brokers: [bootstrap], clientId: 'kafkajs', logLevel: logLevel.ERROR, retry: { initialRetryTime: 50 } })
}

async function admin (bootstrap, topic) {
  const admin = connect(bootstrap).admin()
  await admin.connect()
  const configEntries = [{ name: 'retention.ms', value: RETENTION_MS }]
  const wanted = { topics: [{ topic, numPartitions: PARTITIONS, replicationFactor: 1, configEntries }] }
  const created = await admin.createTopics(wanted)
  const again = await admin.createTopics(wanted)
  const { topics: [described] } = await admin.fetchTopicMetadata({ topics: [topic] })
  const resources = [{ type: ConfigResourceTypes.TOPIC, name: topic, configNames: ['retention.ms'] }]
  const { resources: [configured] } = await admin.describeConfigs({ includeSynonyms: false, resources })
  const ends = await admin.fetchTopicOffsets(topic)
  const { brokers } = await admin.describeCluster()
  await admin.deleteTopics({ topics: [topic] })
  await eventually(async () => !(await admin.listTopics()).includes(topic))
  await admin.disconnect()
  tell({
    created,
    createdAgain: again,
    partitions: described.partitions.map(each => each.partitionId).sort(),
    leaders: described.partitions.map(each => each.leader),
    retention: configured.configEntries[0].configValue,
    ends: ends.map(each => Number(each.high)),
    brokers: brokers.length
  })
}

async function produce (bootstrap, topic, count) {
  const producer = connect(bootstrap).producer({
    createPartitioner: Partitioners.DefaultPartitioner,
    idempotent: true,
    maxInFlightRequests: 1
  })
  await producer.connect()
  const messages = Array.from({ length: Number(count) }, (_, number) => ({
    key: `key-${number}`,
    value: `value-${number}`,
    headers: { number: String(number) }
  }))
  await producer.send({ topic, messages, acks: -1, compression: kafkajs.CompressionTypes.GZIP })
  await producer.disconnect()
}

async function member (bootstrap, groupId, topic, ...words) {
  const settings = settingsOf(words)
  const consumer = connect(bootstrap).consumer({
    groupId,
    sessionTimeout: Number(settings.session_ms),
    rebalanceTimeout: 10_000,
    heartbeatInterval: 300,
    maxWaitTimeInMs: 100
  })
  consumer.on(consumer.events.GROUP_JOIN, ({ payload }) => owns(payload.memberAssignment[topic] ?? []))
  await consumer.connect()
  await consumer.subscribe({ topics: [topic], fromBeginning: true })
  await consumer.run({
    autoCommit: false,
    eachMessage: async ({ partition, message }) => {
      await consumer.commitOffsets([{ topic, partition, offset: String(BigInt(message.offset) + 1n) }])
      read(partition, message.offset)
    }
  })
  await untilStdinEnds()
  await consumer.disconnect()
}

await run({ admin, produce, member })
