import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;
import org.apache.kafka.tools.ProducerPerformance;

/**
 * Runs Kafka's own load tools again and again in one warm JVM, so that a measurement of a second is not mostly the start of a
 * client. Commands come as lines of tab-separated words; each is answered with what the tool printed and a line "done" or
 * "failed".
 *
 * produce: the words are the arguments of kafka-producer-perf-test.
 * transactions bootstrap topic id count: commits so many of one record each.
 * consume bootstrap topic partitions records name=value...: reads with assign(), which needs no consumer group.
 */
public final class LoadDriver {
    private static final long GIVE_UP_MS = 120_000;

    public static void main(String[] arguments) throws Exception {
        PrintStream out = System.out;
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            List<String> words = new ArrayList<>(Arrays.asList(line.split("\t")));
            String command = words.remove(0);
            ByteArrayOutputStream said = new ByteArrayOutputStream();
            System.setOut(new PrintStream(said, true));
            String outcome = "done";
            try {
                if (command.equals("produce")) {
                    ProducerPerformance.main(words.toArray(new String[0]));
                } else if (command.equals("transactions")) {
                    transactions(words);
                } else {
                    consume(words);
                }
            } catch (Exception failure) {
                failure.printStackTrace(System.out);
                outcome = "failed";
            }
            System.out.flush();
            out.print(said);
            out.println(outcome);
            out.flush();
        }
    }

    private static void transactions(List<String> words) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", words.get(0));
        settings.put("transactional.id", words.get(2));
        settings.put("linger.ms", "0");
        ByteArraySerializer raw = new ByteArraySerializer();
        byte[] value = new byte[100];
        try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(settings, raw, raw)) {
            producer.initTransactions();
            for (int number = 0; number < Integer.parseInt(words.get(3)); number++) {
                producer.beginTransaction();
                producer.send(new ProducerRecord<>(words.get(1), 0, null, value));
                producer.commitTransaction();
            }
        }
    }

    private static void consume(List<String> words) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", words.get(0));
        settings.put("enable.auto.commit", "false");
        settings.put("auto.offset.reset", "earliest");
        for (String setting : words.subList(4, words.size())) {
            int equals = setting.indexOf('=');
            settings.put(setting.substring(0, equals), setting.substring(equals + 1));
        }
        List<TopicPartition> partitions = new ArrayList<>();
        for (int index = 0; index < Integer.parseInt(words.get(2)); index++) {
            partitions.add(new TopicPartition(words.get(1), index));
        }
        long wanted = Long.parseLong(words.get(3));
        long records = 0;
        long started = System.currentTimeMillis();
        ByteArrayDeserializer raw = new ByteArrayDeserializer();
        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(settings, raw, raw)) {
            consumer.assign(partitions);
            consumer.seekToBeginning(partitions);
            while (records < wanted) {
                ConsumerRecords<byte[], byte[]> polled = consumer.poll(Duration.ofMillis(500));
                records += polled.count();
                if (System.currentTimeMillis() - started > GIVE_UP_MS) {
                    throw new IllegalStateException("only " + records + " of " + wanted + " records came");
                }
            }
            System.out.println("consumed " + records + " in " + (System.currentTimeMillis() - started) + " ms");
        }
    }

    private LoadDriver() {}
}
