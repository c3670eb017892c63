import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.util.HexFormat;
import org.apache.kafka.common.protocol.Message;
import org.apache.kafka.common.protocol.MessageUtil;

/** Reads lines "MESSAGE VERSION JSON" and writes each message as Kafka's classes do: its bytes in hexadecimal. */
public final class Messages {
    public static void main(String[] arguments) throws Exception {
        ObjectMapper mapper = new ObjectMapper();
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, "UTF-8"));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] words = line.split(" ", 3);
            short version = Short.parseShort(words[1]);
            Message message = (Message) Class
                .forName("org.apache.kafka.common.message." + words[0] + "DataJsonConverter")
                .getMethod("read", JsonNode.class, short.class)
                .invoke(null, mapper.readTree(words[2]), version);
            ByteBuffer data = MessageUtil.toByteBufferAccessor(message, version).buffer();
            byte[] bytes = new byte[data.remaining()];
            data.get(bytes);
            System.out.println(HexFormat.of().formatHex(bytes));
        }
    }
}
