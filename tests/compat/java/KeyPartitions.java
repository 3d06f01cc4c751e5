import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.util.Arrays;
import java.util.Base64;
import org.apache.kafka.clients.producer.internals.BuiltInPartitioner;
import org.apache.kafka.common.utils.Utils;

/**
 * Where the Java client sends keys: reads a line of partition counts, then keys in base64, one a line; prints for each
 * its murmur2 and its partition for every count.
 */
public final class KeyPartitions {
    public static void main(String[] arguments) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        int[] counts = Arrays.stream(in.readLine().split(" ")).mapToInt(Integer::parseInt).toArray();
        PrintStream out = new PrintStream(System.out, false);
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            byte[] key = Base64.getDecoder().decode(line);
            StringBuilder found = new StringBuilder().append(Utils.murmur2(key));
            for (int count : counts) {
                found.append(' ').append(BuiltInPartitioner.partitionForKey(key, count));
            }
            out.println(found);
        }
        out.flush();
    }

    private KeyPartitions() {}
}
