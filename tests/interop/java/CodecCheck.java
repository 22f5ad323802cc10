// Reads lines `<message> <version> <hex>` from standard input. Each message must be read by
// Kafka's own generated class, use every byte, and be written back as the same bytes.
// Prints one line a disagreement and exits 1, or one line with the count and exits 0.

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.reflect.Constructor;
import java.nio.ByteBuffer;
import java.util.Arrays;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.Message;
import org.apache.kafka.common.protocol.ObjectSerializationCache;

public final class CodecCheck {
    private static final List<String> PLACES = List.of(
        "org.apache.kafka.common.message.%sData",
        "org.apache.kafka.common.message.%s",
        "org.apache.kafka.coordinator.group.generated.%s");

    private final Map<String, Constructor<?>> constructors = new HashMap<>();

    public static void main(String[] arguments) throws Exception {
        CodecCheck check = new CodecCheck();
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        int messages = 0;
        int disagreements = 0;
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            messages++;
            String problem = check.problem(line.split(" ", -1));
            if (problem != null && disagreements++ < 20) {
                System.out.println(problem + ": " + line);
            }
        }
        if (disagreements > 0) {
            System.out.println(disagreements + " of " + messages + " messages disagree");
            System.exit(1);
        }
        System.out.println(messages + " messages agree");
    }

    private String problem(String[] words) throws Exception {
        Message message = (Message) constructor(words[0]).newInstance();
        short version = Short.parseShort(words[1]);
        byte[] bytes = HexFormat.of().parseHex(words[2]);
        ByteBuffer buffer = ByteBuffer.wrap(bytes);
        try {
            message.read(new ByteBufferAccessor(buffer), version);
        } catch (RuntimeException e) {
            return "not read (" + e + ")";
        }
        if (buffer.hasRemaining()) {
            return buffer.remaining() + " bytes not used";
        }
        ObjectSerializationCache cache = new ObjectSerializationCache();
        ByteBuffer written = ByteBuffer.allocate(message.size(cache, version));
        message.write(new ByteBufferAccessor(written), cache, version);
        if (!Arrays.equals(bytes, written.array())) {
            return "written as " + HexFormat.of().formatHex(written.array());
        }
        return null;
    }

    private Constructor<?> constructor(String name) throws Exception {
        Constructor<?> known = constructors.get(name);
        if (known != null) {
            return known;
        }
        for (String place : PLACES) {
            try {
                Constructor<?> found =
                    Class.forName(String.format(place, name)).getDeclaredConstructor();
                constructors.put(name, found);
                return found;
            } catch (ClassNotFoundException e) {
                // The next place may have it.
            }
        }
        throw new IllegalArgumentException("Kafka has no message " + name);
    }
}
