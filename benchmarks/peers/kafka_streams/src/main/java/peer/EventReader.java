package peer;

import java.io.IOException;
import java.io.UncheckedIOException;
import org.apache.avro.Schema;
import org.apache.avro.SchemaBuilder;
import org.apache.avro.generic.GenericDatumReader;
import org.apache.avro.generic.GenericRecord;
import org.apache.avro.io.BinaryDecoder;
import org.apache.avro.io.DecoderFactory;

/** Reads what the counter needs of an event; Avro's schema resolution steps over the rest. Not for several threads. */
final class EventReader {
    private static final int HEADER_BYTES = 5;

    record Event(String name, long timeMs) {}

    private final GenericDatumReader<GenericRecord> reader;
    private GenericRecord record;
    private BinaryDecoder decoder;

    EventReader(Schema written) {
        Schema wanted = SchemaBuilder.record(written.getName()).namespace(written.getNamespace()).fields()
                .name("name").type(text()).noDefault()
                .name("event_time").type().longType().noDefault()
                .endRecord();
        reader = new GenericDatumReader<>(written, wanted);
    }

    Event read(byte[] value) {
        decoder = DecoderFactory.get().binaryDecoder(value, HEADER_BYTES, value.length - HEADER_BYTES, decoder);
        try {
            record = reader.read(record, decoder);
        } catch (IOException cause) {
            throw new UncheckedIOException(cause);
        }
        return new Event((String) record.get(0), (Long) record.get(1));
    }

    private static Schema text() {
        Schema text = Schema.create(Schema.Type.STRING);
        text.addProp("avro.java.string", "String");
        return text;
    }
}
