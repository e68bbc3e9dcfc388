package peer;

import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Properties;
import org.apache.avro.Schema;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.processor.api.Processor;
import org.apache.kafka.streams.processor.api.ProcessorContext;
import org.apache.kafka.streams.processor.api.Record;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.StoreBuilder;
import org.apache.kafka.streams.state.Stores;

/** Counts each user's events by name and keeps the time of the last: a persistent store, cached, with its changelog. */
public final class Counter implements Processor<byte[], byte[], Void, Void> {
    private static final String STORE = "counts";

    private final EventReader reader;
    private KeyValueStore<byte[], Counts> store;

    private Counter(EventReader reader) {
        this.reader = reader;
    }

    @Override
    public void init(ProcessorContext<Void, Void> context) {
        store = context.getStateStore(STORE);
    }

    @Override
    public void process(Record<byte[], byte[]> record) {
        EventReader.Event event = reader.read(record.value());
        Counts counts = store.get(record.key());
        if (counts == null) {
            counts = new Counts();
        }
        counts.add(event.name(), event.timeMs());
        store.put(record.key(), counts);
    }

    private static Topology topology(String input, Schema written) {
        StoreBuilder<KeyValueStore<byte[], Counts>> counts =
                Stores.keyValueStoreBuilder(Stores.persistentKeyValueStore(STORE), Serdes.ByteArray(), Counts.serde())
                        .withCachingEnabled();
        return new Topology()
                .addSource("events", new ByteArrayDeserializer(), new ByteArrayDeserializer(), input)
                .addProcessor("count", () -> new Counter(new EventReader(written)), "events")
                .addStateStore(counts, "count");
    }

    private static Properties settings() {
        Properties settings = new Properties();
        settings.put(StreamsConfig.APPLICATION_ID_CONFIG, System.getenv("PEER_GROUP"));
        settings.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, System.getenv("PEER_BROKERS"));
        settings.put(StreamsConfig.STATE_DIR_CONFIG, System.getenv("PEER_STATE_DIR"));
        settings.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, System.getenv("PEER_GUARANTEE"));
        settings.put(StreamsConfig.NUM_STREAM_THREADS_CONFIG, 1);
        settings.put(StreamsConfig.STATESTORE_CACHE_MAX_BYTES_CONFIG, 100L * 1024 * 1024);
        settings.put("auto.offset.reset", "earliest");
        settings.put("producer.compression.type", "lz4");
        String commitIntervalMs = System.getenv("PEER_COMMIT_INTERVAL_MS");
        if (commitIntervalMs != null) {
            settings.put(StreamsConfig.COMMIT_INTERVAL_MS_CONFIG, commitIntervalMs);
        }
        return settings;
    }

    public static void main(String[] arguments) throws Exception {
        Schema written = new Schema.Parser().parse(Files.readString(Path.of(System.getenv("PEER_SCHEMA"))));
        KafkaStreams streams = new KafkaStreams(topology(System.getenv("PEER_INPUT"), written), settings());
        Runtime.getRuntime().addShutdownHook(new Thread(streams::close));
        streams.start();
    }
}
