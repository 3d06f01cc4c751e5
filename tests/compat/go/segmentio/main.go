// kafka-go: see ../program/program.go for what it does.
package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/segmentio/kafka-go"

	"odradek.test/compat/program"
)

func main() {
	program.Run(program.Modes{Admin: admin, Produce: produce, Member: member})
}

func admin(ctx context.Context, bootstrap, topic string) program.Seen {
	client := &kafka.Client{Addr: kafka.TCP(bootstrap)}
	request := &kafka.CreateTopicsRequest{Topics: []kafka.TopicConfig{{
		Topic:             topic,
		NumPartitions:     program.Partitions,
		ReplicationFactor: 1,
		ConfigEntries:     []kafka.ConfigEntry{{ConfigName: "retention.ms", ConfigValue: program.RetentionMs}},
	}}}
	created, err := client.CreateTopics(ctx, request)
	program.Must(err)
	program.Must(created.Errors[topic])
	again, err := client.CreateTopics(ctx, request)
	program.Must(err)
	seen := program.Seen{Created: true, CreatedAgain: again.Errors[topic] == nil}

	var metadata *kafka.MetadataResponse
	// This client leaves it to its users to ask again until a new topic is known everywhere.
	program.Eventually(func() bool {
		metadata, err = client.Metadata(ctx, &kafka.MetadataRequest{Topics: []string{topic}})
		program.Must(err)
		return len(metadata.Topics[0].Partitions) == program.Partitions
	})
	seen.Brokers = len(metadata.Brokers)
	partitions := metadata.Topics[0].Partitions
	slices.SortFunc(partitions, func(a, b kafka.Partition) int { return a.ID - b.ID })
	var asked []kafka.OffsetRequest
	for _, partition := range partitions {
		seen.Partitions = append(seen.Partitions, int32(partition.ID))
		seen.Leaders = append(seen.Leaders, int32(partition.Leader.ID))
		asked = append(asked, kafka.LastOffsetOf(partition.ID))
	}
	program.Eventually(func() bool {
		wanted := &kafka.ListOffsetsRequest{Topics: map[string][]kafka.OffsetRequest{topic: asked}}
		ends, err := client.ListOffsets(ctx, wanted)
		program.Must(err)
		seen.Ends = nil
		for _, end := range ends.Topics[topic] {
			seen.Ends = append(seen.Ends, end.LastOffset)
		}
		return !slices.Contains(seen.Ends, -1)
	})
	resource := kafka.DescribeConfigRequestResource{ResourceType: kafka.ResourceTypeTopic, ResourceName: topic}
	resource.ConfigNames = []string{"retention.ms"}
	resources := []kafka.DescribeConfigRequestResource{resource}
	described, err := client.DescribeConfigs(ctx, &kafka.DescribeConfigsRequest{Resources: resources})
	program.Must(err)
	seen.Retention = described.Resources[0].ConfigEntries[0].ConfigValue

	deleted, err := client.DeleteTopics(ctx, &kafka.DeleteTopicsRequest{Topics: []string{topic}})
	program.Must(err)
	program.Must(deleted.Errors[topic])
	program.Eventually(func() bool {
		left, err := client.Metadata(ctx, &kafka.MetadataRequest{})
		program.Must(err)
		return !slices.ContainsFunc(left.Topics, func(each kafka.Topic) bool { return each.Name == topic })
	})
	return seen
}

func produce(ctx context.Context, bootstrap, topic string, count int) {
	writer := &kafka.Writer{
		Addr:         kafka.TCP(bootstrap),
		Topic:        topic,
		Balancer:     kafka.Murmur2Balancer{Consistent: true},
		RequiredAcks: kafka.RequireAll,
		Compression:  kafka.Snappy,
		BatchTimeout: 5 * time.Millisecond,
	}
	var messages []kafka.Message
	for number := range count {
		messages = append(messages, kafka.Message{
			Key:     fmt.Appendf(nil, "key-%d", number),
			Value:   fmt.Appendf(nil, "value-%d", number),
			Headers: []kafka.Header{{Key: "number", Value: fmt.Append(nil, number)}},
		})
	}
	program.Must(writer.WriteMessages(ctx, messages...))
	program.Must(writer.Close())
}

// A kafka.Reader tells nobody what it owns, so this member is one of kafka-go's ConsumerGroup, a generation at a time.
func member(ctx context.Context, bootstrap, group, topic string, session time.Duration) {
	membership, err := kafka.NewConsumerGroup(kafka.ConsumerGroupConfig{
		ID:                group,
		Brokers:           []string{bootstrap},
		Topics:            []string{topic},
		StartOffset:       kafka.FirstOffset,
		SessionTimeout:    session,
		RebalanceTimeout:  10 * time.Second,
		HeartbeatInterval: 300 * time.Millisecond,
	})
	program.Must(err)
	var owned program.Owned
	for {
		generation, err := membership.Next(ctx)
		if ctx.Err() != nil {
			break
		}
		if err != nil {
			continue
		}
		var mine []int32
		for _, assignment := range generation.Assignments[topic] {
			mine = append(mine, int32(assignment.ID))
			generation.Start(func(ctx context.Context) {
				follow(ctx, generation, bootstrap, topic, assignment)
			})
		}
		owned.Set(mine)
	}
	program.Must(membership.Close())
}

// Reads one partition until the generation ends, and commits after each record.
func follow(ctx context.Context, generation *kafka.Generation, bootstrap, topic string, from kafka.PartitionAssignment) {
	reader := kafka.NewReader(kafka.ReaderConfig{
		Brokers:   []string{bootstrap},
		Topic:     topic,
		Partition: from.ID,
		MaxWait:   100 * time.Millisecond,
	})
	defer reader.Close()
	program.Must(reader.SetOffset(from.Offset))
	for {
		message, err := reader.ReadMessage(ctx)
		if err != nil {
			return
		}
		next := map[string]map[int]int64{topic: {message.Partition: message.Offset + 1}}
		if generation.CommitOffsets(next) == nil {
			program.Read(int32(message.Partition), message.Offset)
		}
	}
}
