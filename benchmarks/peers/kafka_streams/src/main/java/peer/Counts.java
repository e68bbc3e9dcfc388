package peer;

import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Map;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;

/** One user's counters by event name, and the time of the last event. */
final class Counts {
    private final Map<String, Long> byName = new HashMap<>();
    private long lastMs;

    void add(String name, long timeMs) {
        byName.merge(name, 1L, Long::sum);
        lastMs = Math.max(lastMs, timeMs);
    }

    static Serde<Counts> serde() {
        return Serdes.serdeFrom((topic, counts) -> counts == null ? null : counts.write(),
                (topic, data) -> data == null ? null : read(data));
    }

    /** Layout: last (8), number of names (2), and for each its length (2), UTF-8 bytes and count (8). */
    private byte[] write() {
        int size = Long.BYTES + Short.BYTES;
        byte[][] names = new byte[byName.size()][];
        int number = 0;
        for (String name : byName.keySet()) {
            names[number] = name.getBytes(StandardCharsets.UTF_8);
            size += Short.BYTES + names[number++].length + Long.BYTES;
        }
        ByteBuffer out = ByteBuffer.allocate(size).putLong(lastMs).putShort((short) names.length);
        number = 0;
        for (long count : byName.values()) {
            byte[] name = names[number++];
            out.putShort((short) name.length).put(name).putLong(count);
        }
        return out.array();
    }

    private static Counts read(byte[] data) {
        ByteBuffer in = ByteBuffer.wrap(data);
        Counts counts = new Counts();
        counts.lastMs = in.getLong();
        for (int left = in.getShort(); left > 0; left--) {
            int length = in.getShort();
            String name = new String(data, in.position(), length, StandardCharsets.UTF_8);
            in.position(in.position() + length);
            counts.byName.put(name, in.getLong());
        }
        return counts;
    }
}
