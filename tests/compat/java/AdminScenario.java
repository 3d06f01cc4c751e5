import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.concurrent.ExecutionException;
import java.util.stream.Collectors;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.CreateTopicsOptions;
import org.apache.kafka.clients.admin.DescribeClusterResult;
import org.apache.kafka.clients.admin.ListOffsetsResult.ListOffsetsResultInfo;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndTimestamp;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaFuture;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Walks through what Kafka's Admin and Consumer can ask a single node for, and prints "name TAB outcome" lines that the test
 * compares. An error is printed as its class's name.
 *
 * Arguments: bootstrap, and a prefix for topics.
 */
public final class AdminScenario {
    private static final long BASE_MS = 1_700_000_000_000L;

    private static Admin admin;
    private static String prefix;

    public static void main(String[] arguments) throws Exception {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", arguments[0]);
        prefix = arguments[1];
        admin = Admin.create(settings);
        try {
            cluster();
            create();
            offsets(arguments[0]);
            delete();
        } finally {
            admin.close(Duration.ofSeconds(5));
        }
    }

    private static void cluster() throws Exception {
        DescribeClusterResult cluster = admin.describeCluster();
        say("nodes", String.valueOf(cluster.nodes().get().size()));
        say("controller", String.valueOf(cluster.controller().get().id()));
        say("cluster id", String.valueOf(cluster.clusterId().get().length()));
    }

    private static void create() throws Exception {
        say("create", outcome(admin.createTopics(List.of(new NewTopic(prefix + "a", 3, (short) 1))).all()));
        say("create again", outcome(admin.createTopics(List.of(new NewTopic(prefix + "a", 3, (short) 1))).all()));
        say("create defaults",
                outcome(admin.createTopics(List.of(new NewTopic(prefix + "b", Optional.empty(), Optional.empty()))).all()));
        say("replication factor 2", outcome(admin.createTopics(List.of(new NewTopic(prefix + "c", 1, (short) 2))).all()));
        say("no partitions", outcome(admin.createTopics(List.of(new NewTopic(prefix + "c", 0, (short) 1))).all()));
        say("bad name", outcome(admin.createTopics(List.of(new NewTopic("bad/name", 1, (short) 1))).all()));
        say("dots", outcome(admin.createTopics(List.of(new NewTopic("..", 1, (short) 1))).all()));
        say("250 letters", outcome(admin.createTopics(List.of(new NewTopic("x".repeat(250), 1, (short) 1))).all()));
        NewTopic bad = new NewTopic(prefix + "c", 1, (short) 1).configs(Map.of("retention.ms", "soon"));
        say("bad config", outcome(admin.createTopics(List.of(bad)).all()));
        NewTopic unknown = new NewTopic(prefix + "c", 1, (short) 1).configs(Map.of("no.such.config", "1"));
        say("unknown config", outcome(admin.createTopics(List.of(unknown)).all()));
        CreateTopicsOptions validate = new CreateTopicsOptions().validateOnly(true);
        say("validate only", outcome(admin.createTopics(List.of(new NewTopic(prefix + "d", 1, (short) 1)), validate).all()));
        say("validated was not made", outcome(admin.describeTopics(List.of(prefix + "d")).allTopicNames()));
        int node = admin.describeCluster().nodes().get().iterator().next().id();
        Map<Integer, List<Integer>> manual = Map.of(0, List.of(node), 1, List.of(node));
        say("manual assignment", outcome(admin.createTopics(List.of(new NewTopic(prefix + "e", manual))).all()));
        Map<Integer, List<Integer>> nowhere = Map.of(0, List.of(77));
        say("assignment to nobody", outcome(admin.createTopics(List.of(new NewTopic(prefix + "f", nowhere))).all()));
        Map<Integer, List<Integer>> gap = Map.of(0, List.of(node), 2, List.of(node));
        say("assignment with a gap", outcome(admin.createTopics(List.of(new NewTopic(prefix + "f", gap))).all()));
        say("describe a", described(prefix + "a"));
        say("describe e", described(prefix + "e"));
        say("describe by id", describedById(prefix + "a"));
        say("describe unknown", outcome(admin.describeTopics(List.of(prefix + "nothing")).allTopicNames()));
        say("list", admin.listTopics().names().get().stream().filter(name -> name.startsWith(prefix)).sorted()
                .map(name -> name.substring(prefix.length())).collect(Collectors.joining(",")));
        say("more partitions", outcome(admin.createPartitions(Map.of(prefix + "a", NewPartitions.increaseTo(5))).all()));
        eventually("describe after more", () -> described(prefix + "a"), "5 partitions, leaders ok, replicas 1, isr 1");
        say("fewer partitions", outcome(admin.createPartitions(Map.of(prefix + "a", NewPartitions.increaseTo(2))).all()));
        say("partitions of unknown", outcome(admin.createPartitions(Map.of(prefix + "zz", NewPartitions.increaseTo(2))).all()));
    }

