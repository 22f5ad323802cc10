// One round of everything the served admin calls promise, by Kafka's own AdminClient, in one JVM.
// Prints a line for each step that held; ends with a stack trace and exit code 1 at the first that
// did not.

import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AdminClientConfig;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.Config;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.ListOffsetsResult;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.InvalidConfigurationException;
import org.apache.kafka.common.errors.InvalidPartitionsException;
import org.apache.kafka.common.errors.InvalidReplicationFactorException;
import org.apache.kafka.common.errors.InvalidTopicException;
import org.apache.kafka.common.errors.TopicExistsException;
import org.apache.kafka.common.errors.UnknownTopicOrPartitionException;

public final class AdminRound {
    private final Admin admin;
    private final String topic;
    private final short replication;

    private AdminRound(Admin admin, String topic, short replication) {
        this.admin = admin;
        this.topic = topic;
        this.replication = replication;
    }

    public static void main(String[] args) throws Exception {
        Map<String, Object> settings = new HashMap<>();
        settings.put(AdminClientConfig.BOOTSTRAP_SERVERS_CONFIG, args[0]);
        settings.put(AdminClientConfig.REQUEST_TIMEOUT_MS_CONFIG, 10_000);
        settings.put(AdminClientConfig.DEFAULT_API_TIMEOUT_MS_CONFIG, 20_000);
        try (Admin admin = Admin.create(settings)) {
            AdminRound round = new AdminRound(admin, args[1], Short.parseShort(args[2]));
            round.cluster();
            round.topics();
            round.refusals();
            round.configs();
            round.partitions();
            round.offsets();
            round.deletion();
        }
    }

    private static void check(boolean holds, String what) {
        if (!holds) {
            throw new AssertionError(what);
        }
        System.out.println("ok " + what);
    }

    private static void refused(Class<?> wanted, String what, Callable<?> call) throws Exception {
        try {
            call.call();
        } catch (ExecutionException error) {
            check(wanted.isInstance(error.getCause()), what + ": " + error.getCause());
            return;
        }
        throw new AssertionError(what + ": was accepted");
    }

    private static void eventually(String what, Callable<Boolean> holds) throws Exception {
        long deadline = System.nanoTime() + 15_000_000_000L;
        while (!holds.call()) {
            if (System.nanoTime() > deadline) {
                throw new AssertionError(what);
            }
            Thread.sleep(50);
        }
        System.out.println("ok " + what);
    }

    private void cluster() throws Exception {
        int nodes = admin.describeCluster().nodes().get().size();
        check(nodes >= replication, "describeCluster lists " + nodes + " nodes");
        String id = admin.describeCluster().clusterId().get();
        check(id.length() == 22, "cluster id has 22 letters");
        check(admin.describeCluster().controller().get() != null, "a controller is named");
        var features = admin.describeFeatures().featureMetadata().get();
        check(features.finalizedFeatures().containsKey("metadata.version"), "features are listed");
    }

    private TopicDescription describe() throws Exception {
        return admin.describeTopics(List.of(topic)).allTopicNames().get().get(topic);
    }

    private void topics() throws Exception {
        NewTopic wanted = new NewTopic(topic, 3, replication)
                .configs(Map.of("segment.ms", "86400000", "max.message.bytes", "2000000"));
        var created = admin.createTopics(List.of(wanted));
        created.all().get();
        check(created.numPartitions(topic).get() == 3, "createTopics answers the partitions");
        check(created.config(topic).get().get("segment.ms").value().equals("86400000"),
                "createTopics answers the configs");
        eventually("describeTopics lists three partitions with full ISRs", () -> {
            try {
                return describe().partitions().size() == 3 && describe().partitions().stream()
                        .allMatch(p -> p.leader() != null && p.isr().size() == replication
                                && p.replicas().size() == replication);
            } catch (ExecutionException error) {
                return false;
            }
        });
        check(describe().topicId().equals(created.topicId(topic).get()), "both topic ids agree");
        check(admin.listTopics().names().get().contains(topic), "listTopics names it");
        Set<Integer> leaders = new HashSet<>();
        describe().partitions().forEach(p -> leaders.add(p.leader().id()));
        check(leaders.size() == replication, "leaders are spread over the nodes");
    }

