import java.io.IOException;
import java.time.Duration;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeSet;
import java.util.stream.Collectors;
import org.apache.kafka.clients.consumer.CommitFailedException;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.consumer.RetriableCommitFailedException;
import org.apache.kafka.clients.consumer.SubscriptionPattern;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.RebalanceInProgressException;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/** tests/compat/group_member.py in Java: bootstrap group topic name=value...; any name is a client's property. A topic that begins with ^ is an
 * expression, which the broker matches. */
public final class GroupMember {
    private static volatile boolean stopping = false;
    private static String owned = null;

    public static void main(String[] arguments) throws Exception {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", arguments[0]);
        properties.put("group.id", arguments[1]);
        properties.put("auto.offset.reset", "earliest");
        properties.put("enable.auto.commit", "false");
        properties.put("key.deserializer", ByteArrayDeserializer.class.getName());
        properties.put("value.deserializer", ByteArrayDeserializer.class.getName());
        for (String setting : Arrays.asList(arguments).subList(3, arguments.length)) {
            int equals = setting.indexOf('=');
            properties.put(setting.substring(0, equals), setting.substring(equals + 1));
        }
        Thread listener = new Thread(GroupMember::listen);
        listener.setDaemon(true);
        listener.start();
        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(properties)) {
            if (arguments[2].startsWith("^")) {
                consumer.subscribe(new SubscriptionPattern(arguments[2]));
            } else {
                consumer.subscribe(List.of(arguments[2]));
            }
            while (!stopping) {
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(50))) {
                    TopicPartition partition = new TopicPartition(record.topic(), record.partition());
                    try {
                        consumer.commitSync(Map.of(partition, new OffsetAndMetadata(record.offset() + 1)));
                    } catch (CommitFailedException | RebalanceInProgressException | RetriableCommitFailedException lost) {
                        break;
                    }
                    System.out.println("read " + record.partition() + " " + record.offset());
                }
                say(consumer);
            }
        }
    }

    private static void say(KafkaConsumer<byte[], byte[]> consumer) {
        TreeSet<Integer> partitions =
            consumer.assignment().stream().map(TopicPartition::partition).collect(Collectors.toCollection(TreeSet::new));
        String now = partitions.stream().map(String::valueOf).collect(Collectors.joining(","));
        if (!now.equals(owned)) {
            owned = now;
            System.out.println("owns " + now);
        }
    }

    private static void listen() {
        try {
            while (System.in.read() >= 0) {
                continue;
            }
        } catch (IOException closed) {
            // As good as its end.
        }
        stopping = true;
    }
}