    private static void offsets(String bootstrap) throws Exception {
        TopicPartition part = new TopicPartition(prefix + "a", 0);
        Properties producing = new Properties();
        producing.put("bootstrap.servers", bootstrap);
        ByteArraySerializer raw = new ByteArraySerializer();
        try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(producing, raw, raw)) {
            long[] stamps = {10, 20, 90, 40, 50};
            for (long stamp : stamps) {
                producer.send(new ProducerRecord<>(part.topic(), 0, BASE_MS + stamp, null, ("" + stamp).getBytes())).get();
            }
        }
        say("earliest", listed(part, OffsetSpec.earliest()));
        say("latest", listed(part, OffsetSpec.latest()));
        say("max timestamp", listed(part, OffsetSpec.maxTimestamp()));
        say("for timestamp 15", listed(part, OffsetSpec.forTimestamp(BASE_MS + 15)));
        say("for timestamp 91", listed(part, OffsetSpec.forTimestamp(BASE_MS + 91)));
        say("empty max timestamp", listed(new TopicPartition(prefix + "a", 1), OffsetSpec.maxTimestamp()));
        Properties consuming = new Properties();
        consuming.put("bootstrap.servers", bootstrap);
        consuming.put("auto.offset.reset", "earliest");
        ByteArrayDeserializer unraw = new ByteArrayDeserializer();
        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(consuming, unraw, unraw)) {
            say("beginningOffsets", String.valueOf(consumer.beginningOffsets(List.of(part)).get(part)));
            say("endOffsets", String.valueOf(consumer.endOffsets(List.of(part)).get(part)));
            Map<TopicPartition, OffsetAndTimestamp> times = consumer.offsetsForTimes(Map.of(part, BASE_MS + 21));
            say("offsetsForTimes", times.get(part).offset() + " at " + (times.get(part).timestamp() - BASE_MS));
            say("partitionsFor", String.valueOf(consumer.partitionsFor(part.topic()).size()));
            say("listTopics", String.valueOf(consumer.listTopics().containsKey(part.topic())));
            consumer.assign(List.of(part));
            consumer.seek(part, 3);
            say("read from 3", values(consumer, 2));
            say("position", String.valueOf(consumer.position(part)));
            Map<TopicPartition, RecordsToDelete> upTo = Map.of(part, RecordsToDelete.beforeOffset(2));
            say("delete records", String.valueOf(admin.deleteRecords(upTo).all().get() == null));
            say("earliest after", listed(part, OffsetSpec.earliest()));
            Map<TopicPartition, RecordsToDelete> beyond = Map.of(part, RecordsToDelete.beforeOffset(99));
            say("delete beyond the end", outcome(admin.deleteRecords(beyond).all()));
            consumer.seek(part, 0);
            say("read below the start resets", values(consumer, 3));
            Map<TopicPartition, RecordsToDelete> all = Map.of(part, RecordsToDelete.beforeOffset(-1));
            say("delete all records", outcome(admin.deleteRecords(all).all()));
            say("earliest after all", listed(part, OffsetSpec.earliest()));
        }
    }

    private static void delete() throws Exception {
        Collection<String> mine = Arrays.asList(prefix + "a", prefix + "b");
        say("delete", outcome(admin.deleteTopics(mine).all()));
        say("delete again", outcome(admin.deleteTopics(List.of(prefix + "a")).all()));
        eventually("gone", () -> outcome(admin.describeTopics(List.of(prefix + "a")).allTopicNames()),
                "UnknownTopicOrPartitionException");
        say("create once more", outcome(admin.createTopics(List.of(new NewTopic(prefix + "a", 1, (short) 1))).all()));
        eventually("latest of the new one", () -> listed(new TopicPartition(prefix + "a", 0), OffsetSpec.latest()), "0");
    }

    private static String described(String topic) throws Exception {
        return words(admin.describeTopics(List.of(topic)).allTopicNames().get().get(topic));
    }

    private static String describedById(String topic) throws Exception {
        Uuid id = admin.describeTopics(List.of(topic)).allTopicNames().get().get(topic).topicId();
        return words(admin.describeTopics(org.apache.kafka.common.TopicCollection.ofTopicIds(List.of(id))).allTopicIds().get()
                .get(id));
    }

    private static String words(TopicDescription topic) {
        boolean led = topic.partitions().stream().allMatch(part -> part.leader() != null && part.leader().port() > 0);
        int replicas = topic.partitions().stream().mapToInt(part -> part.replicas().size()).max().getAsInt();
        int isr = topic.partitions().stream().mapToInt(part -> part.isr().size()).max().getAsInt();
        return topic.partitions().size() + " partitions, leaders " + (led ? "ok" : "missing") + ", replicas " + replicas
                + ", isr " + isr;
    }

    private static String listed(TopicPartition part, OffsetSpec spec) throws Exception {
        try {
            ListOffsetsResultInfo info = admin.listOffsets(Map.of(part, spec)).partitionResult(part).get();
            return String.valueOf(info.offset());
        } catch (ExecutionException failure) {
            return failure.getCause().getClass().getSimpleName();
        }
    }

    private static String values(KafkaConsumer<byte[], byte[]> consumer, int count) {
        List<String> seen = new ArrayList<>();
        long deadline = System.currentTimeMillis() + 20_000;
        while (seen.size() < count && System.currentTimeMillis() < deadline) {
            for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(100))) {
                seen.add(record.offset() + "=" + new String(record.value()));
            }
        }
        return String.join(" ", seen);
    }

    private static String outcome(KafkaFuture<?> future) throws Exception {
        try {
            future.get();
            return "ok";
        } catch (ExecutionException failure) {
            return failure.getCause().getClass().getSimpleName();
        }
    }

    private interface Question {
        String ask() throws Exception;
    }

    // Metadata reaches clients a moment after the change is made, on any broker.
    private static void eventually(String name, Question question, String wanted) throws Exception {
        String answer = question.ask();
        for (int tries = 0; tries < 100 && !answer.equals(wanted); tries++) {
            Thread.sleep(50);
            answer = question.ask();
        }
        say(name, answer);
    }

    private static void say(String name, String outcome) {
        System.out.println(name + "\t" + outcome);
    }

    private AdminScenario() {}
}
