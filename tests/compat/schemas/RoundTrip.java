import java.lang.reflect.Constructor;
import java.nio.ByteBuffer;
import java.util.HexFormat;
import java.util.Scanner;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.Message;
import org.apache.kafka.common.protocol.ObjectSerializationCache;
import org.apache.kafka.common.protocol.Readable;

/** Reads lines "class version hex", has Kafka decode and encode each message again, and prints "unread-bytes hex". */
public class RoundTrip {
    public static void main(String[] arguments) throws Exception {
        Scanner lines = new Scanner(System.in);
        StringBuilder answers = new StringBuilder();
        while (lines.hasNextLine()) {
            String[] words = lines.nextLine().split(" ", -1);
            short version = Short.parseShort(words[1]);
            ByteBuffer received = ByteBuffer.wrap(HexFormat.of().parseHex(words[2]));
            Constructor<?> read = Class.forName(words[0]).getConstructor(Readable.class, short.class);
            Message message = (Message) read.newInstance(new ByteBufferAccessor(received), version);
            ObjectSerializationCache cache = new ObjectSerializationCache();
            ByteBuffer sent = ByteBuffer.allocate(message.size(cache, version));
            message.write(new ByteBufferAccessor(sent), cache, version);
            answers.append(received.remaining()).append(' ').append(HexFormat.of().formatHex(sent.array())).append('\n');
        }
        System.out.print(answers);
    }
}
