// @platformatic/kafka: see program.mjs for what it does.

import { Admin, Consumer, ProduceAcks, Producer, stringSerializers } from '@platformatic/kafka'

import { PARTITIONS, RETENTION_MS, eventually, owns, read, run, settingsOf, tell, untilStdinEnds } from './program.mjs'

const TOPIC_RESOURCE = 2

function to (bootstrap) {
  return { clientId: 'platformatic', bootstrapBrokers: [bootstrap], retryDelay: 50 }
}

async function admin (bootstrap, topic) {
  const admin = new Admin(to(bootstrap))
  const configs = [{ name: 'retention.ms', value: RETENTION_MS }]
  const wanted = { topics: [topic], partitions: PARTITIONS, replicas: 1, configs }
  const [created] = await admin.createTopics(wanted)
  const createdAgain = await admin.createTopics(wanted).then(() => true, () => false)
  const metadata = await admin.metadata({ topics: [topic], forceUpdate: true })
  const { partitions } = metadata.topics.get(topic)
  const resources = [{ resourceType: TOPIC_RESOURCE, resourceName: topic, configurationKeys: ['retention.ms'] }]
  const [configured] = await admin.describeConfigs({ resources })
  const asked = partitions.map((_, partitionIndex) => ({ partitionIndex, timestamp: -1n }))
  const [ends] = await admin.listOffsets({ topics: [{ name: topic, partitions: asked }] })
  await admin.deleteTopics({ topics: [topic] })
  await eventually(async () => !(await admin.listTopics()).includes(topic))
  await admin.close()
  tell({
    created: created.name === topic,
    createdAgain,
    partitions: partitions.map((_, index) => index),
    leaders: partitions.map(each => each.leader),
    retention: configured.configs[0].value,
    ends: ends.partitions.map(each => Number(each.offset)),
    brokers: metadata.brokers.size
  })
}

async function produce (bootstrap, topic, count) {
  const producer = new Producer({
    ...to(bootstrap),
    serializers: stringSerializers,
    acks: ProduceAcks.ALL,
    idempotent: true,
    compression: 'gzip'
  })
  const messages = Array.from({ length: Number(count) }, (_, number) => ({
    topic,
    key: `key-${number}`,
    value: `value-${number}`,
    headers: { number: String(number) }
  }))
  await producer.send({ messages })
  await producer.close()
}

async function member (bootstrap, groupId, topic, ...words) {
  const settings = settingsOf(words)
  const consumer = new Consumer({
    ...to(bootstrap),
    groupId,
    autocommit: false,
    maxWaitTime: 100,
    sessionTimeout: Number(settings.session_ms),
    rebalanceTimeout: 10_000,
    heartbeatInterval: 300
  })
  consumer.on('consumer:group:join', ({ assignments }) => {
    owns((assignments ?? []).filter(each => each.topic === topic).flatMap(each => each.partitions))
  })
  const stream = await consumer.consume({ topics: [topic], mode: 'committed', fallbackMode: 'earliest' })
  stream.on('data', async message => {
    await message.commit()
    read(message.partition, message.offset)
  })
  await untilStdinEnds()
  await consumer.close(true)
}

await run({ admin, produce, member })
