import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Base64;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.Future;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Records in and out as lines: partition, offset, timestamp, key, value, headers; tab-separated, bytes in base64 without
 * padding, "-" for null.
 *
 * produce bootstrap topic name=value...: reads such lines, sends them in order, prints the offset of each.
 * consume bootstrap topic count=N name=value...: reads lines "partition, offset" to start at, prints N records.
 */
public final class RecordPipe {
    private static final long GIVE_UP_MS = 60_000;

    public static void main(String[] arguments) throws Exception {
        Map<String, String> settings = new HashMap<>();
        for (String setting : Arrays.asList(arguments).subList(3, arguments.length)) {
            int equals = setting.indexOf('=');
            settings.put(setting.substring(0, equals), setting.substring(equals + 1));
        }
        settings.put("bootstrap.servers", arguments[1]);
        List<String> lines = new ArrayList<>();
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            lines.add(line);
        }
        PrintStream out = new PrintStream(System.out, false);
        if (arguments[0].equals("produce")) {
            produce(arguments[2], settings, lines, out);
        } else {
            consume(arguments[2], settings, lines, out);
        }
        out.flush();
    }

    private static void produce(String topic, Map<String, String> settings, List<String> lines, PrintStream out)
            throws Exception {
        Properties properties = new Properties();
        properties.putAll(settings);
        ByteArraySerializer raw = new ByteArraySerializer();
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(properties, raw, raw)) {
            for (String line : lines) {
                String[] fields = line.split("\t", -1);
                List<Header> headers = new ArrayList<>();
                for (String pair : fields[5].isEmpty() ? new String[0] : fields[5].split(",")) {
                    int equals = pair.indexOf('=');
                    String name = new String(decoded(pair.substring(0, equals)), "UTF-8");
                    headers.add(new RecordHeader(name, decoded(pair.substring(equals + 1))));
                }
                sent.add(producer.send(new ProducerRecord<>(topic, Integer.valueOf(fields[0]), Long.valueOf(fields[2]),
                        decoded(fields[3]), decoded(fields[4]), headers)));
            }
            producer.flush();
            for (Future<RecordMetadata> future : sent) {
                RecordMetadata metadata = future.get();
                out.println(metadata.hasOffset() ? metadata.offset() : -1);
            }
        }
    }

    private static void consume(String topic, Map<String, String> settings, List<String> lines, PrintStream out)
            throws Exception {
        long wanted = Long.parseLong(settings.remove("count"));
        Properties properties = new Properties();
        properties.putAll(settings);
        properties.put("enable.auto.commit", "false");
        properties.put("auto.offset.reset", "none");
        Map<TopicPartition, Long> starts = new LinkedHashMap<>();
        for (String line : lines) {
            String[] fields = line.split("\t");
            starts.put(new TopicPartition(topic, Integer.parseInt(fields[0])), Long.parseLong(fields[1]));
        }
        ByteArrayDeserializer raw = new ByteArrayDeserializer();
        long deadline = System.currentTimeMillis() + GIVE_UP_MS;
        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(properties, raw, raw)) {
            consumer.assign(starts.keySet());
            starts.forEach(consumer::seek);
            long seen = 0;
            while (seen < wanted && System.currentTimeMillis() < deadline) {
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(200))) {
                    if (seen++ < wanted) {
                        print(record, out);
                    }
                }
            }
        }
    }

    private static void print(ConsumerRecord<byte[], byte[]> record, PrintStream out) throws Exception {
        StringBuilder headers = new StringBuilder();
        for (Header header : record.headers()) {
            headers.append(headers.length() == 0 ? "" : ",");
            headers.append(encoded(header.key().getBytes("UTF-8"))).append('=').append(encoded(header.value()));
        }
        out.println(record.partition() + "\t" + record.offset() + "\t" + record.timestamp() + "\t" + encoded(record.key())
                + "\t" + encoded(record.value()) + "\t" + headers);
    }

    private static String encoded(byte[] data) {
        return data == null ? "-" : Base64.getEncoder().withoutPadding().encodeToString(data);
    }

    private static byte[] decoded(String text) {
        return text.equals("-") ? null : Base64.getDecoder().decode(text);
    }

    private RecordPipe() {}
}