    private void refusals() throws Exception {
        refused(TopicExistsException.class, "an existing name", () -> admin.createTopics(
                List.of(new NewTopic(topic, 1, (short) 1))).all().get());
        refused(InvalidTopicException.class, "a bad name", () -> admin.createTopics(
                List.of(new NewTopic("a/b", 1, (short) 1))).all().get());
        refused(InvalidReplicationFactorException.class, "too many replicas",
                () -> admin.createTopics(List.of(new NewTopic(topic + "-x", 1, (short) 99)))
                        .all().get());
        refused(InvalidPartitionsException.class, "no partitions", () -> admin.createTopics(
                List.of(new NewTopic(topic + "-x", 0, (short) 1))).all().get());
        refused(InvalidConfigurationException.class, "an unknown config", () -> admin.createTopics(
                List.of(new NewTopic(topic + "-x", 1, (short) 1)
                        .configs(Map.of("no.such.config", "1")))).all().get());
        refused(InvalidConfigurationException.class, "a config of the wrong type",
                () -> admin.createTopics(List.of(new NewTopic(topic + "-x", 1, (short) 1)
                        .configs(Map.of("segment.ms", "soon")))).all().get());
        refused(UnknownTopicOrPartitionException.class, "describing what is not there",
                () -> admin.describeTopics(List.of(topic + "-x")).allTopicNames().get());
        refused(UnknownTopicOrPartitionException.class, "deleting what is not there",
                () -> admin.deleteTopics(List.of(topic + "-x")).all().get());
    }

    private Config config(ConfigResource resource) throws Exception {
        return admin.describeConfigs(List.of(resource)).all().get().get(resource);
    }

    private void alter(ConfigResource resource, String name, String value, AlterConfigOp.OpType op)
            throws Exception {
        AlterConfigOp change = new AlterConfigOp(new ConfigEntry(name, value), op);
        admin.incrementalAlterConfigs(Map.of(resource, List.of(change))).all().get();
    }

    private void configs() throws Exception {
        ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, topic);
        ConfigEntry own = config(resource).get("segment.ms");
        check(own.source() == ConfigEntry.ConfigSource.DYNAMIC_TOPIC_CONFIG,
                "a topic's own config says so");
        check(config(resource).get("segment.bytes").isDefault(), "a default says so");
        alter(resource, "segment.ms", "3600000", AlterConfigOp.OpType.SET);
        eventually("a set config is seen",
                () -> config(resource).get("segment.ms").value().equals("3600000"));
        alter(resource, "segment.ms", null, AlterConfigOp.OpType.DELETE);
        eventually("an unset config falls back",
                () -> config(resource).get("segment.ms").value().equals("604800000"));
        refused(InvalidConfigurationException.class, "altering to the wrong type", () -> {
            alter(resource, "max.message.bytes", "many", AlterConfigOp.OpType.SET);
            return null;
        });
        String broker = String.valueOf(describe().partitions().get(0).leader().id());
        ConfigResource node = new ConfigResource(ConfigResource.Type.BROKER, broker);
        check(config(node).get("node.id").value().equals(broker), "a broker shows its node.id");
    }

    private void partitions() throws Exception {
        admin.createPartitions(Map.of(topic, NewPartitions.increaseTo(5))).all().get();
        eventually("five partitions after growth", () -> describe().partitions().size() == 5);
        refused(InvalidPartitionsException.class, "shrinking", () -> admin.createPartitions(
                Map.of(topic, NewPartitions.increaseTo(2))).all().get());
    }

    private void offsets() throws Exception {
        TopicPartition partition = new TopicPartition(topic, 4);
        eventually("listOffsets answers for a new partition", () -> {
            try {
                ListOffsetsResult.ListOffsetsResultInfo latest = admin.listOffsets(
                        Map.of(partition, OffsetSpec.latest())).partitionResult(partition).get();
                return latest.offset() == 0 && latest.leaderEpoch().equals(Optional.of(0));
            } catch (ExecutionException error) {
                return false;
            }
        });
        var earliest = admin.listOffsets(Map.of(partition, OffsetSpec.earliest()));
        check(earliest.partitionResult(partition).get().offset() == 0, "the earliest offset is 0");
        var largest = admin.listOffsets(Map.of(partition, OffsetSpec.maxTimestamp()));
        check(largest.partitionResult(partition).get().offset() == -1, "no maximum timestamp yet");
    }

    private void deletion() throws Exception {
        admin.deleteTopics(List.of(topic)).all().get();
        eventually("a deleted topic is gone",
                () -> !admin.listTopics().names().get().contains(topic));
    }
}
