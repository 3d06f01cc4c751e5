import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.time.Duration;
import java.util.HashMap;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Transactions as lines: "producer open id", "producer begin", "producer send partition value", "producer offsets group
 * partition offset", "producer commit", "producer abort". Prints "ok" for each, or the name of what was thrown.
 *
 * bootstrap topic: the topic is the one that is written to, and whose offsets are committed.
 */
public final class TransactionPipe {
    public static void main(String[] arguments) throws Exception {
        Map<String, KafkaProducer<String, String>> producers = new HashMap<>();
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        PrintStream out = new PrintStream(System.out, false);
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] words = line.split(" ");
            try {
                if (words[1].equals("open")) {
                    producers.put(words[0], open(arguments[0], words[2]));
                } else {
                    act(producers.get(words[0]), arguments[1], words);
                }
                out.println("ok");
            } catch (ExecutionException failure) {
                out.println(failure.getCause().getClass().getSimpleName());
            } catch (RuntimeException failure) {
                out.println(failure.getClass().getSimpleName());
            }
        }
        producers.values().forEach(producer -> producer.close(Duration.ZERO));
        out.flush();
    }

    private static KafkaProducer<String, String> open(String bootstrap, String id) {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", bootstrap);
        properties.put("transactional.id", id);
        KafkaProducer<String, String> producer =
                new KafkaProducer<>(properties, new StringSerializer(), new StringSerializer());
        producer.initTransactions();
        return producer;
    }

    private static void act(KafkaProducer<String, String> producer, String topic, String[] words) throws Exception {
        switch (words[1]) {
            case "begin" -> producer.beginTransaction();
            case "send" -> producer.send(new ProducerRecord<>(topic, Integer.valueOf(words[2]), null, words[3])).get();
            case "offsets" -> producer.sendOffsetsToTransaction(
                    Map.of(
                            new TopicPartition(topic, Integer.parseInt(words[3])),
                            new OffsetAndMetadata(Long.parseLong(words[4]))),
                    new ConsumerGroupMetadata(words[2]));
            case "commit" -> producer.commitTransaction();
            case "abort" -> producer.abortTransaction();
            default -> throw new IllegalArgumentException(words[1]);
        }
    }
}
