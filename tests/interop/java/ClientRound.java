// One round of the Java producer and consumer in one JVM: idempotent produce with each
// compression, a group of two members that rebalances, commits, offsets by time, and reading from
// the end. Prints a line for each step that held; exits 1 with a stack trace at the first that did
// not.

import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.Future;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

public final class ClientRound {
    private static final int EACH = 200;
    private static final List<String> KINDS = List.of("none", "gzip", "snappy", "lz4", "zstd");

    private final String bootstrap;
    private final String topic;

    private ClientRound(String bootstrap, String topic) {
        this.bootstrap = bootstrap;
        this.topic = topic;
    }

    public static void main(String[] args) throws Exception {
        ClientRound round = new ClientRound(args[0], args[1]);
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", args[0]))) {
            NewTopic wanted = new NewTopic(args[1], 4, Short.parseShort(args[2]));
            admin.createTopics(List.of(wanted)).all().get();
        }
        round.produce();
        round.consumeInGroup();
        round.offsetsByTime();
    }

    private static void check(boolean holds, String what) {
        if (!holds) {
            throw new AssertionError(what);
        }
        System.out.println("ok " + what);
    }

    private KafkaProducer<String, String> producer(String compression) {
        Map<String, Object> settings = new HashMap<>();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("acks", "all");
        settings.put("enable.idempotence", true);
        settings.put("compression.type", compression);
        settings.put("linger.ms", 5);
        settings.put("delivery.timeout.ms", 30_000);
        settings.put("request.timeout.ms", 10_000);
        return new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer());
    }

    private KafkaConsumer<String, String> consumer(String group) {
        Map<String, Object> settings = new HashMap<>();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("group.id", group);
        settings.put("auto.offset.reset", "earliest");
        settings.put("enable.auto.commit", false);
        settings.put("isolation.level", "read_committed");
        return new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer());
    }

    private void produce() throws Exception {
        for (String kind : KINDS) {
            Map<Integer, Long> last = new HashMap<>();
            try (KafkaProducer<String, String> producer = producer(kind)) {
                List<Future<RecordMetadata>> sent = new ArrayList<>();
                for (int i = 0; i < EACH; i++) {
                    String key = kind + "-" + i;
                    sent.add(producer.send(new ProducerRecord<>(topic, key, "value of " + key)));
                }
                for (Future<RecordMetadata> future : sent) {
                    RecordMetadata metadata = future.get();
                    Long before = last.put(metadata.partition(), metadata.offset());
                    if (before != null && before >= metadata.offset()) {
                        throw new AssertionError("offsets fall in partition " + metadata);
                    }
                }
            }
            check(last.size() > 1, EACH + " idempotent records with " + kind);
        }
    }

    private void consumeInGroup() {
        String group = topic + "-group";
        Set<String> seen = new HashSet<>();
        Set<TopicPartition> firsts = new HashSet<>();
        Set<TopicPartition> seconds = new HashSet<>();
        try (KafkaConsumer<String, String> first = consumer(group);
                KafkaConsumer<String, String> second = consumer(group)) {
            first.subscribe(List.of(topic));
            second.subscribe(List.of(topic));
            long deadline = System.nanoTime() + 40_000_000_000L;
            while (seen.size() < EACH * KINDS.size() || seconds.size() != 2 || firsts.size() != 2
                    || !atEnd(first) || !atEnd(second)) {
                take(first, seen);
                take(second, seen);
                firsts = first.assignment();
                seconds = second.assignment();
                if (System.nanoTime() > deadline) {
                    throw new AssertionError("saw " + seen.size() + " records, assignments "
                            + firsts + " and " + seconds);
                }
            }
            check(true, "two members share four partitions and see every record");
            first.commitSync();
            second.commitSync();
        }
        try (KafkaConsumer<String, String> later = consumer(group)) {
            Set<TopicPartition> all = new HashSet<>();
            for (int partition = 0; partition < 4; partition++) {
                all.add(new TopicPartition(topic, partition));
            }
            Map<TopicPartition, OffsetAndMetadata> committed = later.committed(all);
            Map<TopicPartition, Long> ends = later.endOffsets(all);
            for (TopicPartition partition : all) {
                if (committed.get(partition).offset() != ends.get(partition)) {
                    throw new AssertionError(committed + " is not " + ends);
                }
            }
            check(true, "committed offsets are the ends");
            later.subscribe(List.of(topic));
            int again = 0;
            for (int i = 0; i < 10 || later.assignment().isEmpty(); i++) {
                again += later.poll(Duration.ofMillis(100)).count();
            }
            check(again == 0, "a member that comes later starts from the commit");
        }
    }

    private static boolean atEnd(KafkaConsumer<String, String> consumer) {
        Map<TopicPartition, Long> ends = consumer.endOffsets(consumer.assignment());
        return ends.entrySet().stream().allMatch(
                end -> consumer.position(end.getKey()) == end.getValue());
    }

    private void take(KafkaConsumer<String, String> consumer, Set<String> seen) {
        for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(100))) {
            if (!record.value().equals("value of " + record.key())) {
                throw new AssertionError("wrong value " + record);
            }
            seen.add(record.key());
        }
    }

    private void offsetsByTime() {
        try (KafkaConsumer<String, String> consumer = consumer(topic + "-times")) {
            TopicPartition partition = new TopicPartition(topic, 0);
            consumer.assign(List.of(partition));
            consumer.seekToBeginning(List.of(partition));
            List<ConsumerRecord<String, String>> records = new ArrayList<>();
            long end = consumer.endOffsets(List.of(partition)).get(partition);
            while (records.size() < end) {
                consumer.poll(Duration.ofMillis(100)).forEach(records::add);
            }
            long middle = records.get(records.size() / 2).timestamp();
            long expected = records.stream().filter(r -> r.timestamp() >= middle)
                    .mapToLong(ConsumerRecord::offset).min().getAsLong();
            var answer = consumer.offsetsForTimes(Map.of(partition, middle));
            long found = answer.get(partition).offset();
            check(found == expected, "offsetsForTimes finds the first record of that time");
            consumer.seek(partition, end - 1);
            int last = consumer.poll(Duration.ofSeconds(5)).count();
            check(last == 1, "the last record is one record");
        }
    }
}
