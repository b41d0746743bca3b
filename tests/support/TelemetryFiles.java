import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.util.List;
import java.util.Map;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.kafka.common.metrics.KafkaMetric;
import org.apache.kafka.common.metrics.MetricsReporter;
import org.apache.kafka.server.telemetry.ClientTelemetry;
import org.apache.kafka.server.telemetry.ClientTelemetryReceiver;

/** A broker's plugin that writes each push of a client into a file of its own: NUMBER-INSTANCE-TERMINATING-CLIENT.otlp. */
public class TelemetryFiles implements MetricsReporter, ClientTelemetry {
    private final AtomicInteger number = new AtomicInteger();
    private Path folder;

    @Override
    public void configure(Map<String, ?> configs) {
        folder = Path.of((String) configs.get("telemetry.files"));
    }

    @Override
    public ClientTelemetryReceiver clientReceiver() {
        return (context, payload) -> {
            ByteBuffer data = payload.data().duplicate();
            byte[] bytes = new byte[data.remaining()];
            data.get(bytes);
            String name = String.join("-", String.format("%06d", number.incrementAndGet()),
                payload.clientInstanceId().toString().replace("-", "~"), String.valueOf(payload.isTerminating()),
                context.clientId());
            try {
                Path written = Files.write(folder.resolve(name + ".part"), bytes);
                Files.move(written, folder.resolve(name + ".otlp"), StandardCopyOption.ATOMIC_MOVE);
            } catch (java.io.IOException error) {
                throw new java.io.UncheckedIOException(error);
            }
        };
    }

    @Override
    public void init(List<KafkaMetric> metrics) { }

    @Override
    public void metricChange(KafkaMetric metric) { }

    @Override
    public void metricRemoval(KafkaMetric metric) { }

    @Override
    public void close() { }
}
